//! What a run leaves behind: one row per job, a timeline, segments on GPUs, and the summary.
//!
//! The simulator writes these and the report reads them; a live cluster's history has the same shape.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeId};
use crate::units::{Time, Work};

/// The fate of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Its position in the workload.
    pub job: JobId,
    /// GPUs asked for.
    pub gpus: u32,
    /// Work at full speed on those GPUs.
    pub work: Work,
    /// When it came in.
    pub submit: Time,
    /// When it first got its GPUs; none if it never did.
    pub first_start: Option<Time>,
    /// When it was done; none if it did not finish.
    pub finish: Option<Time>,
    /// Time spent holding GPUs.
    pub held: Time,
    /// How often it was stopped while it still had work to do.
    pub preemptions: u32,
    /// Finish-time fairness, ρ: completion time over that on an equal share of the cluster; none if it did not finish.
    pub rho: Option<f64>,
}

impl JobRow {
    /// Completion time: from submission to the end.
    pub fn jct(&self) -> Option<Time> {
        self.finish.map(|f| f - self.submit)
    }

    /// All time it did not hold GPUs.
    pub fn wait(&self) -> Option<Time> {
        self.jct().map(|jct| jct.since(self.held))
    }

    /// Completion time over the time it would have taken alone.
    pub fn slowdown(&self) -> Option<f64> {
        self.jct().map(|jct| jct.0 as f64 / (self.work.0 as f64).max(1.0))
    }
}

/// The cluster over one interval of time. Intervals follow each other without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Start of the interval.
    pub start: Time,
    /// End of the interval.
    pub end: Time,
    /// Mean GPUs in use.
    pub busy_gpus: f64,
    /// Mean GPUs that are up.
    pub up_gpus: f64,
    /// Mean jobs running.
    pub running: f64,
    /// Mean jobs waiting, held ones included.
    pub waiting: f64,
    /// Mean GPUs asked for by waiting jobs.
    pub waiting_gpus: f64,
    /// Mean free GPUs on nodes that are partly used.
    pub fragmented_gpus: f64,
}

/// The cluster right after everything that happens at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// When.
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
    /// Jobs waiting, held ones included.
    pub waiting: u32,
    /// Jobs that hold GPUs.
    pub running: u32,
    /// Jobs that are done.
    pub finished: u64,
}

/// A job on some GPUs of one node for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The job.
    pub job: JobId,
    /// The node.
    pub node: NodeId,
    /// GPU slots of the node.
    pub slots: Vec<u32>,
    /// From when.
    pub start: Time,
    /// Until when.
    pub end: Time,
}

/// How large the cluster was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClusterSize {
    /// Machines.
    pub nodes: u32,
    /// GPUs.
    pub gpus: u32,
}

/// How one tenant fared.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TenantSummary {
    /// The tenant.
    pub tenant: String,
    /// Its jobs.
    pub jobs: u64,
    /// Those that finished.
    pub finished: u64,
    /// Mean completion time.
    pub avg_jct_s: f64,
    /// 99th percentile of completion times.
    pub p99_jct_s: f64,
    /// Mean time without GPUs.
    pub avg_wait_s: f64,
    /// Mean slowdown.
    pub avg_slowdown: f64,
    /// GPU-hours used.
    pub gpu_hours: f64,
}

/// Integer programs that were solved in a run, and how far their answers are from the best at most.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Solved {
    /// How many.
    pub programs: u64,
    /// How many answers are proven best.
    pub exact: u64,
    /// The largest distance of an answer from its bound, in millionths of the bound; zero for those proven best.
    pub worst_gap_ppm: u64,
    /// The mean distance over all of them.
    pub mean_gap_ppm: f64,
}

impl Solved {
    /// One more, whose answer is at most so far from the best.
    pub fn add(&mut self, gap_ppm: u64, exact: bool) {
        self.programs += 1;
        self.exact += u64::from(exact);
        self.worst_gap_ppm = self.worst_gap_ppm.max(gap_ppm);
        self.mean_gap_ppm += (gap_ppm as f64 - self.mean_gap_ppm) / self.programs as f64;
    }

    /// Whether there were none.
    pub fn is_nothing(&self) -> bool {
        self.programs == 0
    }
}

/// The figures of one run, as `summary.json` has them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The policy, with what was replaced in it.
    pub policy: String,
    /// What it was told of remaining run times: none, estimate or oracle.
    pub knowledge: String,
    /// The workload.
    pub trace: String,
    /// The cluster.
    pub cluster: ClusterSize,
    /// The seed.
    pub seed: u64,
    /// Jobs that count (all, or those inside `--track`).
    pub jobs: u64,
    /// Of those, jobs that finished.
    pub finished: u64,
    /// Of those, jobs that were rejected.
    pub rejected: u64,
    /// Mean completion time.
    pub avg_jct_s: f64,
    /// Median completion time.
    pub median_jct_s: f64,
    /// 95th percentile.
    pub p95_jct_s: f64,
    /// 99th percentile.
    pub p99_jct_s: f64,
    /// From the first submission to the last completion.
    pub makespan_s: f64,
    /// Mean time without GPUs.
    pub avg_wait_s: f64,
    /// Median time without GPUs.
    pub median_wait_s: f64,
    /// 95th percentile of it.
    pub p95_wait_s: f64,
    /// 99th percentile of it.
    pub p99_wait_s: f64,
    /// Mean time from submission to the first GPU.
    pub avg_first_start_s: f64,
    /// Mean completion time over run time alone.
    pub avg_slowdown: f64,
    /// Median of it.
    pub median_slowdown: f64,
    /// 95th percentile of it.
    pub p95_slowdown: f64,
    /// 99th percentile of it.
    pub p99_slowdown: f64,
    /// How often jobs were stopped with work left.
    pub preemptions: u64,
    /// GPU time in use over GPU time there was.
    pub gpu_utilization: f64,
    /// Free GPUs on partly used nodes over GPUs there were, averaged over time.
    pub fragmentation: f64,
    /// Mean number of waiting jobs over time.
    #[serde(default)]
    pub avg_queue_length: f64,
    /// Most jobs that ever waited at once.
    #[serde(default)]
    pub max_queue_length: u64,
    /// Mean over time of the waiting jobs' mean time without GPUs over remaining run time.
    #[serde(default)]
    pub blocking_index: f64,
    /// Worst finish-time fairness: completion time over completion time with a 1/n share.
    pub worst_ftf: f64,
    /// Mean of it.
    #[serde(default)]
    pub avg_ftf: f64,
    /// 95th percentile of it.
    #[serde(default)]
    pub p95_ftf: f64,
    /// Share of jobs with finish-time fairness above one.
    pub unfair_share: f64,
    /// Jain's index over the jobs' inverse slowdowns: one is equal.
    pub jain_index: f64,
    /// No schedule of these jobs on so many GPUs can have a lower mean completion time.
    pub lower_bound_avg_jct_s: f64,
    /// Events the simulator handled: arrivals, starts, ends, timers, failures.
    pub events: u64,
    /// Decisions the engine took.
    pub rounds: u64,
    /// Wall time of the run.
    pub wall_ms: f64,
    /// The integer programs behind its decisions, where there were any.
    #[serde(default, skip_serializing_if = "Solved::is_nothing")]
    pub solved: Solved,
    /// Tenant by tenant, where there is more than one.
    pub tenants: Vec<TenantSummary>,
}

/// Everything a report needs of one run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunRecord {
    /// The figures.
    pub summary: Summary,
    /// Jobs that count, in workload order.
    pub rows: Vec<JobRow>,
    /// Names of those jobs in the trace, beside the rows.
    pub job_names: Vec<String>,
    /// Names of their tenants, beside the rows.
    pub tenant_names: Vec<String>,
    /// The cluster over time.
    pub timeline: Vec<TimelinePoint>,
    /// Who held which GPUs; only the first few tens of thousands are kept.
    pub segments: Vec<Segment>,
    /// GPU slots of each node, for the timeline figure.
    pub node_slots: Vec<u32>,
    /// The cluster moment by moment, where the run was asked to keep that.
    #[serde(default)]
    pub moments: Vec<Moment>,
}
