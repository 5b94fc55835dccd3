//! Turning changes of allocations into commands.

use std::collections::VecDeque;

use dovetail_model::stages::Ordering;
use dovetail_model::{Allocation, Command, InterleavingTerms, JobKey, StopReason};
use smallvec::SmallVec;

use crate::draft::Changes;
use crate::job::RunState;
use crate::parts::Tenancy;
use crate::planner::same_gpus;
use crate::state::State;

/// Issues commands, and keeps the state in step with them.
pub(crate) struct Dispatcher<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) tenancy: &'a mut dyn Tenancy,
    pub(crate) commands: &'a mut VecDeque<Command>,
    /// Number of the current decision.
    pub(crate) decision: u64,
    /// The order in which jobs on the same GPUs interleave their stages, if the policy assumes that they do.
    pub(crate) interleaving: Option<Ordering>,
}

impl Dispatcher<'_> {
    /// Issues the commands that make the changes of a draft come true, except launches.
    pub(crate) fn apply(&mut self, changes: Changes) {
        // Newly placed jobs get no command until they can be launched, so they leave the queue together, by key.
        let Changes { mut placed, changed } = changes;
        placed.sort_unstable();
        self.state.leave_queues(&placed);
        self.state.add_pending(&placed);
        placed.into_iter().for_each(|id| self.state.holder_changed(id));
        for (id, before) in changed {
            self.change_holder(id, before);
        }
    }

    /// Stops, moves or resizes a job that held `before`.
    fn change_holder(&mut self, id: JobKey, before: Allocation) {
        let job = self.state.job(id);
        let holds_gpus = job.holds_gpus();
        match job.allocation.clone() {
            None => {
                self.state.pending.remove(&id);
                if holds_gpus {
                    self.stop(id, before, StopReason::Preempted);
                } else {
                    self.state.entry(id).job.granted = None;
                    self.state.mark_stale(id);
                }
            }
            Some(target) if same_gpus(&before, &target) && holds_gpus => {
                if !self.state.fills {
                    self.resize(id, target);
                }
            }
            Some(target) => {
                if holds_gpus {
                    let reason = match before.gpus() == target.gpus() {
                        true => StopReason::Moved,
                        false => StopReason::Resized,
                    };
                    self.stop(id, before, reason);
                }
                self.state.pending.insert(id);
                self.state.holder_changed(id);
            }
        }
    }

    /// Commands a job to stop. It has lost its GPUs, but they linger until it has stopped.
    pub(crate) fn stop(&mut self, id: JobKey, held: Allocation, reason: StopReason) {
        self.begin_stopping(id, held, reason);
        self.commands.push_back(Command::Stop {
            job: id,
            attempt: self.state.job(id).attempt,
            reason,
        });
    }

    /// Records that a job is stopping.
    pub(crate) fn begin_stopping(&mut self, id: JobKey, held: Allocation, reason: StopReason) {
        let now = self.state.now;
        let held = self.state.entry(id).job.granted.take().unwrap_or(held);
        self.state.cluster.add_lingering(&held);
        self.state.touch(&held);
        let job = &mut self.state.entry(id).job;
        let span = now.since(job.held_since);
        job.done = job.done(now);
        job.done_at = now;
        job.held_before += span;
        job.gpu_time_before += i128::from(span.0) * i128::from(held.gpus());
        job.run_state = RunState::Stopping(held);
        job.waiting_since = now;
        job.preemptions += u32::from(reason == StopReason::Preempted);
        job.stopped_in = self.decision;
        self.state.mark_stale(id);
    }

    /// Commands the CPU and memory that a running job has from now on.
    pub(crate) fn resize(&mut self, id: JobKey, allocation: Allocation) {
        self.commands.push_back(Command::Resize {
            job: id,
            attempt: self.state.job(id).attempt,
            allocation,
        });
    }

    /// Launches every placed job whose GPUs are vacated.
    pub(crate) fn launch_ready(&mut self) {
        if self.state.pending.is_empty() {
            return;
        }
        let now = self.state.now;
        let mut pending = std::mem::take(&mut self.state.pending);
        let is_ready = |id: &JobKey| {
            let job = self.state.job(*id);
            let allocation = job.allocation.as_ref().expect("a pending job is placed");
            job.run_state == RunState::Idle && self.state.cluster.is_vacated(allocation)
        };
        let ready: SmallVec<[JobKey; 16]> = pending.iter().copied().filter(is_ready).collect();
        if ready.len() == pending.len() {
            pending.clear();
        } else {
            pending.retain(|id| ready.binary_search(id).is_err());
        }
        self.state.pending = pending;
        self.commands.reserve(ready.len());
        for id in ready {
            let job = &mut self.state.entry(id).job;
            job.attempt.0 += 1;
            job.run_state = RunState::Starting;
            job.held_since = now;
            job.first_start.get_or_insert(now);
            let allocation = job.current_allocation().cloned();
            let interleaving = self.interleaving.zip(job.spec.stages);
            self.commands.push_back(Command::Launch {
                job: id,
                attempt: job.attempt,
                allocation: allocation.expect("a pending job is placed"),
                interleaving: interleaving.map(|(ordering, stages)| InterleavingTerms { stages, ordering }),
            });
        }
    }

    /// Takes the GPUs of a holder back outside a draft.
    pub(crate) fn take_back(&mut self, id: JobKey) -> Allocation {
        let held = self.state.entry(id).job.allocation.take();
        let held = held.expect("a holder has an allocation");
        self.state.release(id, &held, self.tenancy);
        self.state.pending.remove(&id);
        self.state.mark_stale(id);
        let job = &mut self.state.entry(id).job;
        if !job.holds_gpus() {
            job.granted = None;
        }
        held
    }
}
