//! "Why does it wait?" as a query of the engine. Looking changes nothing.

use dovetail_model::{JobId, Reason, Time};
use serde::{Deserialize, Serialize};

use crate::admit::verdict;
use crate::engine::Engine;
use crate::job::{Live, Stage};
use crate::parts::Verdict;
use crate::state::Seat;

/// Where a job is and what keeps it there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Explanation {
    /// No such job, or it is done.
    Unknown,
    /// It runs, or is starting.
    Running {
        /// Since when.
        since: Time,
        /// On how many GPUs.
        gpus: u32,
        /// On how many nodes.
        nodes: u32,
    },
    /// It was told to stop.
    Stopping,
    /// It waits.
    Waiting {
        /// Since when.
        since: Time,
        /// What stands in its way, first things first.
        reasons: Vec<Reason>,
        /// How many jobs wait ahead of it.
        ahead: u32,
    },
}

impl Engine {
    /// Jobs that wait for GPUs, in the order of the line.
    pub fn line(&self) -> Vec<JobId> {
        let line = self.state.waiting.sorted(self.state.now);
        line.iter().map(|rank| rank.job).collect()
    }

    /// Why the job is where it is.
    pub fn explain(&self, id: JobId) -> Explanation {
        let Some(job) = self.state.job(id) else {
            return Explanation::Unknown;
        };
        if let (Some(a), true) = (&job.allocation, job.is_up()) {
            return Explanation::Running {
                since: job.held_since,
                gpus: a.gpus(),
                nodes: a.nodes() as u32,
            };
        }
        // A job that moves waits for others' GPUs, if there are any to wait for, and else for itself.
        let waits_for_others = |a| self.state.cluster.busy_gpus(a) > 0;
        if matches!(job.live, Live::Stopping(_)) && !job.allocation.as_ref().is_some_and(waits_for_others) {
            return Explanation::Stopping;
        }
        let mut reasons = Vec::new();
        let mut ahead = 0;
        if job.stage != Stage::Active {
            match verdict(&mut self.policy.clone(), &self.state, id) {
                Verdict::Hold(reason) | Verdict::Reject(reason) => reasons.push(reason),
                Verdict::Admit => ahead = self.held_ahead(id, &mut reasons),
            }
        } else if let Some(allocation) = &job.allocation {
            reasons.push(match self.state.cluster.busy_gpus(allocation) {
                0 => Reason::NotEnoughCpuOrMemory {
                    cpu_milli_per_gpu: job.spec.cpu_milli_per_gpu,
                    memory_mib_per_gpu: job.spec.memory_mib_per_gpu,
                },
                busy => Reason::WaitingForGpus { busy },
            });
        } else {
            ahead = self.standing_ahead(id, &mut reasons);
        }
        if reasons.is_empty() {
            reasons.push(Reason::NextRound { at: self.wake_at() });
        }
        Explanation::Waiting {
            since: job.waiting_since,
            reasons,
            ahead,
        }
    }

    /// How many wait ahead, and why the job could not start on what is free now.
    fn standing_ahead(&self, id: JobId, reasons: &mut Vec<Reason>) -> u32 {
        let job = self.state.known(id);
        let ask = self.policy.sizing.ask(job, &self.state.cluster);
        let free = self.state.cluster.free_gpus(ask.gpu_type);
        let total = self.state.cluster.total_gpus(ask.gpu_type);
        if total < ask.gpus {
            reasons.push(Reason::NeverFits {
                asked: ask.gpus,
                largest: total,
                gpu_type: ask.gpu_type,
            });
        } else if free < ask.gpus && !self.policy.tenancy.limits() {
            reasons.push(Reason::NotEnoughFreeGpus {
                asked: ask.gpus,
                free,
            });
        } else {
            let mut trial = self.policy.clone();
            if let Err(reason) = trial
                .tenancy
                .place(job, &ask, &self.state.cluster, &mut *trial.placement)
            {
                reasons.push(reason);
                reasons.extend(self.policy.tenancy.explain(job, &ask));
            }
        }
        let in_line = self.state.jobs[id]
            .as_ref()
            .is_some_and(|e| e.seat == Seat::Waiting);
        if !in_line {
            return 0;
        }
        let line = self.state.waiting.sorted(self.state.now);
        let ahead = line.iter().position(|r| r.job == id).unwrap_or(0) as u32;
        if ahead > 0 && !self.policy.discipline.passes_over() {
            reasons.push(Reason::BehindInLine {
                head: line[0].job,
                ahead,
            });
        }
        let kept_for_another = self
            .books
            .kept_for
            .filter(|(kept, _)| *kept != id && reasons.is_empty());
        if let Some((job, expected_start)) = kept_for_another {
            reasons.push(Reason::ReservedFor { job, expected_start });
        }
        ahead
    }

    /// How many jobs are held ahead of it in its lane: they are let in first.
    fn held_ahead(&self, id: JobId, reasons: &mut Vec<Reason>) -> u32 {
        let lane = self.policy.admission.lane(&self.state.known(id).spec);
        let Some(held) = self.state.held.get(&lane) else {
            return 0;
        };
        let ahead = held.iter().take_while(|other| **other != id).count() as u32;
        if let Some(head) = held.front().filter(|_| ahead > 0) {
            reasons.push(Reason::BehindInLine { head: *head, ahead });
        }
        ahead
    }
}
