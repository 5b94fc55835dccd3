//! Violated invariants.

use std::fmt;

use dovetail_model::{JobKey, NameLookup, NodeId};

/// Jobs in an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobList(pub Vec<JobKey>);

impl fmt::Display for JobList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&keys.join(", "))
    }
}

impl JobList {
    /// Returns the phrases for the jobs: "job 3, job 7".
    fn render(&self, names: &dyn NameLookup) -> String {
        let jobs: Vec<String> = self.0.iter().map(|job| names.job(*job)).collect();
        jobs.join(", ")
    }
}

/// An invariant of the engine that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe variants and fields")]
pub enum CheckError {
    #[error("job {job} has an incomplete gang: {gpus} of {asked} GPUs")]
    IncompleteGang { job: JobKey, gpus: u32, asked: u32 },
    #[error("job {job} has an allocation but was not admitted")]
    NotAdmitted { job: JobKey },
    #[error("job {job} is placed but will never be launched")]
    NeverLaunched { job: JobKey },
    #[error("job {job} runs without an allocation")]
    RunsWithoutAllocation { job: JobKey },
    #[error("{idle} idle jobs and {holding} holders, but {counted_idle} and {counted_holding} were counted")]
    JobCounts {
        idle: u32,
        holding: u32,
        counted_idle: u32,
        counted_holding: u32,
    },
    #[error("job {job} is queued but in no queue")]
    NotQueued { job: JobKey },
    #[error("job {job} is not at the position of its sort key")]
    WrongPosition { job: JobKey },
    #[error("a queue contains a job that is not in the table")]
    UnknownInQueue,
    #[error("job {job} has a task of {gpus_per_task} GPUs on two nodes")]
    SplitTask { job: JobKey, gpus_per_task: u32 },
    #[error("job {job} is on a node that never joined")]
    UnknownNode { job: JobKey },
    #[error("job {job} is on node {node}, which is down")]
    NodeDown { job: JobKey, node: NodeId },
    #[error("jobs {jobs} {are_on} GPU {slot} of node {node}, which allows {max_jobs}")]
    TooManyJobs {
        jobs: JobList,
        are_on: &'static str,
        slot: u32,
        node: NodeId,
        max_jobs: u32,
    },
    #[error("jobs {jobs} {are_on} GPU {slot} of node {node}, but not on the same GPUs")]
    PartlyShared {
        jobs: JobList,
        are_on: &'static str,
        slot: u32,
        node: NodeId,
    },
    #[error("jobs {jobs} {are_on} GPU {slot} of node {node} and use {used_mib} MiB of its {total_mib} MiB")]
    GpuMemoryExceeded {
        jobs: JobList,
        are_on: &'static str,
        slot: u32,
        node: NodeId,
        used_mib: u64,
        total_mib: u64,
    },
    #[error("node {node} has a wrong count of {resource}")]
    NodeCount { node: NodeId, resource: &'static str },
    #[error("node {node} has a wrong count of {resource} on GPU {slot}")]
    GpuCount {
        node: NodeId,
        slot: u32,
        resource: &'static str,
    },
    #[error("node {node} has an unavailable GPU that a job holds")]
    UnavailableGpuHeld { node: NodeId },
    #[error("job {job} is on node {node} without a share of it")]
    NoShare { job: JobKey, node: NodeId },
    #[error("job {job} has less on node {node} than it was promised")]
    BrokenPromise { job: JobKey, node: NodeId },
    #[error("node {node} has granted more CPU or memory than it has left")]
    OverGranted { node: NodeId },
    /// The ledger of the tenancy is inconsistent.
    #[error("{0}")]
    Ledger(String),
}

impl CheckError {
    /// Returns the text for an operator whose change of the policy fails because of running jobs, with the names that users
    /// know. Errors that no change of the policy causes have engine keys.
    pub fn render(&self, names: &dyn NameLookup) -> String {
        match self {
            Self::TooManyJobs {
                jobs,
                are_on,
                slot,
                node,
                max_jobs,
            } => format!(
                "{} {are_on} GPU {slot} of {}, which allows {max_jobs}",
                jobs.render(names),
                names.node(*node)
            ),
            Self::PartlyShared {
                jobs,
                are_on,
                slot,
                node,
            } => format!(
                "{} {are_on} GPU {slot} of {}, but not on the same GPUs",
                jobs.render(names),
                names.node(*node)
            ),
            Self::GpuMemoryExceeded {
                jobs,
                are_on,
                slot,
                node,
                used_mib,
                total_mib,
            } => format!(
                "{} {are_on} GPU {slot} of {} and use {used_mib} MiB of its {total_mib} MiB",
                jobs.render(names),
                names.node(*node)
            ),
            Self::IncompleteGang { job, gpus, asked } => format!(
                "{} runs on {gpus} GPUs, but asks for {asked}, and the policy changes no widths",
                names.job(*job)
            ),
            Self::SplitTask { job, gpus_per_task } => {
                format!(
                    "{} has a task of {gpus_per_task} GPUs on two nodes",
                    names.job(*job)
                )
            }
            Self::BrokenPromise { job, node } => format!(
                "{} has less on {} than it was promised",
                names.job(*job),
                names.node(*node)
            ),
            other => other.to_string(),
        }
    }
}
