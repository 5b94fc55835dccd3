//! Why a job is where it is, and what would become of one that is not there yet.

use std::collections::BTreeMap;

use dovetail_engine::feasibility::{NodeScope, never_fits};
use dovetail_engine::{Explanation, QueuePositions};
use dovetail_model::ids::Id;
use dovetail_model::{Allocation, Command, Event, GpuTypeId, JobKey, JobSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterState, Hold, JobState};
use crate::JobId;
use crate::request::JobRequest;

/// Why a job is where it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobExplanation {
    /// In one sentence.
    pub sentence: String,
    /// What stands in its way, first things first.
    pub reasons: Vec<String>,
    /// How many jobs stand in line before it.
    pub ahead: u32,
    /// The reasons that follow from the state of the cluster, for programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<Blocker>,
}

/// Something that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blocker {
    /// A word that does not change, such as `not-enough-free-gpus`.
    pub code: String,
    /// In a sentence.
    pub text: String,
    /// Its numbers.
    pub numbers: serde_json::Value,
}

/// `NotEnoughFreeGpus` as `not-enough-free-gpus`.
fn kebab(name: &str) -> String {
    let mut code = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !code.is_empty() {
            code.push('-');
        }
        code.push(letter.to_ascii_lowercase());
    }
    code
}

/// GPUs on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeSlots {
    /// The node.
    pub node: String,
    /// Its GPU slots.
    pub gpus: Vec<u32>,
}

/// What would become of a job if it were sent now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmissionPreview {
    /// It would start at once.
    pub starts_now: bool,
    /// Where it would start, now or when those in its way have stopped.
    pub placement: Vec<NodeSlots>,
    /// Jobs that would be stopped for it.
    pub preempts: Vec<JobId>,
    /// Why it would wait.
    pub explanation: JobExplanation,
}

impl ClusterState {
    /// GPUs by the names of their nodes.
    pub fn node_slots(&self, allocation: &Allocation) -> Vec<NodeSlots> {
        let seats = |share: &dovetail_model::NodeShare| NodeSlots {
            node: self
                .node(share.node)
                .map(|n| n.spec.name.clone())
                .unwrap_or_default(),
            gpus: share.gpus.iter().collect(),
        };
        allocation.shares.iter().map(seats).collect()
    }

    /// Jobs that stand in line, in its order.
    pub fn queue(&self) -> Vec<&super::JobRecord> {
        let numbers = self
            .engine
            .queue()
            .into_iter()
            .map(|job_key| self.job_ids[job_key]);
        numbers.filter_map(|no| self.job(no)).collect()
    }

    /// Returns the positions of all queued jobs, for [`ClusterState::explain_at`].
    pub fn queue_positions(&self) -> QueuePositions {
        self.engine.queue_positions()
    }

    /// Why the job is where it is; none if there is no such job.
    pub fn explain(&self, no: JobId) -> Option<JobExplanation> {
        self.explain_by(no, |job_key| self.engine.explain(job_key))
    }

    /// Returns the same as [`ClusterState::explain`] by positions that were taken before: many jobs are explained without
    /// sorting the queue for each.
    pub fn explain_at(&self, no: JobId, positions: &QueuePositions) -> Option<JobExplanation> {
        self.explain_by(no, |job_key| self.engine.explain_at(job_key, positions))
    }

    fn explain_by(&self, no: JobId, explain: impl FnOnce(JobKey) -> Explanation) -> Option<JobExplanation> {
        let record = self.job(no)?;
        let plain = |sentence: String| JobExplanation {
            sentence,
            ..JobExplanation::default()
        };
        Some(match &record.state {
            JobState::Held(Hold::User(by)) => {
                plain(format!("{by} wants it to wait; `release` lets it go on"))
            }
            JobState::Held(Hold::After(jobs)) => {
                let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
                plain(format!("it waits for the end of job {}", jobs.join(", ")))
            }
            JobState::Held(Hold::Cap) => plain(format!(
                "{} has or stands in line for {} GPUs in virtual cluster {}, where one user may have {}",
                record.user,
                self.in_use_beside(record),
                record.request.tenant,
                self.cluster_of(no)
                    .and_then(|c| c.user_cap_gpus)
                    .unwrap_or_default(),
            )),
            JobState::Held(Hold::Workload) => plain(
                "what it consists of is gone, and is being made anew by whoever looks after it".to_owned(),
            ),
            JobState::Held(Hold::Array) => plain("as many jobs of its array are up as may be".to_owned()),
            JobState::Ended(end) if end.sentence().is_empty() => plain(format!("it is over: {}", end.word())),
            JobState::Ended(end) => plain(format!("it is over: {}: {}", end.word(), end.sentence())),
            JobState::Stopping(cause) => plain(format!("it was told to stop: {}", cause.sentence(self))),
            JobState::Queued | JobState::Starting | JobState::Running => {
                self.why_in_line(&self.engine, explain(record.job_key?))
            }
        })
    }

    fn blocker(&self, reason: &dovetail_model::Reason) -> Blocker {
        let (name, numbers) = match serde_json::to_value(reason) {
            Ok(serde_json::Value::Object(one)) => one.into_iter().next().unwrap_or_default(),
            Ok(serde_json::Value::String(name)) => (name, serde_json::Value::Null),
            _ => Default::default(),
        };
        Blocker {
            code: kebab(&name),
            text: self.reason(reason),
            numbers,
        }
    }

    fn why_in_line(&self, engine: &dovetail_engine::Engine, explanation: Explanation) -> JobExplanation {
        match explanation {
            Explanation::Unknown => JobExplanation::default(),
            Explanation::Running { gpus, nodes, .. } => JobExplanation {
                sentence: format!("it has {gpus} GPUs on {nodes} nodes"),
                ..JobExplanation::default()
            },
            Explanation::Stopping => JobExplanation {
                sentence: "it was told to stop".to_owned(),
                ..JobExplanation::default()
            },
            Explanation::Waiting { reasons, ahead, .. } => {
                let blockers = reasons.iter().map(|r| self.blocker(r)).collect();
                let mut reasons: Vec<String> = reasons.iter().map(|r| self.reason(r)).collect();
                if engine.is_paused() {
                    reasons.insert(0, "scheduling is paused: an operator has to resume it".to_owned());
                }
                if self.nodes().all(|(_, n)| n.state == super::NodeState::Lost) {
                    reasons.insert(0, "no node is connected".to_owned());
                }
                JobExplanation {
                    sentence: "it stands in line".to_owned(),
                    reasons,
                    ahead,
                    blockers,
                }
            }
        }
    }

    /// Whether what its virtual cluster is promised could ever hold the job.
    ///
    /// # Errors
    /// Says what it asks for and what is promised.
    pub fn could_ever_run(&self, request: &JobRequest) -> Result<(), String> {
        if self.virtual_clusters().mode == crate::GuaranteeMode::Open {
            return Ok(());
        }
        let mut names = self.names.clone();
        let job_key = JobKey::from_index(self.job_ids.len());
        let spec = Self::spec(&mut names, "", request, self.now, job_key);
        let verdict = self.engine.policy().tenancy.clone().check_feasible(&spec);
        verdict.map_err(|reason| format!("gpus: {}", self.reason(&reason)))
    }

    /// Checks whether the available nodes could run the job if they were empty.
    ///
    /// # Errors
    /// Names what the job asks for and what the nodes have.
    pub(crate) fn fits_when_empty(&self, request: &JobRequest) -> Result<(), String> {
        let cluster = self.engine.cluster();
        let mut nodes = cluster.nodes();
        if !nodes.any(|(_, n)| n.up && n.admits(request.constraint)) {
            return Ok(());
        }
        let gpu_type = match &request.gpu_type {
            None => None,
            Some(name) => Some(self.gpu_type_of_nodes(name)?),
        };
        let spec = JobSpec {
            min_gpus: request.min_gpus.unwrap_or(request.gpus),
            gpu_type,
            cpu_milli_per_gpu: request.cpus_per_gpu.milli(),
            memory_mib_per_gpu: request.memory_mib_per_gpu,
            constraint: request.constraint,
            gpu_memory_mib: request.gpu_memory_mib,
            gpus_per_task: request.gpus_per_task,
            ..JobSpec::new(JobKey(0), request.gpus)
        };
        match never_fits(&spec, cluster, NodeScope::Up) {
            None => Ok(()),
            Some(reason) => Err(format!(
                "gpus: {}; ask for fewer, for another gpu_type, or for less CPU and memory",
                self.reason(&reason)
            )),
        }
    }

    /// Returns the GPU type with this name, or an error that lists the types of all available nodes.
    fn gpu_type_of_nodes(&self, name: &str) -> Result<GpuTypeId, String> {
        let mut available: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, node) in self.nodes().filter(|(_, n)| n.state != super::NodeState::Lost) {
            if node.gpu_type == name {
                return Ok(node.spec.gpu_type);
            }
            *available.entry(&node.gpu_type).or_default() += node.spec.gpus;
        }
        let available: Vec<String> = available
            .iter()
            .map(|(name, gpus)| format!("{name} ({gpus})"))
            .collect();
        Err(format!(
            "gpu_type: no GPU of type `{name}` in this cluster; available: {}",
            available.join(", ")
        ))
    }

    /// What would become of a job if it were sent now. Nothing is changed.
    pub fn preview_submission(&self, user: &str, request: &JobRequest) -> SubmissionPreview {
        let mut names = self.names.clone();
        let job_key = JobKey::from_index(self.job_ids.len());
        let spec = Self::spec(&mut names, user, request, self.now, job_key);
        let mut engine = self.engine.clone();
        engine.handle(self.now, Event::Submitted(spec));
        let (mut stops, mut seats, mut starts_now, mut rejected) = (Vec::new(), Vec::new(), false, None);
        while let Some(command) = engine.poll() {
            match command {
                Command::Launch { job, allocation, .. } if job == job_key => {
                    seats = self.node_slots(&allocation);
                    starts_now = true;
                }
                Command::Stop { job, .. } => stops.push(self.job_ids[job]),
                Command::Reject { job, reason } if job == job_key => rejected = Some(self.reason(&reason)),
                Command::Launch { .. } | Command::Resize { .. } | Command::Reject { .. } => {}
            }
        }
        if let Some(job) = engine.job(job_key).filter(|_| !starts_now) {
            seats = job.allocation.as_ref().map_or(Vec::new(), |a| self.node_slots(a));
        }
        let mut why = match starts_now {
            true => JobExplanation::default(),
            false => self.why_in_line(&engine, engine.explain(job_key)),
        };
        why.reasons.extend(rejected);
        SubmissionPreview {
            starts_now,
            placement: seats,
            preempts: stops,
            explanation: why,
        }
    }
}
