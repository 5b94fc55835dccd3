//! The results of a run: one row per job, a timeline, segments on GPUs, and the summary.
//!
//! The simulator writes them and the report reads them; the history of a live cluster has the same form.

use serde::{Deserialize, Serialize};

use crate::ids::{JobKey, NodeId};
use crate::units::{Time, Work};

/// The result of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Its position in the workload.
    pub job: JobKey,
    /// GPUs asked for.
    pub gpus: u32,
    /// Its work.
    pub work: Work,
    /// When it was submitted.
    pub submit: Time,
    /// When it first got GPUs; none if it never did.
    pub first_start: Option<Time>,
    /// When it finished; none if it did not.
    pub finish: Option<Time>,
    /// Time for which it held GPUs.
    pub held: Time,
    /// How often it was stopped with work left.
    pub preemptions: u32,
    /// Finish-time fairness ρ: completion time divided by the completion time on an equal share of the cluster; none if it
    /// did not finish.
    pub rho: Option<f64>,
}

impl JobRow {
    /// Returns its completion time, from submission to the end.
    pub fn jct(&self) -> Option<Time> {
        self.finish.map(|f| f - self.submit)
    }

    /// Returns the time for which it did not hold GPUs.
    pub fn wait(&self) -> Option<Time> {
        self.jct().map(|jct| jct.since(self.held))
    }

    /// Returns its completion time divided by its run time at full speed.
    pub fn slowdown(&self) -> Option<f64> {
        self.jct().map(|jct| jct.0 as f64 / (self.work.0 as f64).max(1.0))
    }
}

/// The cluster over one interval of time. There are no gaps between intervals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Start of the interval.
    pub start: Time,
    /// End of the interval.
    pub end: Time,
    /// Mean number of GPUs in use.
    pub busy_gpus: f64,
    /// Mean number of GPUs on nodes that are up.
    pub up_gpus: f64,
    /// Mean number of running jobs.
    pub running: f64,
    /// Mean number of waiting jobs, including held ones.
    pub waiting: f64,
    /// Mean number of GPUs asked for by waiting jobs.
    pub waiting_gpus: f64,
    /// Mean number of free GPUs on partly used nodes.
    pub fragmented_gpus: f64,
}

/// The cluster after all events of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// The moment.
    pub at: Time,
    /// Nodes that are up and have no GPU in use.
    pub idle_nodes: u32,
    /// Nodes with some GPUs in use and some free.
    pub busy_nodes: u32,
    /// Nodes with all GPUs in use.
    pub full_nodes: u32,
    /// GPUs that are up and not in use.
    pub idle_gpus: u32,
    /// GPUs in use; shared ones count once.
    pub busy_gpus: u32,
    /// Waiting jobs, including held ones.
    pub waiting: u32,
    /// Jobs that hold GPUs.
    pub running: u32,
    /// Finished jobs.
    pub finished: u64,
}

/// An interval for which a job held GPUs of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The job.
    pub job: JobKey,
    /// The node.
    pub node: NodeId,
    /// GPU slots of the node.
    pub slots: Vec<u32>,
    /// Start of the interval.
    pub start: Time,
    /// End of the interval.
    pub end: Time,
}

/// The size of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClusterSize {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of GPUs.
    pub gpus: u32,
}

/// The results of one tenant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TenantSummary {
    /// The tenant.
    pub tenant: String,
    /// Number of its jobs.
    pub jobs: u64,
    /// Number of its jobs that finished.
    pub finished: u64,
    /// Mean completion time, in seconds.
    pub avg_jct_s: f64,
    /// 99th percentile of completion times, in seconds.
    pub p99_jct_s: f64,
    /// Mean time without GPUs, in seconds.
    pub avg_wait_s: f64,
    /// Mean slowdown.
    pub avg_slowdown: f64,
    /// GPU hours used.
    pub gpu_hours: f64,
}

/// Statistics of the integer programs solved in a run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SolverStats {
    /// Number of programs.
    pub programs: u64,
    /// Number of solutions that are proven optimal.
    pub exact: u64,
    /// Largest gap between a solution and its bound, in millionths of the bound; zero for optimal solutions.
    pub worst_gap_ppm: u64,
    /// Mean gap of all programs, in millionths.
    pub mean_gap_ppm: f64,
}

impl SolverStats {
    /// Adds a program whose solution has at most this gap.
    pub fn add(&mut self, gap_ppm: u64, exact: bool) {
        self.programs += 1;
        self.exact += u64::from(exact);
        self.worst_gap_ppm = self.worst_gap_ppm.max(gap_ppm);
        self.mean_gap_ppm += (gap_ppm as f64 - self.mean_gap_ppm) / self.programs as f64;
    }

    /// Whether no program was solved.
    pub fn is_empty(&self) -> bool {
        self.programs == 0
    }
}

/// The figures of one run, as written to `summary.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The policy, with the parts that were replaced in it.
    pub policy: String,
    /// What the policy knew about remaining run times: none, estimate or oracle.
    pub knowledge: String,
    /// The workload.
    pub trace: String,
    /// The cluster.
    pub cluster: ClusterSize,
    /// The random seed.
    pub seed: u64,
    /// Number of jobs that count (all, or those within `--track`).
    pub jobs: u64,
    /// Of those, jobs that finished.
    pub finished: u64,
    /// Of those, jobs that were rejected.
    pub rejected: u64,
    /// Mean completion time, in seconds.
    pub avg_jct_s: f64,
    /// Median completion time, in seconds.
    pub median_jct_s: f64,
    /// 95th percentile of completion times, in seconds.
    pub p95_jct_s: f64,
    /// 99th percentile of completion times, in seconds.
    pub p99_jct_s: f64,
    /// Time from the first submission to the last completion, in seconds.
    pub makespan_s: f64,
    /// Mean time without GPUs, in seconds.
    pub avg_wait_s: f64,
    /// Median time without GPUs, in seconds.
    pub median_wait_s: f64,
    /// 95th percentile of the time without GPUs, in seconds.
    pub p95_wait_s: f64,
    /// 99th percentile of the time without GPUs, in seconds.
    pub p99_wait_s: f64,
    /// Mean time from submission to the first GPU, in seconds.
    pub avg_first_start_s: f64,
    /// Mean slowdown: completion time divided by run time at full speed.
    pub avg_slowdown: f64,
    /// Median slowdown.
    pub median_slowdown: f64,
    /// 95th percentile of slowdowns.
    pub p95_slowdown: f64,
    /// 99th percentile of slowdowns.
    pub p99_slowdown: f64,
    /// How often jobs were stopped with work left.
    pub preemptions: u64,
    /// GPU time in use divided by GPU time on nodes that were up.
    pub gpu_utilization: f64,
    /// Free GPUs on partly used nodes divided by GPUs on nodes that were up, averaged over time.
    pub fragmentation: f64,
    /// Mean number of waiting jobs over time.
    #[serde(default)]
    pub avg_queue_length: f64,
    /// Largest number of waiting jobs.
    #[serde(default)]
    pub max_queue_length: u64,
    /// Mean over time of the waiting jobs' mean ratio of time without GPUs to remaining run time.
    #[serde(default)]
    pub blocking_index: f64,
    /// Worst finish-time fairness: completion time divided by completion time on an equal share.
    pub worst_ftf: f64,
    /// Mean finish-time fairness.
    #[serde(default)]
    pub avg_ftf: f64,
    /// 95th percentile of finish-time fairness.
    #[serde(default)]
    pub p95_ftf: f64,
    /// Fraction of jobs with finish-time fairness above one.
    pub unfair_share: f64,
    /// Jain's fairness index of the jobs' inverse slowdowns; one if all are equal.
    pub jain_index: f64,
    /// Lower bound of the mean completion time of any schedule of these jobs on this cluster, in seconds.
    pub lower_bound_avg_jct_s: f64,
    /// Number of events the simulator handled: submissions, starts, ends, timers, failures.
    pub events: u64,
    /// Number of decisions of the engine.
    pub rounds: u64,
    /// Wall-clock time of the run, in milliseconds.
    pub wall_ms: f64,
    /// Statistics of the integer programs solved for its decisions, if there were any.
    #[serde(default, skip_serializing_if = "SolverStats::is_empty")]
    pub solved: SolverStats,
    /// Results by tenant, if there is more than one.
    pub tenants: Vec<TenantSummary>,
}

/// Everything a report needs to know about one run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunRecord {
    /// The figures.
    pub summary: Summary,
    /// Jobs that count, in the order of the workload.
    pub rows: Vec<JobRow>,
    /// Names of those jobs in the trace, in the same order.
    pub job_names: Vec<String>,
    /// Names of their tenants, in the same order.
    pub tenant_names: Vec<String>,
    /// The cluster over time.
    pub timeline: Vec<TimelinePoint>,
    /// Which jobs held which GPUs; only the first few tens of thousands are stored.
    pub segments: Vec<Segment>,
    /// Number of GPU slots of each node, for the timeline figure.
    pub node_slots: Vec<u32>,
    /// The cluster at each moment, if the run was asked to record it.
    #[serde(default)]
    pub moments: Vec<Moment>,
}
