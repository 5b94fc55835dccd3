//! Job requests: what users submit.

mod behaviour;
mod error;
mod gang;
mod roles;
mod validate;

use std::collections::BTreeMap;

use dovetail_model::{NodeConstraintId, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::JobId;
use crate::amounts::{Cpus, seconds};
use crate::notifications::JobNotifications;

pub use behaviour::{Behaviour, Deadline, Speeds, StageTimes};
pub use error::{RequestError, RoleError};
pub(crate) use gang::take_resources;
pub use gang::{GangRequest, PodSet, has_resources_of};
pub use roles::{Instance, Role, place_tasks};

/// Where the processes of a job run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Processes {
    /// One process on each node.
    #[default]
    PerNode,
    /// One process for each GPU, like `torchrun`.
    PerGpu,
    /// One process on the first node, which starts the others itself, like `mpirun`.
    FirstNode,
}

/// Number of times a job is retried, by the cause of the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retries {
    /// The job failed: an exit code other than zero, or out of memory.
    pub user: u32,
    /// The platform failed: a task could not be started, or was killed from outside.
    pub platform: u32,
    /// A node was lost.
    pub node: u32,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            user: 0,
            platform: 3,
            node: 10,
        }
    }
}

/// How a job must have ended before a dependent job is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AfterWhen {
    /// It must have completed. If it fails, the dependent job is cancelled.
    #[default]
    Ok,
    /// It must have ended in any way.
    Any,
    /// It must have failed. If it completes, the dependent job is cancelled.
    NotOk,
}

/// A dependency on another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// Number of the other job.
    pub job: JobId,
    /// How the other job must have ended.
    #[serde(default)]
    pub when: AfterWhen,
}

/// Position of a job in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayPart {
    /// Number of the first job of the array.
    pub array: JobId,
    /// Index in the array.
    pub index: u32,
    /// Largest number of jobs of the array that run at once.
    #[serde(default)]
    pub at_most: Option<u32>,
}

/// A request to run a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobRequest {
    /// Name; need not be unique.
    pub name: String,
    /// Command and arguments.
    pub command: Vec<String>,
    /// Working directory; empty for the folder the agent creates for the job.
    pub workdir: String,
    /// Environment variables, in addition to those the agent sets.
    pub env: BTreeMap<String, String>,
    /// Virtual cluster the job belongs to.
    pub tenant: String,
    /// Number of GPUs, which are allocated all at once.
    pub gpus: u32,
    /// Smallest number of GPUs, for jobs that can shrink.
    pub min_gpus: Option<u32>,
    /// Largest number of GPUs, for jobs that can grow.
    pub max_gpus: Option<u32>,
    /// Type of GPU the job needs.
    pub gpu_type: Option<String>,
    /// Nodes the job is limited to; set by drivers, not by users.
    #[serde(skip)]
    pub constraint: Option<NodeConstraintId>,
    /// Whether the job only uses GPUs that no other job needs; set by drivers, not by users.
    #[serde(skip)]
    pub best_effort: bool,
    /// GPU memory it needs on each GPU, in MiB.
    pub gpu_memory_mib: u64,
    /// CPU cores for each GPU.
    #[schemars(with = "f64")]
    pub cpus_per_gpu: Cpus,
    /// Memory for each GPU, in MiB.
    pub memory_mib_per_gpu: u64,
    /// Priority; jobs with a larger value are ahead in the queue.
    pub priority: i32,
    /// Where its processes run.
    pub processes: Processes,
    /// Time after which it is stopped, in seconds of running.
    #[serde(rename = "time_limit_s", with = "seconds::optional")]
    #[schemars(with = "Option<f64>")]
    pub time_limit: Option<Time>,
    /// Expected run time on the requested GPUs, in seconds.
    #[serde(rename = "expected_s", with = "seconds::optional")]
    #[schemars(with = "Option<f64>")]
    pub expected: Option<Time>,
    /// Name of the model it trains. Jobs of one model share what is measured about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Number of steps in total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_steps: Option<u64>,
    /// Stages of one iteration, alone, in seconds.
    #[serde(rename = "stages_s", skip_serializing_if = "Option::is_none")]
    pub stages: Option<StageTimes>,
    /// Speeds by number of GPUs, relative to one another.
    #[serde(skip_serializing_if = "Speeds::is_empty")]
    #[schemars(with = "BTreeMap<u32, f64>")]
    pub scaling: Speeds,
    /// When it should have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// Seconds between the request to stop and the kill.
    #[serde(rename = "grace_s", with = "seconds")]
    #[schemars(with = "f64")]
    pub grace: Time,
    /// Number of retries.
    pub retries: Retries,
    /// Jobs that must end before it is queued.
    pub after: Vec<After>,
    /// Labels set by its owner.
    pub labels: BTreeMap<String, String>,
    /// Whether it is held until it is released.
    pub hold: bool,
    /// System account it runs as on the nodes, if agents are allowed to change accounts.
    pub run_as: Option<String>,
    /// Position in an array.
    pub array: Option<ArrayPart>,
    /// Whether only its owner and administrators see it.
    pub private: bool,
    /// Notifications to its owner; what is left out follows the owner's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<JobNotifications>,
    /// Roles with commands and resources of their own; empty for one command for the whole gang.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// Whether all instances of its roles start together; otherwise each one is a job of an array.
    #[serde(skip_serializing_if = "is_true")]
    pub gang: bool,
    /// Number of GPUs that must be on the same node.
    #[serde(skip_serializing_if = "is_one")]
    pub gpus_per_task: u32,
    /// Values of `<% $secrets.NAME %>` in its commands; never shown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Job file it was converted from, without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Remarks about parts of that file that were ignored or differ here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

fn is_true(flag: &bool) -> bool {
    *flag
}

fn is_one(gpus: &u32) -> bool {
    *gpus == 1
}

impl Default for JobRequest {
    fn default() -> Self {
        Self {
            name: String::new(),
            command: Vec::new(),
            workdir: String::new(),
            env: BTreeMap::new(),
            tenant: "default".to_owned(),
            gpus: 1,
            min_gpus: None,
            max_gpus: None,
            gpu_type: None,
            constraint: None,
            best_effort: false,
            gpu_memory_mib: 0,
            cpus_per_gpu: Cpus::ZERO,
            memory_mib_per_gpu: 0,
            priority: 0,
            processes: Processes::default(),
            time_limit: None,
            expected: None,
            model: None,
            total_steps: None,
            stages: None,
            scaling: Speeds::default(),
            deadline: None,
            grace: Time::from_secs(30),
            retries: Retries::default(),
            after: Vec::new(),
            labels: BTreeMap::new(),
            hold: false,
            run_as: None,
            array: None,
            private: false,
            notify: None,
            roles: Vec::new(),
            gang: true,
            gpus_per_task: 1,
            secrets: BTreeMap::new(),
            file: None,
            remarks: Vec::new(),
        }
    }
}
