//! A job as a person asks for it.

use std::collections::BTreeMap;

use dovetail_model::{NodeConstraintId, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::JobId;
use crate::amounts::{Cpus, seconds};
use crate::roles::Role;
use crate::tell::JobNotifications;

/// How many processes a task has on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Processes {
    /// One on each node.
    #[default]
    PerNode,
    /// One for each GPU, as `torchrun` would start them.
    PerGpu,
    /// One on the first node, which starts the others itself, as `mpirun` does.
    FirstNode,
}

/// How often a job is started again, by what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retries {
    /// Its own fault: an exit code other than zero, or out of memory.
    pub user: u32,
    /// The platform's fault: a task that could not be started, or was killed by nobody knows whom.
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

/// When a job may start that waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AfterWhen {
    /// The other has completed. If it fails, this one is cancelled.
    #[default]
    Ok,
    /// The other is over, however it went.
    Any,
    /// The other has failed. If it completes, this one is cancelled.
    NotOk,
}

/// A job to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// Its number.
    pub job: JobId,
    /// How it must have ended.
    #[serde(default)]
    pub when: AfterWhen,
}

/// A place in an array of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayPart {
    /// The first job of the array.
    pub array: JobId,
    /// Its index in the array.
    pub index: u32,
    /// So many of the array run at once at most.
    #[serde(default)]
    pub at_most: Option<u32>,
}

/// What a person asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobRequest {
    /// A name; several jobs may have the same.
    pub name: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Where it runs; empty for the agent's own folder for the job.
    pub workdir: String,
    /// Variables on top of those the agent gives.
    pub env: BTreeMap<String, String>,
    /// The tenant that pays.
    pub tenant: String,
    /// The gang: so many GPUs at once, or nothing.
    pub gpus: u32,
    /// As few as this, for jobs that can shrink.
    pub min_gpus: Option<u32>,
    /// As many as this, for jobs that can grow.
    pub max_gpus: Option<u32>,
    /// Only this kind of GPU.
    pub gpu_type: Option<String>,
    /// Only on the nodes within this fence: for drivers that know where a job may be, and not for people.
    #[serde(skip)]
    pub constraint: Option<NodeConstraintId>,
    /// Only on what others leave: for drivers whose jobs grow by jobs, and not for people.
    #[serde(skip)]
    pub spare: bool,
    /// Memory it fills on each GPU, in MiB.
    pub gpu_memory_mib: u64,
    /// CPU beside each GPU.
    #[schemars(with = "f64")]
    pub cpus_per_gpu: Cpus,
    /// Memory beside each GPU, in MiB.
    pub memory_mib_per_gpu: u64,
    /// Larger is more urgent.
    pub priority: i32,
    /// Processes on each node.
    pub processes: Processes,
    /// It is stopped after so many seconds of running.
    #[serde(rename = "time_limit_s", with = "seconds::optional")]
    #[schemars(with = "Option<f64>")]
    pub time_limit: Option<Time>,
    /// How long it will run on the GPUs it asks for, as its owner thinks.
    #[serde(rename = "expected_s", with = "seconds::optional")]
    #[schemars(with = "Option<f64>")]
    pub expected: Option<Time>,
    /// Seconds between the notice to stop and the kill.
    #[serde(rename = "grace_s", with = "seconds")]
    #[schemars(with = "f64")]
    pub grace: Time,
    /// How often it is started again.
    pub retries: Retries,
    /// Jobs it waits for.
    pub after: Vec<After>,
    /// Marks of its owner.
    pub labels: BTreeMap<String, String>,
    /// It waits until it is released.
    pub hold: bool,
    /// The account it runs as on the nodes, where the agent may.
    pub run_as: Option<String>,
    /// Its place in an array.
    pub array: Option<ArrayPart>,
    /// Only its owner and administrators see it.
    pub private: bool,
    /// How its owner is told of it; what is left out is as the owner has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<JobNotifications>,
    /// Processes that do different things, each with GPUs of its own; none: one command for the whole gang.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// Whether all instances of its roles start together; else each is a job of an array.
    #[serde(skip_serializing_if = "is_true")]
    pub gang: bool,
    /// GPUs that have to be on one node.
    #[serde(skip_serializing_if = "is_one")]
    pub gpus_per_task: u32,
    /// What stands for `<% $secrets.NAME %>` in its commands; never shown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// The file it was sent as, if it was another kind of file; without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What was left out of that file, or is not quite the same here.
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
            spare: false,
            gpu_memory_mib: 0,
            cpus_per_gpu: Cpus::ZERO,
            memory_mib_per_gpu: 0,
            priority: 0,
            processes: Processes::default(),
            time_limit: None,
            expected: None,
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

/// The longest span a job may name: ten years.
const LONGEST_SPAN: Time = Time::from_secs(315_576_000);
/// The longest grace period: a day.
const LONGEST_GRACE: Time = Time::from_secs(86_400);
/// The most CPU beside one GPU.
pub(crate) const MOST_CPUS: Cpus = Cpus::from_milli(100_000_000);

impl JobRequest {
    /// What the book has to know of a job whose parts others make: they look after its roles, its retries and its secrets.
    #[must_use]
    pub fn with_external_workload(mut self) -> Self {
        if let Some(first) = self.roles.first() {
            self.command = first.command.clone();
        }
        self.roles.clear();
        self.secrets.clear();
        (self.gang, self.time_limit) = (true, None);
        self.retries = Retries {
            user: 0,
            platform: 0,
            node: u32::MAX,
        };
        self
    }

    /// Checks what can be checked without knowing the cluster.
    ///
    /// # Errors
    /// Names the field and what would be accepted.
    pub fn validate(&self) -> Result<(), String> {
        let bad = |field: &str, what: &str| Err(format!("{field}: {what}"));
        if !self.roles.is_empty() {
            self.check_roles()?;
            let mut sized = self.clone();
            if self.gang {
                sized.size_by_roles()?;
            }
            if (sized.gpus, sized.gpus_per_task) != (self.gpus, self.gpus_per_task) {
                return bad(
                    "gpus",
                    &format!("its roles ask for {} together, not {}", sized.gpus, self.gpus),
                );
            }
            if self.min_gpus.is_some() || self.max_gpus.is_some() {
                return bad("min_gpus, max_gpus", "a job with roles has the size of its roles");
            }
        } else if self.command.first().is_none_or(String::is_empty) {
            return bad(
                "command",
                "a program and its arguments are needed, such as [python3, train.py]",
            );
        }
        if self.gpus == 0 || self.gpus > 1_000_000 {
            return bad("gpus", "must be from 1 to 1000000");
        }
        if self.gpus_per_task == 0 || self.gpus_per_task > self.gpus {
            return bad(
                "gpus_per_task",
                &format!("must be from 1 to gpus, which is {}", self.gpus),
            );
        }
        let (least, most) = (
            self.min_gpus.unwrap_or(self.gpus),
            self.max_gpus.unwrap_or(self.gpus),
        );
        if least == 0 || least > self.gpus || most < self.gpus {
            return bad(
                "min_gpus, max_gpus",
                &format!(
                    "must have 1 <= min_gpus <= gpus <= max_gpus, but are {least}, {} and {most}",
                    self.gpus
                ),
            );
        }
        if self.tenant.is_empty() {
            return bad("tenant", "must not be empty");
        }
        if !(Cpus::ZERO..=MOST_CPUS).contains(&self.cpus_per_gpu) {
            return bad("cpus_per_gpu", "must be from 0 to 100000");
        }
        let spans = [("time_limit_s", self.time_limit), ("expected_s", self.expected)];
        for (field, span) in spans {
            if span.is_some_and(|s| !(s > Time::ZERO && s <= LONGEST_SPAN)) {
                return bad(field, "must be more than 0 and at most ten years, in seconds");
            }
        }
        if !(Time::ZERO..=LONGEST_GRACE).contains(&self.grace) {
            return bad("grace_s", "must be from 0 to 86400 seconds");
        }
        if let Some(name) = self
            .env
            .keys()
            .find(|k| k.is_empty() || k.contains('=') || k.contains('\0'))
        {
            return bad("env", &format!("{name:?} is not the name of a variable"));
        }
        if let Some(notify) = &self.notify {
            notify.validate().map_err(|e| format!("notify.{e}"))?;
        }
        let has_nul = |s: &String| s.contains('\0');
        if self.command.iter().any(has_nul) || self.env.values().any(has_nul) || has_nul(&self.workdir) {
            return bad("command, env, workdir", "must not contain a zero byte");
        }
        Ok(())
    }
}
