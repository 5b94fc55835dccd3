//! Handling events: what the engine learns about jobs and nodes.

use dovetail_model::group_factors::{GroupFactors, ProfileKey, SharedGroupFactors};
use dovetail_model::sharing::MeasuredSlowdown;
use dovetail_model::{
    Allocation, AttemptKey, Event, JobKey, JobProfile, ModelId, NodeId, NodeSpec, Outcome, Rate, RestoredJob,
    Share, Slowdowns, StopReason, Time, Work,
};

use crate::engine::Engine;
use crate::job::{RunState, Stage};
use crate::needs::Need;

/// Difference between reported and assumed work up to which a report is not a reason for a decision. Rounding stays
/// below it.
const PROGRESS_TOLERANCE: Work = Work(10_000);

impl Engine {
    /// Sets the measured slowdowns of jobs that share GPUs, for groupings that weigh pairs.
    pub fn set_slowdowns(&mut self, slowdowns: Slowdowns) {
        self.state.slowdowns = slowdowns;
    }

    /// Replaces the measured slowdowns of a model beside others.
    pub fn replace_slowdowns(&mut self, of: ModelId, rows: Vec<MeasuredSlowdown>) {
        let is_changed = self.state.slowdowns.replace(of, rows);
        self.progress.dirty |= is_changed;
    }

    /// Returns how much longer than planned periods of groups are; none if that is not measured, so that groupings use a
    /// model of contention.
    pub fn group_factors(&self) -> Option<&GroupFactors> {
        self.state.group_factors.as_deref()
    }

    /// Sets how much longer than planned periods of groups are.
    pub fn set_group_factors(&mut self, factors: Option<GroupFactors>) {
        if self.group_factors() != factors.as_ref() {
            self.state.group_factors = factors.map(SharedGroupFactors::from);
            self.progress.dirty = true;
        }
    }

    /// Sets how much longer than planned the period of one group is, in millionths, or forgets it. Without effect unless
    /// periods are measured.
    pub fn set_group_factor(&mut self, members: Vec<ProfileKey>, ppm: Option<u32>) {
        if let Some(factors) = &mut self.state.group_factors {
            self.progress.dirty |= factors.make_mut().set(members, ppm);
        }
    }

    /// Handles an event. Events are given in order of time; one that was handled before, or that answers an old command,
    /// changes nothing.
    pub fn handle(&mut self, now: Time, event: Event) {
        debug_assert!(now >= self.state.now, "events are in order of time");
        self.state.now = now.max(self.state.now);
        match event {
            Event::Submitted(spec) => {
                // Keys are dense: a key inside the table was submitted before, and its job may have ended.
                if self.state.jobs.get(spec.id).is_none() {
                    self.state.add_job(spec);
                    self.progress.dirty = true;
                }
            }
            Event::Restored(restored) => self.restored(*restored),
            Event::Respecified { job, profile } => self.respecified(job, *profile),
            Event::Cancelled { job } => self.cancelled(job),
            Event::Started { job, attempt, rate } => {
                if self.is_current(job, attempt, |state| *state == RunState::Starting) {
                    let entry = self.state.entry(job);
                    entry.job.run_state = RunState::Running;
                    (entry.job.rate, entry.job.done_at) = (rate, now);
                    self.state.holder_changed(job);
                }
            }
            Event::Progressed {
                job,
                attempt,
                done,
                rate,
            } => {
                if self.is_current(job, attempt, |state| *state == RunState::Running) {
                    self.progressed(job, done, rate);
                }
            }
            Event::Exited {
                job,
                attempt,
                outcome,
            } => {
                if self.is_current(job, attempt, |state| *state != RunState::Idle) {
                    self.exited(job, outcome);
                }
            }
            Event::Stopped { job, attempt, done } => {
                if self.is_current(job, attempt, |state| *state != RunState::Idle) {
                    self.stopped(job, done);
                }
            }
            Event::NodeUp { node, spec } => self.node_up(node, spec),
            Event::NodeDown { node } => self.node_down(node),
            Event::NodeDraining { node } => self.set_draining(node, true),
            Event::NodeResumed { node } => self.set_draining(node, false),
            Event::NodeUnavailable {
                node,
                gpus,
                cpu_milli,
                memory_mib,
            } => {
                let share = Share::new(cpu_milli, memory_mib);
                if self.state.cluster.set_unavailable(node, gpus, share) {
                    self.progress.dirty = true;
                    self.set_aside_unavailable();
                    self.node_changed(node);
                }
            }
            Event::NodeConstraintSet { constraint, nodes } => {
                self.progress.dirty |= self.state.cluster.set_constraint(constraint, &nodes);
            }
            Event::Wake => {
                let expiry = self.state.queues.expiries.first();
                self.progress.dirty |= self.progress.wake.is_some_and(|w| w <= now)
                    || expiry.is_some_and(|(at, _)| *at <= now)
                    || self.time_matters();
            }
        }
    }

    /// Whether this is the current attempt of the job, and its state is one of those expected.
    fn is_current(&self, id: JobKey, attempt: AttemptKey, is_expected: impl Fn(&RunState) -> bool) -> bool {
        self.state
            .find_job(id)
            .is_some_and(|job| job.attempt == attempt && is_expected(&job.run_state))
    }

    /// Corrects the work a running job has done. Where the job is not where its last speed would have brought it, other
    /// jobs may now be ahead of it.
    fn progressed(&mut self, id: JobKey, done: Work, rate: Rate) {
        let now = self.state.now;
        let job = &mut self.state.entry(id).job;
        let is_surprising = job.done(now).0.abs_diff(done.0) > PROGRESS_TOLERANCE.0;
        (job.done, job.rate, job.done_at) = (done, rate, now);
        self.state.holder_changed(id);
        self.progress.dirty |= is_surprising;
    }

    /// Replaces what is known about how a job behaves.
    fn respecified(&mut self, id: JobKey, profile: JobProfile) {
        let Some(job) = self.state.find_job(id) else {
            return;
        };
        let known = job.spec.profile();
        if known == profile {
            return;
        }
        let is_used = self.uses_change(&known, &profile);
        let now = self.state.now;
        let before = job.spec.preferred_share();
        let job = &mut self.state.entry(id).job;
        // Work is settled at the speed so far.
        (job.done, job.done_at) = (job.done(now), now);
        job.spec.set_profile(profile);
        let after = job.spec.preferred_share();
        if let Some(allocation) = job.allocation.clone() {
            self.state.cluster.change_preferred(&allocation, before, after);
            self.lower_promise(id);
            self.state.touch(&allocation);
        }
        if is_used {
            self.state.mark_stale(id);
            self.progress.dirty = true;
        }
    }

    /// Returns whether a part of the policy looks at what changed between two profiles. What none looks at leads to no
    /// decision: one at another time than without it could differ.
    fn uses_change(&self, before: &JobProfile, after: &JobProfile) -> bool {
        let used = self.policy.needs().union().union(self.policy.hints());
        let data = [
            (before.expected != after.expected, Need::RemainingTime),
            (before.stages != after.stages, Need::Stages),
            (before.sensitivity != after.sensitivity, Need::CpuCurve),
            (before.scaling != after.scaling, Need::Scaling),
        ];
        let is_needed = |(is_changed, need): (bool, Need)| is_changed && used.contains(need);
        before.model != after.model || data.into_iter().any(is_needed)
    }

    /// Promises a job no more CPU and memory than the sizing asks for now, where it distributes the rest. The job keeps what
    /// it has until that is distributed again.
    fn lower_promise(&mut self, id: JobKey) {
        let job = self.state.job(id);
        let is_stopping = matches!(job.run_state, RunState::Stopping(_));
        let Some(promised) = job.allocation.clone().filter(|_| !is_stopping) else {
            return;
        };
        let ask = self.policy.sizing.ask(job, &self.state.cluster);
        if self.policy.sizing.filling().is_none() {
            return;
        }
        let mut lowered = promised.clone();
        for part in &mut lowered.shares {
            let gpus = part.gpus.count();
            part.cpu_milli = part.cpu_milli.min(ask.cpu_milli_per_gpu.saturating_mul(gpus));
            let memory_mib = ask.memory_mib_per_gpu.saturating_mul(u64::from(gpus));
            part.memory_mib = part.memory_mib.min(memory_mib);
        }
        if lowered != promised {
            self.state.cluster.shrink(&promised, &lowered);
            let job = &mut self.state.entry(id).job;
            job.granted.get_or_insert(promised);
            job.allocation = Some(lowered);
        }
    }

    fn cancelled(&mut self, id: JobKey) {
        let Some(job) = self.state.find_job(id) else {
            return;
        };
        self.progress.dirty = true;
        match job.run_state {
            RunState::Idle => {
                self.state.remove_job(id, &mut *self.policy.tenancy);
            }
            RunState::Starting | RunState::Running => {
                self.state.entry(id).job.cancelled = true;
                let held = self.dispatcher().take_back(id);
                self.dispatcher().stop(id, held, StopReason::Cancelled);
            }
            RunState::Stopping(_) => {
                self.state.entry(id).job.cancelled = true;
                if self.state.job(id).allocation.is_some() {
                    self.dispatcher().take_back(id);
                }
            }
        }
    }

    fn exited(&mut self, id: JobKey, outcome: Outcome) {
        let job = self.state.remove_job(id, &mut *self.policy.tenancy);
        if let RunState::Stopping(held) = &job.run_state {
            self.state.cluster.remove_lingering(held);
            self.state.touch(held);
        }
        if outcome == Outcome::Completed {
            self.progress.rekey_all |= self.policy.order.job_finished(&job, self.state.now);
        }
        self.progress.dirty = true;
        self.dispatcher().launch_ready();
    }

    fn stopped(&mut self, id: JobKey, done: Work) {
        let now = self.state.now;
        if !matches!(self.state.job(id).run_state, RunState::Stopping(_)) {
            let held = self.dispatcher().take_back(id);
            self.dispatcher().begin_stopping(id, held, StopReason::Preempted);
            self.progress.dirty = true;
        }
        let job = &mut self.state.entry(id).job;
        let RunState::Stopping(held) = std::mem::replace(&mut job.run_state, RunState::Idle) else {
            unreachable!("the job is stopping")
        };
        (job.done, job.done_at, job.waiting_since) = (done, now, now);
        let (cancelled, stopped_in) = (job.cancelled, job.stopped_in);
        self.state.cluster.remove_lingering(&held);
        self.state.touch(&held);
        if cancelled {
            self.state.remove_job(id, &mut *self.policy.tenancy);
        } else {
            self.state.mark_stale(id);
        }
        // A job that a decision of this very moment stopped was considered in that decision, but not in later ones.
        self.progress.dirty |=
            self.progress.last_decision != Some(now) || stopped_in != self.progress.decisions;
        self.dispatcher().launch_ready();
    }

    /// Takes over a job that ran before: queued with its history, or found on GPUs after a restart.
    fn restored(&mut self, restored: RestoredJob) {
        let RestoredJob {
            spec,
            history,
            holds,
            stopping,
        } = restored;
        let id = spec.id;
        if self.state.jobs.get(id).is_some() {
            return;
        }
        self.state.add_job(spec);
        self.progress.dirty = true;
        let job_time = self.state.job_time;
        let job = &mut self.state.entry(id).job;
        job.job_time_before = job_time - history.alive.unwrap_or(0);
        (job.held_before, job.gpu_time_before) = (history.held, history.gpu_time);
        (job.done, job.preemptions) = (history.done, history.preemptions);
        job.first_start = history.first_start;
        job.waiting_since = history.waiting_since.unwrap_or(job.waiting_since);
        let Some((attempt, allocation)) = holds else {
            return;
        };
        job.attempt = attempt;
        match stopping {
            None => self.adopt(id, allocation),
            Some(reason) => self.restore_stopping(id, allocation, reason),
        }
    }

    /// Takes over a job that was told to stop and has not stopped yet: its GPUs are not free until it has.
    fn restore_stopping(&mut self, id: JobKey, mut held: Allocation, reason: StopReason) {
        let cluster = &self.state.cluster;
        held.shares
            .retain(|share| cluster.node(share.node).is_some_and(|node| node.up));
        self.state.inbox.retain(|other| *other != id);
        let now = self.state.now;
        let job = &mut self.state.entry(id).job;
        (job.stage, job.held_since) = (Stage::Admitted, now);
        job.cancelled = reason == StopReason::Cancelled;
        // It was told to stop earlier, and its history counts from then.
        let (waiting_since, preemptions) = (job.waiting_since, job.preemptions);
        let spec = job.spec.clone();
        self.state.demand.add(&spec);
        self.dispatcher().begin_stopping(id, held, reason);
        let job = &mut self.state.entry(id).job;
        (job.waiting_since, job.preemptions) = (waiting_since, preemptions);
    }

    /// Lets the job continue where it was found. It was admitted before, so admission is not asked again. It stays queued
    /// if other jobs hold its GPUs or its node is missing.
    fn adopt(&mut self, id: JobKey, mut allocation: Allocation) {
        for share in &mut allocation.shares {
            // The job runs there, even if the node has lost CPU or memory since, or counts them differently.
            if let Some(node) = self.state.cluster.node(share.node) {
                share.cpu_milli = share.cpu_milli.min(node.free_cpu_milli);
                share.memory_mib = share.memory_mib.min(node.free_memory_mib);
            }
        }
        let cluster = &self.state.cluster;
        let spec = &self.state.job(id).spec;
        let is_whole = (spec.min_gpus..=spec.max_gpus).contains(&allocation.gpus());
        let has_memory = cluster.has_room_beside(&allocation, spec.gpu_memory_mib);
        let is_alone = cluster.is_free(&allocation);
        let most = self.policy.grouping.terms().max_jobs;
        let may_share = most > 1 && cluster.is_up(&allocation) && cluster.holders_of(&allocation).1 < most;
        if !is_whole
            || !has_memory
            || !allocation.is_in_bundles_of(spec.gpus_per_task)
            || !(is_alone || may_share)
        {
            return;
        }
        self.state.inbox.retain(|other| *other != id);
        let now = self.state.now;
        let job = &mut self.state.entry(id).job;
        (job.stage, job.run_state, job.held_since) = (Stage::Admitted, RunState::Starting, now);
        job.first_start.get_or_insert(now);
        let spec = job.spec.clone();
        self.state.demand.add(&spec);
        self.state
            .allocate(id, allocation, !is_alone, &mut *self.policy.tenancy);
        self.state.mark_stale(id);
        // The tenancy looks at all jobs that were taken over together.
        self.progress.adopted = true;
    }

    fn node_up(&mut self, node: NodeId, spec: NodeSpec) {
        self.progress.dirty = true;
        if let Some(known) = self.state.cluster.node(node) {
            if known.up && known.spec == spec {
                self.state.cluster.set_node(node, true, false);
                self.node_changed(node);
                return;
            }
            self.node_down(node);
        }
        self.state.cluster.add_node(node, spec);
        self.node_changed(node);
    }

    /// Tells the tenancy the state of a node.
    fn node_changed(&mut self, node: NodeId) {
        if let Some(state) = self.state.cluster.node(node) {
            self.policy.tenancy.node_changed(node, state);
        }
    }

    fn node_down(&mut self, node: NodeId) {
        if !self.state.cluster.node(node).is_some_and(|n| n.up) {
            return;
        }
        self.progress.dirty = true;
        let is_there = |a: &Option<Allocation>| a.as_ref().is_some_and(|a| a.touches(node));
        let lost = self.state.jobs().filter(|j| is_there(&j.allocation));
        let lost: Vec<JobKey> = lost.map(|j| j.spec.id).collect();
        for id in lost {
            let held = self.dispatcher().take_back(id);
            if self.state.job(id).holds_gpus() {
                self.dispatcher().stop(id, held, StopReason::NodeLost(node));
            }
        }
        // Jobs that were stopping there are lost too: a late answer must not free what other jobs hold by then.
        for entry in self.state.jobs.values_mut().flatten() {
            if let RunState::Stopping(held) = &mut entry.job.run_state {
                held.shares.retain(|share| share.node != node);
            }
        }
        self.state.cluster.set_node(node, false, false);
        self.node_changed(node);
    }

    fn set_draining(&mut self, node: NodeId, draining: bool) {
        let known = self.state.cluster.node(node);
        if !known.is_some_and(|n| n.up && n.draining != draining) {
            return;
        }
        self.state.cluster.set_node(node, true, draining);
        self.node_changed(node);
        self.progress.dirty = true;
        if draining {
            self.requeue_pending_on(node);
        }
    }

    /// Returns jobs that were placed on the node and not launched yet to the queue.
    fn requeue_pending_on(&mut self, node: NodeId) {
        let is_there = |id: &JobKey| {
            let allocation = self.state.job(*id).allocation.as_ref();
            allocation.is_some_and(|a| a.touches(node))
        };
        let placed: Vec<JobKey> = self.state.pending.iter().copied().filter(is_there).collect();
        for id in placed {
            self.dispatcher().take_back(id);
        }
    }
}
