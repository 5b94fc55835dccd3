//! Virtual clusters: changing them while jobs run, and what that would do.

use dovetail_model::{Command, Event};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policy::{self, Ground};
use super::{ClusterState, Hold, JobState, Names};
use crate::JobId;
use crate::clusters::{GuaranteeMode, VirtualCluster, VirtualClusters};

/// What a change of the virtual clusters does at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VirtualClusterChange {
    /// Jobs that stop.
    pub stops: Vec<JobId>,
    /// Jobs that start.
    pub starts: Vec<JobId>,
    /// Jobs that run on, but only on what is idle: what their virtual cluster owned is gone.
    pub lent: Vec<JobId>,
    /// Jobs that wait and could never start any more.
    pub stranded: Vec<JobId>,
    /// What else is worth knowing.
    pub remarks: Vec<String>,
}

impl ClusterState {
    /// The virtual clusters.
    pub fn virtual_clusters(&self) -> &VirtualClusters {
        &self.clusters
    }

    pub(super) fn ground(&self) -> Ground<'_> {
        Ground {
            clusters: &self.clusters,
            names: &self.names,
            nodes: &self.nodes,
        }
    }

    /// Changes the virtual clusters, or says why not and leaves them.
    pub(super) fn set_clusters(&mut self, clusters: &VirtualClusters) -> Result<(), String> {
        self.all_have_owners(clusters)?;
        let mut names = self.names.clone();
        for name in clusters.names() {
            Names::number(&mut names.tenants, &name);
        }
        let ground = Ground {
            clusters,
            names: &names,
            nodes: &self.nodes,
        };
        let policy = policy::build(&self.policy, ground)?;
        self.set_policy(policy)?;
        (self.clusters, self.names) = (clusters.clone(), names);
        self.tell(Event::Wake);
        self.pump();
        self.let_in_below_caps();
        Ok(())
    }

    /// Nodes or users have come of which the cells know nothing yet.
    pub(super) fn refresh_cells(&mut self) {
        if self.clusters.mode != GuaranteeMode::Cells {
            return;
        }
        let changed = policy::build(&self.policy, self.ground()).and_then(|p| self.set_policy(p));
        match changed {
            Ok(()) => self.tell(Event::Wake),
            Err(why) => self.log_event(None, super::EventKind::Refused(format!("cells: {why}"))),
        }
    }

    /// What a change would do at once. Nothing is changed.
    ///
    /// # Errors
    /// Says why it cannot be done.
    pub fn preview_virtual_clusters(
        &self,
        clusters: &VirtualClusters,
    ) -> Result<VirtualClusterChange, String> {
        clusters.validate()?;
        self.all_have_owners(clusters)?;
        let mut names = self.names.clone();
        for name in clusters.names() {
            Names::number(&mut names.tenants, &name);
        }
        let ground = Ground {
            clusters,
            names: &names,
            nodes: &self.nodes,
        };
        let mut engine = self.engine.clone();
        engine
            .set_policy(policy::build(&self.policy, ground)?)
            .map_err(|e| e.to_string())?;
        engine.handle(self.now, Event::Wake);
        let mut change = VirtualClusterChange::default();
        while let Some(command) = engine.poll() {
            match command {
                Command::Launch { job, .. } => change.starts.push(self.job_ids[job]),
                Command::Stop { job, .. } => change.stops.push(self.job_ids[job]),
                Command::Resize { .. } | Command::Reject { .. } => {}
            }
        }
        let lent = engine.policy().tenancy.downgraded();
        change.lent = lent.into_iter().map(|job| self.job_ids[job]).collect();
        let mut tenancy = engine.policy().tenancy.clone();
        for job in self.jobs.values().filter(|j| j.state == JobState::Queued) {
            let spec = job.job_key.and_then(|t| engine.job(t)).map(|j| j.spec.clone());
            if clusters.get(&job.request.tenant).is_none()
                || spec.is_some_and(|s| tenancy.check_feasible(&s).is_err())
            {
                change.stranded.push(job.id);
            }
        }
        self.remark(clusters, &mut change);
        Ok(change)
    }

    /// Where GPUs are promised as cells, a job that is not over must belong to somebody who owns some.
    fn all_have_owners(&self, clusters: &VirtualClusters) -> Result<(), String> {
        if clusters.mode != GuaranteeMode::Cells {
            return Ok(());
        }
        let names = clusters.names();
        match self
            .unfinished_jobs()
            .find(|job| !names.contains(&job.request.tenant))
        {
            Some(job) => Err(format!(
                "job {} is not over and belongs to {}, which would own no cells; stop it first, or give {} some",
                job.id, job.request.tenant, job.request.tenant
            )),
            None => Ok(()),
        }
    }

    fn remark(&self, clusters: &VirtualClusters, change: &mut VirtualClusterChange) {
        let there = self.nodes.values().filter(|n| n.state != super::NodeState::Lost);
        match clusters.mode {
            GuaranteeMode::Open => {}
            GuaranteeMode::Quota => {
                let gpus: u64 = there.map(|n| u64::from(n.spec.gpus)).sum();
                let all: u64 = clusters
                    .named
                    .values()
                    .map(|c| u64::from(c.guaranteed_gpus))
                    .sum();
                if all > gpus {
                    change.remarks.push(format!(
                        "{all} GPUs are promised, but only {gpus} are there: not every promise can be kept at once"
                    ));
                }
            }
            GuaranteeMode::Cells => {
                let Some(layout) = clusters
                    .cells
                    .as_ref()
                    .and_then(|c| c.compile().ok())
                    .map(|c| c.layout)
                else {
                    return;
                };
                let mut unknown: Vec<&str> = there
                    .filter(|n| layout.machine_named(&n.spec.name).is_none())
                    .map(|n| n.spec.name.as_str())
                    .collect();
                unknown.sort_unstable();
                if !unknown.is_empty() {
                    change
                        .remarks
                        .push(format!("in no cell, and so not used: {}", unknown.join(", ")));
                }
            }
        }
    }

    /// The virtual cluster of a job, as far as it is still there.
    pub(super) fn cluster_of(&self, no: JobId) -> Option<VirtualCluster> {
        self.clusters.get(&self.jobs[&no].request.tenant)
    }

    /// Another priority for a job that waits: it stands in line anew.
    pub(super) fn prioritized(&mut self, no: JobId, priority: i32) {
        let Some(record) = self.jobs.get_mut(&no) else {
            return;
        };
        record.request.priority = priority;
        match (&record.state, record.job_key) {
            (JobState::Queued, Some(job_key)) => {
                self.tell(Event::Cancelled { job: job_key });
                self.line_up(no);
            }
            (JobState::Held(Hold::Cap), _) => self.line_up(no),
            _ => {}
        }
    }
}
