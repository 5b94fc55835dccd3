//! Read access to the cluster state. Nothing here changes it.

use dovetail_engine::{Capabilities, Clock, DataCheck, DataWarning, Engine, Policy};
use dovetail_history::KnownJobs;
use dovetail_learning::LearnedProfiles;
use dovetail_model::{
    Allocation, ClusterSpec, GpuTypeId, JobKey, JobSpec, NameLookup, NodeId, Reason, TenantId, Time, UserId,
    Zone,
};

use super::alternatives::{self, Alternative};
use super::commands::{self, RuntimeCommand};
use super::error::{Infeasible, PolicyTextError, VirtualClusterChangeError};
use super::events::ClusterEvent;
use super::explain::{self, ExplainContext, JobExplanation};
use super::jobs::{ArchiveChange, Attempt, JobRecord};
use super::names::Names;
use super::nodes::NodeRecord;
use super::preview::{self, NodeSlots, SubmissionPreview};
use super::virtual_clusters::{self, VirtualClusterChange};
use super::{ClusterState, feasibility};
use crate::fact::{Fact, PolicyText};
use crate::request::JobRequest;
use crate::virtual_clusters::VirtualClusters;
use crate::{AttemptId, JobId};

impl ClusterState {
    /// Returns the time of the last fact.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Builds the policy in force from scratch, as if there were no jobs.
    pub(crate) fn build_policy(&self) -> Result<Policy, PolicyTextError> {
        self.scheduler
            .build_from_scratch(&self.virtual_clusters, &self.nodes)
    }

    /// Returns all nodes, whatever their state, with the names of GPU types and racks.
    pub(crate) fn cluster_spec(&self) -> ClusterSpec {
        let names = self.names();
        let zone = |name: &String| Zone {
            name: name.clone(),
            parent: None,
        };
        ClusterSpec {
            gpu_types: names.gpu_types.iter().cloned().collect(),
            zones: names.racks.iter().map(zone).collect(),
            nodes: self.nodes.iter().map(|(_, node)| node.spec.clone()).collect(),
        }
    }

    /// Returns the names of what the engine knows by number.
    pub(crate) fn names(&self) -> &Names {
        self.scheduler.names()
    }

    /// Returns the profiles of models that were measured on this cluster.
    pub fn profiles(&self) -> &LearnedProfiles {
        self.learning.profiles()
    }

    /// Returns when [`Fact::Woke`] or [`Fact::TimeLimitReached`] is due, if nothing happens before.
    pub fn wake_at(&self) -> Option<Time> {
        let limit = self.jobs.next_time_limit();
        self.engine().wake_at().into_iter().chain(limit).min()
    }

    /// Returns the facts that are due because time has passed.
    pub fn due(&self, now: Time) -> Vec<Fact> {
        let expired = self.jobs.expired(now);
        let mut due: Vec<Fact> = expired
            .map(|(job, attempt)| Fact::TimeLimitReached { job, attempt })
            .collect();
        if self.engine().wake_at().is_some_and(|at| at <= now) {
            due.push(Fact::Woke);
        }
        due
    }

    /// Returns the number of the next job.
    pub fn next_job(&self) -> JobId {
        self.jobs.next_id()
    }

    /// Returns a job.
    pub fn job(&self, id: JobId) -> Option<&JobRecord> {
        self.jobs.get(id)
    }

    /// Returns the job a user submitted with an idempotency key.
    pub fn job_of_key(&self, user: &str, key: &str) -> Option<&JobRecord> {
        self.jobs.by_key(user, key)
    }

    /// Returns whether the job has ended and left memory: only the history database has it.
    pub fn has_departed(&self, id: JobId) -> bool {
        self.jobs.has_departed(id)
    }

    /// Returns how many jobs have left memory so far.
    pub fn departed_count(&self) -> u64 {
        self.jobs.departed_count()
    }

    /// Returns whether a job ended that has left memory and that an unfinished job may depend on: with `true` if it
    /// completed.
    pub(crate) fn past_end(&self, id: JobId) -> Option<bool> {
        self.jobs.past_end(id)
    }

    /// Returns the number of jobs in memory.
    pub fn job_count(&self) -> usize {
        self.jobs.count()
    }

    /// Returns the number of ended jobs in memory.
    pub fn ended_count(&self) -> usize {
        self.jobs.ended_count()
    }

    /// Returns which jobs are in memory, for reads of the history database.
    pub fn known_jobs(&self) -> KnownJobs {
        let from = self.jobs.floor();
        let below = self.jobs().map(|job| job.id).take_while(|id| *id < from);
        KnownJobs {
            from,
            below: below.collect(),
        }
    }

    /// Returns the number of the last change that a history database has to get.
    pub fn last_change(&self) -> u64 {
        self.jobs.last_change()
    }

    /// Returns how many changes the history database does not have yet.
    pub fn unwritten_count(&self) -> usize {
        self.jobs.unwritten_count()
    }

    /// Returns changes for the history database, with their numbers: those after one number and up to another, in order.
    pub fn archive_changes(&self, after: u64, up_to: u64, most: usize) -> Vec<(u64, ArchiveChange)> {
        self.jobs.changes(after, up_to, most)
    }

    /// Returns the number of the last event that the history database has.
    pub(crate) fn stored_event(&self) -> u64 {
        self.events.stored()
    }

    /// Returns all jobs, oldest first.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = &JobRecord> {
        self.jobs.iter()
    }

    /// Returns all jobs from this number on, oldest first.
    pub fn jobs_from(&self, id: JobId) -> impl Iterator<Item = &JobRecord> {
        self.jobs.from(id)
    }

    /// Returns all jobs that have not ended, oldest first.
    pub fn unfinished_jobs(&self) -> impl DoubleEndedIterator<Item = &JobRecord> {
        self.jobs.unfinished()
    }

    /// Returns all jobs that hold GPUs, oldest first.
    pub fn active_jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.active()
    }

    /// Returns all queued jobs, in the order of the queue.
    pub fn queue(&self) -> Vec<&JobRecord> {
        let keys = self.engine().queue().into_iter();
        keys.filter_map(|key| self.job(self.scheduler.job_id(key)))
            .collect()
    }

    /// Returns what all explanations of pending jobs have in common, for [`ClusterState::explain_at`].
    pub fn explain_context(&self) -> ExplainContext {
        ExplainContext::new(self)
    }

    /// Explains the state of a job. Returns `None` if there is no such job.
    pub fn explain(&self, id: JobId) -> Option<JobExplanation> {
        explain::explain(self, id)
    }

    /// Like [`ClusterState::explain`], with a context that was taken before: many jobs are explained without a look at the
    /// whole queue for each.
    pub fn explain_at(&self, id: JobId, context: &ExplainContext) -> Option<JobExplanation> {
        explain::explain_at(self, id, context)
    }

    /// Returns the text of a reason, with names.
    pub fn reason(&self, reason: &Reason) -> String {
        reason.render(self)
    }

    /// Previews what would happen if a job were submitted now.
    pub fn preview_submission(&self, user: &str, request: &JobRequest) -> SubmissionPreview {
        preview::preview_submission(self, user, request)
    }

    /// Returns changes with which a queued job would start at once if it were resubmitted with one of them.
    /// `virtual_clusters` are those its owner may use.
    pub fn alternatives(&self, id: JobId, virtual_clusters: &[String]) -> Vec<Alternative> {
        alternatives::alternatives(self, id, virtual_clusters)
    }

    /// Checks whether the guarantee of its virtual cluster could ever hold the job.
    ///
    /// # Errors
    /// Names what the job asks for and what is guaranteed.
    pub fn could_ever_run(&self, request: &JobRequest) -> Result<(), Infeasible> {
        feasibility::check_guarantee(self, request)
    }

    /// Checks whether the connected nodes could run the job if they were empty.
    ///
    /// # Errors
    /// Names what the job asks for and what the nodes have.
    pub(crate) fn fits_when_empty(&self, request: &JobRequest) -> Result<(), Infeasible> {
        feasibility::check_empty_nodes(self, request)
    }

    /// Returns the forms of jobs for an engine, with the keys they have or would get.
    pub fn specs<'a>(&self, jobs: impl IntoIterator<Item = &'a JobRecord>) -> Vec<JobSpec> {
        let mut names = self.scheduler.names().clone();
        let next = self.next_job_key();
        let spec = |job: &JobRecord| {
            let key = job.job_key.unwrap_or(next);
            JobSpec {
                place: u32::try_from(job.id).unwrap_or(u32::MAX),
                ..names.spec(&job.user, &job.request, job.submitted, key)
            }
        };
        jobs.into_iter().map(spec).collect()
    }

    /// Returns the engine's handle of the next job.
    pub fn next_job_key(&self) -> JobKey {
        self.scheduler.next_key()
    }

    /// Returns the GPU slots of an allocation by the names of its nodes.
    pub fn node_slots(&self, allocation: &Allocation) -> Vec<NodeSlots> {
        preview::node_slots(&self.nodes, allocation)
    }

    /// Returns all nodes that ever joined.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeRecord)> {
        self.nodes.iter()
    }

    /// Returns a node.
    pub fn node(&self, id: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(id)
    }

    /// Returns the node with this name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.nodes.named(name)
    }

    /// Returns the tasks on a node that have not ended, with the attempt and the position of the node in its allocation.
    pub fn tasks_on(&self, node: NodeId) -> Vec<(&JobRecord, &Attempt, usize)> {
        commands::tasks_on(&self.jobs, node)
    }

    /// Returns all commands that an agent has to get when it reconnects.
    pub fn commands_for(&self, node: NodeId) -> Vec<RuntimeCommand> {
        commands::for_node(&self.jobs, &self.nodes, self.scheduler.shares_gpus(), node)
    }

    /// Returns the ends of tasks that should run on a node and do not, given the tasks that do. The agent must have sent
    /// all facts it kept before.
    pub fn reconcile(&self, node: NodeId, running: &[(JobId, AttemptId)]) -> Vec<Fact> {
        commands::lost_tasks(&self.jobs, node, running)
    }

    /// Returns the virtual clusters.
    pub fn virtual_clusters(&self) -> &VirtualClusters {
        &self.virtual_clusters
    }

    /// Previews the immediate effects of a change of the virtual clusters.
    ///
    /// # Errors
    /// If the change is not possible.
    pub fn preview_virtual_clusters(
        &self,
        clusters: &VirtualClusters,
    ) -> Result<VirtualClusterChange, VirtualClusterChangeError> {
        virtual_clusters::preview(self, clusters)
    }

    /// Checks whether the policy can be changed to this one.
    ///
    /// # Errors
    /// If the policy cannot be built, or running jobs contradict it.
    pub fn check_policy(&self, text: &PolicyText) -> Result<(), PolicyTextError> {
        self.scheduler
            .preview_policy(text, &self.virtual_clusters, &self.nodes)
            .map(drop)
    }

    /// Returns what the runtime of the cluster can do.
    pub fn runtime(&self) -> &Capabilities {
        self.scheduler.runtime()
    }

    /// Returns the data that the policy needs and that queued jobs, or the runtime, do not provide.
    pub fn data_warnings(&self) -> Vec<DataWarning> {
        DataCheck::new(self.engine()).warnings(self.runtime())
    }

    /// Returns the policy that was in force at a moment, as a name with parameters.
    pub fn policy_at(&self, at: Time) -> &str {
        self.scheduler.policy_at(at)
    }

    /// Returns the text of the policy.
    pub fn policy(&self) -> &PolicyText {
        self.scheduler.policy()
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Engine {
        self.scheduler.engine()
    }

    /// Returns whether scheduling is paused.
    pub fn is_paused(&self) -> bool {
        self.engine().is_paused()
    }

    /// Returns when the engine decides, as text: `events`, or `rounds:300s`.
    pub fn clock(&self) -> String {
        match self.engine().clock() {
            Clock::Events => "events".to_owned(),
            Clock::Rounds { period, .. } => format!("rounds:{}s", period.as_secs_f64()),
        }
    }

    /// Returns the events after this number that are still kept.
    pub fn events_after(&self, number: u64) -> impl Iterator<Item = &ClusterEvent> {
        self.events.after(number)
    }

    /// Returns the number of the oldest event that is still kept; without one, the number of the next event.
    pub fn oldest_event(&self) -> u64 {
        self.events.oldest()
    }

    /// Returns the number of the last event.
    pub fn last_event(&self) -> u64 {
        self.events.next() - 1
    }
}

/// Names as users know them.
impl NameLookup for ClusterState {
    fn job(&self, job: JobKey) -> String {
        match self.scheduler.find_job_id(job) {
            Some(id) => format!("job {id}"),
            None => "a job that is not registered yet".to_owned(),
        }
    }

    fn node(&self, node: NodeId) -> String {
        match self.nodes.get(node) {
            Some(node) => format!("node {}", node.spec.name),
            None => format!("node {node}"),
        }
    }

    fn tenant(&self, tenant: TenantId) -> String {
        let name = self.scheduler.names().tenants.get(tenant.0 as usize);
        format!("virtual cluster {}", name.map_or("", String::as_str))
    }

    fn user(&self, user: UserId) -> String {
        let name = self.scheduler.names().users.get(user.0 as usize);
        format!("user {}", name.map_or("", String::as_str))
    }

    fn gpu_type(&self, gpu_type: GpuTypeId) -> String {
        let name = self.scheduler.names().gpu_types.get(gpu_type.0 as usize);
        name.cloned().unwrap_or_else(|| gpu_type.to_string())
    }

    fn time(&self, at: Time) -> String {
        let seconds = at.since(self.now).as_secs_f64();
        format!("in {:.0} s", seconds.max(0.0))
    }
}
