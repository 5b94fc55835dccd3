//! What would start at once: each is tried on a copy of the engine before it is said.

use dovetail_model::ids::Id;
use dovetail_model::{Command, Event, JobKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterState, JobState, NodeSlots};
use crate::JobId;
use crate::clusters::GuaranteeMode;
use crate::request::JobRequest;

/// A change with which a job that waits would start at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Alternative {
    /// What is changed: `gpus`, `gpu_type`, `tenant` or `priority`.
    pub change: String,
    /// To what.
    pub to: String,
    /// In a sentence.
    pub sentence: String,
    /// Where it would run.
    pub placement: Vec<NodeSlots>,
    /// It was tried: it would start.
    pub starts_now: bool,
}

impl ClusterState {
    /// Changes with which a job in line would start at once, if it were sent anew with one of them. `clusters` are the
    /// virtual clusters its owner may use.
    pub fn alternatives(&self, no: JobId, clusters: &[String]) -> Vec<Alternative> {
        let Some(record) = self.job(no).filter(|job| job.state == JobState::Queued) else {
            return Vec::new();
        };
        let request = &*record.request;
        // Whoever waits for this one to go could take its place.
        let others_wait =
            self.waiting_for.contains_key(&no) || !self.capped.is_empty() || request.array.is_some();
        if others_wait {
            return Vec::new();
        }
        let mut found = Vec::new();
        if request.gpu_type.is_some() {
            let any = JobRequest {
                gpu_type: None,
                ..request.clone()
            };
            found.extend(self.try_instead(no, &any, "gpu_type", "any"));
        }
        // One that is rigid may still be run with fewer.
        let fewer = std::iter::successors(Some(request.gpus / 2), |g| Some(g / 2)).take_while(|g| *g > 0);
        for gpus in fewer {
            let fewer = JobRequest {
                gpus,
                min_gpus: request.min_gpus.map(|least| least.min(gpus)),
                ..request.clone()
            };
            let tried = self.try_instead(no, &fewer, "gpus", &gpus.to_string());
            if tried.is_some() {
                found.extend(tried);
                break;
            }
        }
        for tenant in clusters.iter().filter(|name| **name != request.tenant) {
            let there = JobRequest {
                tenant: tenant.clone(),
                ..request.clone()
            };
            found.extend(self.try_instead(no, &there, "tenant", tenant));
        }
        if self.virtual_clusters().mode != GuaranteeMode::Open && request.priority >= 0 {
            let borrows = JobRequest {
                priority: -1,
                ..request.clone()
            };
            found.extend(self.try_instead(no, &borrows, "priority", "-1"));
        }
        found
    }

    /// Whether the job would start at once if it were sent anew like this.
    fn try_instead(&self, no: JobId, request: &JobRequest, change: &str, to: &str) -> Option<Alternative> {
        request.validate().ok()?;
        let cluster = self.virtual_clusters().get(&request.tenant)?;
        let over = cluster.max_priority.is_some_and(|most| request.priority > most)
            || cluster.user_cap_gpus.is_some();
        if over || self.could_ever_run(request).is_err() {
            return None;
        }
        let record = self.job(no)?;
        let mut names = self.names.clone();
        let job_key = JobKey::from_index(self.job_ids.len());
        let spec = Self::spec(&mut names, &record.user, request, self.now, job_key);
        let mut engine = self.engine.clone();
        engine.handle(self.now, Event::Cancelled { job: record.job_key? });
        while engine.poll().is_some() {}
        engine.handle(self.now, Event::Submitted(spec));
        while let Some(command) = engine.poll() {
            if let Command::Launch { job, allocation, .. } = command
                && job == job_key
            {
                let seats = self.node_slots(&allocation);
                let on = match seats.len() {
                    1 => format!("on {}", seats[0].node),
                    n => format!("on {n} nodes"),
                };
                let what = match change {
                    "gpus" => format!("with {to} GPUs {on}"),
                    "gpu_type" => format!("with any kind of GPU, {on}"),
                    "tenant" => format!("in virtual cluster {to}, {on}"),
                    _ => format!("as a borrower (priority {to}), {on}; it gives way to others then"),
                };
                return Some(Alternative {
                    change: change.to_owned(),
                    to: to.to_owned(),
                    sentence: format!("it would start now {what}"),
                    placement: seats,
                    starts_now: true,
                });
            }
        }
        None
    }
}
