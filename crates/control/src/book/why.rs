//! Why a job is where it is, and what would become of one that is not there yet.

use dovetail_engine::Explanation;
use dovetail_model::ids::Id;
use dovetail_model::{Allocation, Command, Event, JobId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Book, Hold, JobState};
use crate::JobNo;
use crate::request::JobRequest;

/// Why a job is where it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Why {
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
pub struct Seats {
    /// The node.
    pub node: String,
    /// Its GPU slots.
    pub gpus: Vec<u32>,
}

/// What would become of a job if it were sent now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outlook {
    /// It would start at once.
    pub starts_now: bool,
    /// Where it would start, now or when those in its way have stopped.
    pub seats: Vec<Seats>,
    /// Jobs that would be stopped for it.
    pub stops: Vec<JobNo>,
    /// Why it would wait.
    pub why: Why,
}

impl Book {
    /// GPUs by the names of their nodes.
    pub fn seats(&self, allocation: &Allocation) -> Vec<Seats> {
        let seats = |share: &dovetail_model::NodeShare| Seats {
            node: self
                .node(share.node)
                .map(|n| n.spec.name.clone())
                .unwrap_or_default(),
            gpus: share.gpus.iter().collect(),
        };
        allocation.shares.iter().map(seats).collect()
    }

    /// Jobs that stand in line, in its order.
    pub fn line(&self) -> Vec<&super::JobRecord> {
        let numbers = self.engine.line().into_iter().map(|ticket| self.tickets[ticket]);
        numbers.filter_map(|no| self.job(no)).collect()
    }

    /// Why the job is where it is; none if there is no such job.
    pub fn explain(&self, no: JobNo) -> Option<Why> {
        let record = self.job(no)?;
        let plain = |sentence: String| Why {
            sentence,
            ..Why::default()
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
            JobState::Held(Hold::Parts) => plain(
                "what it consists of is gone, and is being made anew by whoever looks after it".to_owned(),
            ),
            JobState::Held(Hold::Array) => plain("as many jobs of its array are up as may be".to_owned()),
            JobState::Ended(end) if end.sentence().is_empty() => plain(format!("it is over: {}", end.word())),
            JobState::Ended(end) => plain(format!("it is over: {}: {}", end.word(), end.sentence())),
            JobState::Stopping(cause) => plain(format!("it was told to stop: {}", cause.sentence(self))),
            JobState::Queued | JobState::Starting | JobState::Running => {
                self.why_in_line(&self.engine, record.ticket?)
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

    fn why_in_line(&self, engine: &dovetail_engine::Engine, ticket: JobId) -> Why {
        match engine.explain(ticket) {
            Explanation::Unknown => Why::default(),
            Explanation::Running { gpus, nodes, .. } => Why {
                sentence: format!("it has {gpus} GPUs on {nodes} nodes"),
                ..Why::default()
            },
            Explanation::Stopping => Why {
                sentence: "it was told to stop".to_owned(),
                ..Why::default()
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
                Why {
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
        if self.clusters().promise == crate::Promise::Open {
            return Ok(());
        }
        let mut names = self.names.clone();
        let ticket = JobId::from_index(self.tickets.len());
        let spec = Self::spec(&mut names, "", request, self.now, ticket);
        let verdict = self.engine.policy().tenancy.clone().ever(&spec);
        verdict.map_err(|reason| format!("gpus: {}", self.reason(&reason)))
    }

    /// What would become of a job if it were sent now. Nothing is changed.
    pub fn outlook(&self, user: &str, request: &JobRequest) -> Outlook {
        let mut names = self.names.clone();
        let ticket = JobId::from_index(self.tickets.len());
        let spec = Self::spec(&mut names, user, request, self.now, ticket);
        let mut engine = self.engine.clone();
        engine.handle(self.now, Event::Submitted(spec));
        let (mut stops, mut seats, mut starts_now, mut rejected) = (Vec::new(), Vec::new(), false, None);
        while let Some(command) = engine.poll() {
            match command {
                Command::Launch { job, allocation, .. } if job == ticket => {
                    seats = self.seats(&allocation);
                    starts_now = true;
                }
                Command::Stop { job, .. } => stops.push(self.tickets[job]),
                Command::Reject { job, reason } if job == ticket => rejected = Some(self.reason(&reason)),
                Command::Launch { .. } | Command::Resize { .. } | Command::Reject { .. } => {}
            }
        }
        if let Some(job) = engine.job(ticket).filter(|_| !starts_now) {
            seats = job.allocation.as_ref().map_or(Vec::new(), |a| self.seats(a));
        }
        let mut why = match starts_now {
            true => Why::default(),
            false => self.why_in_line(&engine, ticket),
        };
        why.reasons.extend(rejected);
        Outlook {
            starts_now,
            seats,
            stops,
            why,
        }
    }
}
