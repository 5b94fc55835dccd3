//! The description of a run as plain values.

use std::path::PathBuf;

use dovetail_engine::Knowledge;
use dovetail_policies::Overrides;
use serde::{Deserialize, Serialize};

/// Workload, cluster and settings of a run, as a person writes them. All runs of a comparison have them in common; the
/// policy is not part of it. The names of the fields are the keys of a scenario file, with `-` for `_`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunSpec {
    /// Trace to replay; `None` generates a workload.
    pub trace: Option<PathBuf>,
    /// Format of the trace; `None` detects it.
    pub trace_format: Option<String>,
    /// Generator of the workload.
    pub generate: Option<String>,
    /// Number of jobs to generate, or to keep from the start of a trace.
    pub jobs: Option<u64>,
    /// Mean arrival rate of generated jobs; rescales the arrivals of a trace.
    pub jobs_per_hour: Option<f64>,
    /// Mean requested GPUs as a multiple of the cluster's GPUs, instead of an arrival rate.
    pub load: Option<f64>,
    /// Range of the GPUs of elastic jobs, in multiples of the requested GPUs: `0.5..4`.
    pub elastic: Option<String>,
    /// Parallel fraction of an elastic job's work, by Amdahl's law.
    pub parallel_share: Option<f64>,
    /// Seed of the random number generators.
    pub seed: Option<u64>,
    /// Cluster: `32x4` (nodes x GPUs), `pool:534` (GPUs without nodes), or a file.
    pub cluster: Option<String>,
    /// CSV file of outages.
    pub failures: Option<PathBuf>,
    /// Mean time between failures of a node, as a span of time.
    pub mtbf: Option<String>,
    /// Duration of a random outage, as a span of time.
    pub repair: Option<String>,
    /// Which jobs are admitted to the queue.
    pub admission: Option<String>,
    /// How the queue is sorted.
    pub order: Option<String>,
    /// How the queue is walked, and whether running jobs are preempted.
    pub discipline: Option<String>,
    /// How many GPUs, and how much CPU and memory, each job gets.
    pub sizing: Option<String>,
    /// Which jobs share the same GPUs.
    pub grouping: Option<String>,
    /// Which GPUs a job gets.
    pub placement: Option<String>,
    /// What each tenant may use: a part, `quota:FILE` or `cells:FILE`.
    pub tenancy: Option<String>,
    /// What the policy knows about remaining time; `None` for what it needs.
    pub knowledge: Option<Knowledge>,
    /// Standard deviation of the logarithm of estimates.
    pub estimate_error: Option<f64>,
    /// When decisions are made: `events`, or `rounds:300s`.
    pub clock: Option<String>,
    /// Time that a preempted job needs to restart, as a span of time.
    pub restart_cost: Option<String>,
    /// Interval between checkpoints, as a span of time.
    pub checkpoint: Option<String>,
    /// Duration of a checkpoint, as a span of time.
    pub checkpoint_cost: Option<String>,
    /// Speed of a job that spans several nodes, relative to full speed.
    pub spread_penalty: Option<String>,
    /// Speeds of models across nodes and on each GPU type: `builtin`, or a YAML file.
    pub profiles: Option<String>,
    /// Speeds of models by CPU and memory: the name of a table, a YAML file, or `none`.
    pub sensitivity: Option<String>,
    /// The system whose results are reproduced, including its quirks.
    pub compat: Option<ReferenceSystem>,
    /// Average only over jobs with ids in this range: `0..99`.
    pub track: Option<String>,
    /// Check the engine's invariants after every step.
    pub check: bool,
    /// Record the state of the cluster at every event, which the result files of other systems need.
    #[serde(skip)]
    pub moments: bool,
}

/// A simulator whose results can be reproduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReferenceSystem {
    /// Blox (EuroSys'24).
    Blox,
    /// Muri's simulator (SIGCOMM'22).
    Muri,
    /// Synergy's simulator (OSDI'22).
    Synergy,
}

impl RunSpec {
    /// Returns the seed, 1 by default.
    pub fn seed_or_default(&self) -> u64 {
        self.seed.unwrap_or(1)
    }

    /// Returns the parts that replace those of the preset.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            admission: self.admission.clone(),
            order: self.order.clone(),
            discipline: self.discipline.clone(),
            sizing: self.sizing.clone(),
            grouping: self.grouping.clone(),
            placement: self.placement.clone(),
            tenancy: self.tenancy.clone(),
            ..Overrides::default()
        }
    }
}
