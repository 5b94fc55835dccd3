//! What a run is made of besides its workload and policy.

use dovetail_engine::{Clock, Knowledge};
use dovetail_model::stages::{Contention, Ordering};
use dovetail_model::{ClusterSpec, IdVec, ModelId, Rate, Slowdowns, Time};
use dovetail_policies::order::SynergyFacts;
use thiserror::Error;

use crate::failures::Failures;
use crate::speed::SpeedModel;

/// Quirks of a reference system that are not decisions: how progress is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compat {
    /// None: exact completion times.
    #[default]
    Exact,
    /// Blox: only whole rounds of progress count, at this speed, so completions fall on the grid.
    Blox {
        /// Progress per time.
        speed: Rate,
    },
    /// Muri's simulator: iterations between events, each interval less a start-up time.
    Muri(MuriTime),
    /// Synergy's simulator: whole iterations for a whole round, credited when it begins.
    Synergy {
        /// Jobs run at the speed of their proportional share whatever they have.
        fair: bool,
    },
}

/// Who slows whom down in Muri's simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MuriTime {
    /// Nobody: jobs have their GPUs to themselves, and ends that are nearly equal are one event.
    Alone,
    /// Nobody, and only ends that are equal are one event.
    Queues,
    /// Groups take the period of their interleaving.
    Groups {
        /// Whether the line is by attained service, not by what is left: it decides whose end others are merged with.
        attained: bool,
    },
    /// Guaranteed jobs are not slowed down; opportunistic ones fill the gaps of those they share GPUs with.
    Guaranteed,
}

/// How a run goes.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// The machines.
    pub cluster: ClusterSpec,
    /// When decisions are taken.
    pub clock: Clock,
    /// What the policy may know of remaining work; none is what the policy needs.
    pub knowledge: Option<Knowledge>,
    /// Standard deviation of the logarithm of estimates around the truth, for knowledge `estimate`.
    pub estimate_error: f64,
    /// Time from a launch to the first progress when a job was started before.
    pub restart_cost: Time,
    /// How often a job writes a checkpoint if its trace does not say; none keeps all work, even on a lost node.
    pub checkpoint: Option<Time>,
    /// Time each checkpoint takes.
    pub checkpoint_cost: Time,
    /// Whether a job that is told to stop saves its work first; else it loses what it did since its last checkpoint, and
    /// all of it if it writes none.
    pub saves_on_stop: bool,
    /// How fast jobs run where.
    pub speeds: SpeedModel,
    /// How much longer an iteration gets on shared GPUs.
    pub contention: Contention,
    /// Memory a model fills on each GPU, in MiB, for jobs whose trace does not say; zero where it is not known.
    pub gpu_memory: IdVec<ModelId, u64>,
    /// What was measured of pairs of models on shared GPUs.
    pub slowdowns: Slowdowns,
    /// How jobs on shared GPUs are offset.
    pub interleaving: Ordering,
    /// When nodes go down.
    pub failures: Failures,
    /// Seed of everything random.
    pub seed: u64,
    /// Average only over jobs at these positions of the workload, both ends included.
    pub track: Option<(u32, u32)>,
    /// End the run as soon as all tracked jobs are done, even if others still run or come.
    pub stop_after_tracked: bool,
    /// Check every invariant after every step.
    pub check: bool,
    /// How many pieces of the GPU timeline are kept.
    pub segments: usize,
    /// Keep what the cluster is like at every moment at which something happens.
    pub moments: bool,
    /// Quirks of a reference system.
    pub compat: Compat,
    /// What Synergy's profiles say of each job; empty but for its compat.
    pub synergy: Vec<SynergyFacts>,
}

impl SimConfig {
    /// A plain run on this cluster: events clock, no restart cost, no failures.
    pub fn new(cluster: ClusterSpec) -> Self {
        Self {
            cluster,
            clock: Clock::Events,
            knowledge: None,
            estimate_error: 0.5,
            restart_cost: Time::ZERO,
            checkpoint: None,
            checkpoint_cost: Time::ZERO,
            saves_on_stop: true,
            speeds: SpeedModel::default(),
            contention: Contention::default(),
            gpu_memory: IdVec::default(),
            slowdowns: Slowdowns::default(),
            interleaving: Ordering::Best,
            failures: Failures::default(),
            seed: 1,
            track: None,
            stop_after_tracked: false,
            check: false,
            segments: 20_000,
            moments: false,
            compat: Compat::Exact,
            synergy: Vec::new(),
        }
    }
}

/// Why a run could not be made, or did not hold its promises.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SimError {
    /// The policy needs to know more than it is told.
    #[error("policy `{policy}` needs to know remaining run times, but the run's knowledge is {given}")]
    NotEnoughKnowledge {
        /// The policy.
        policy: String,
        /// What it needs.
        needs: &'static str,
        /// What it gets.
        given: &'static str,
    },
    /// The workload has no jobs, or none inside `--track`.
    #[error("{0}")]
    Empty(String),
    /// The engine broke a promise.
    #[error("invariant broken at {at_s:.6} s: {what}")]
    Invariant {
        /// When.
        at_s: f64,
        /// What.
        what: String,
    },
    /// A policy asked to be woken at the same moment again and again.
    #[error(
        "policy `{policy}` makes no progress at {at_s:.6} s: it asks to be woken at the same moment for ever"
    )]
    Stuck {
        /// The policy.
        policy: String,
        /// When.
        at_s: f64,
    },
    /// The combination cannot be had.
    #[error("{0}")]
    Unsupported(String),
}

/// A level of knowledge by name.
pub fn knowledge_name(knowledge: Knowledge) -> &'static str {
    match knowledge {
        Knowledge::None => "none",
        Knowledge::Estimate => "estimate",
        Knowledge::Oracle => "oracle",
    }
}
