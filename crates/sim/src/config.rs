//! Configuration of a run, besides its workload and policy.

use std::collections::BTreeMap;

use dovetail_engine::{Clock, Knowledge};
use dovetail_model::stages::{Contention, Ordering};
use dovetail_model::{ClusterSpec, IdVec, ModelId, Rate, Slowdowns, Stages, Time};
use dovetail_policies::order::SynergyFacts;
use thiserror::Error;

use crate::failures::Failures;
use crate::speed::SpeedModel;

/// Quirks of a reference system that are not decisions: how progress is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compat {
    /// No quirks: exact completion times.
    #[default]
    Exact,
    /// Blox: only whole rounds of progress count, at this speed, so completions fall on round boundaries.
    Blox {
        /// Progress per time.
        speed: Rate,
    },
    /// Muri's simulator: iterations between events, each interval reduced by a start-up time.
    Muri(MuriTime),
    /// Synergy's simulator: the whole iterations of a round, credited when it begins.
    Synergy {
        /// Whether jobs run at the speed of their proportional share whatever they hold.
        fair: bool,
    },
}

/// Which jobs slow each other down in Muri's simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MuriTime {
    /// None: jobs have exclusive GPUs, and nearly equal completion times are one event.
    Alone,
    /// None, and only equal completion times are one event.
    Queues,
    /// Groups take the period of their interleaving.
    Groups {
        /// Whether the queue is ordered by attained service, not by remaining work: it decides with which completion
        /// others are merged.
        attained: bool,
    },
    /// Guaranteed jobs are not slowed down; opportunistic ones fill the gaps of those they share GPUs with.
    Guaranteed,
}

/// Configuration of a run.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// The cluster.
    pub cluster: ClusterSpec,
    /// When decisions are made.
    pub clock: Clock,
    /// What the policy may know of remaining work; `None` for what the policy needs.
    pub knowledge: Option<Knowledge>,
    /// Standard deviation of the logarithm of estimates around the true value, for knowledge `estimate`.
    pub estimate_error: f64,
    /// Time from a launch to the first progress of a job that was started before.
    pub restart_cost: Time,
    /// Checkpoint interval of jobs whose trace has none; `None` keeps all work, even on a lost node.
    pub checkpoint: Option<Time>,
    /// Duration of each checkpoint.
    pub checkpoint_cost: Time,
    /// Whether a job that is asked to stop saves its work first; otherwise it loses the work since its last checkpoint,
    /// or all of it if it writes none.
    pub saves_on_stop: bool,
    /// Time from the command to stop until the GPUs are vacated.
    pub stop_cost: Time,
    /// Whether jobs with a number of iterations report them, as they do on a live cluster: the policy learns how fast they are
    /// compared with the run time that it expects.
    pub reports_steps: bool,
    /// Speed of jobs by allocation.
    pub speeds: SpeedModel,
    /// How much longer an iteration takes on shared GPUs.
    pub contention: Contention,
    /// Memory a model uses on each GPU, in MiB, for jobs whose trace has none; zero where unknown.
    pub gpu_memory: IdVec<ModelId, u64>,
    /// Stages of a step by model and number of GPUs, for jobs whose trace does not state them.
    pub stages: BTreeMap<(ModelId, u32), Stages>,
    /// Measured slowdowns of pairs of models on shared GPUs.
    pub slowdowns: Slowdowns,
    /// How jobs on shared GPUs are offset in time.
    pub interleaving: Ordering,
    /// Node failures.
    pub failures: Failures,
    /// Seed of all random draws.
    pub seed: u64,
    /// Averages cover only jobs at these positions of the workload, both ends included.
    pub track: Option<(u32, u32)>,
    /// Whether the run ends as soon as all tracked jobs have finished, even if others still run or arrive.
    pub stop_after_tracked: bool,
    /// Whether every invariant is checked after every step.
    pub check: bool,
    /// Maximum number of pieces of the GPU timeline.
    pub segments: usize,
    /// Whether the state of the cluster is recorded at every event.
    pub moments: bool,
    /// Quirks of a reference system.
    pub compat: Compat,
    /// Each job's data from Synergy's profiles; empty except under its compat mode.
    pub synergy: Vec<SynergyFacts>,
}

impl SimConfig {
    /// Returns a plain run on this cluster: events clock, no restart cost, no failures.
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
            stop_cost: Time::ZERO,
            reports_steps: false,
            speeds: SpeedModel::default(),
            contention: Contention::default(),
            gpu_memory: IdVec::default(),
            stages: BTreeMap::new(),
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

/// Why a run could not be configured, or failed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SimError {
    /// The policy needs more knowledge than the run gives.
    #[error("policy `{policy}` needs remaining run times, but the run's knowledge is {given}")]
    NotEnoughKnowledge {
        /// The policy.
        policy: String,
        /// Required knowledge.
        needs: &'static str,
        /// Knowledge of the run.
        given: &'static str,
    },
    /// The workload has no jobs, or none inside `--track`.
    #[error("{0}")]
    Empty(String),
    /// The engine violated an invariant.
    #[error("invariant violated at {at_s:.6} s: {violation}")]
    Invariant {
        /// Simulated time, in seconds.
        at_s: f64,
        /// The violation.
        violation: String,
    },
    /// A policy asked to be woken at the same moment repeatedly.
    #[error(
        "policy `{policy}` makes no progress at {at_s:.6} s: it repeatedly asks to be woken at the same moment"
    )]
    Stuck {
        /// The policy.
        policy: String,
        /// Simulated time, in seconds.
        at_s: f64,
    },
    /// The combination is not supported.
    #[error("{0}")]
    Unsupported(String),
}

/// Returns the name of a level of knowledge.
pub fn knowledge_name(knowledge: Knowledge) -> &'static str {
    match knowledge {
        Knowledge::None => "none",
        Knowledge::Estimate => "estimate",
        Knowledge::Predicted => "predicted",
        Knowledge::Oracle => "oracle",
    }
}
