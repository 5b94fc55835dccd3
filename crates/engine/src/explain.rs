//! Why a job is pending. Explaining changes nothing.

use std::collections::{BTreeMap, VecDeque};

use dovetail_model::{JobKey, JobSpec, Reason, Time};
use serde::{Deserialize, Serialize};

use crate::admit::verdict;
use crate::engine::Engine;
use crate::feasibility::{NodeScope, never_fits};
use crate::job::{Job, RunState, Stage};
use crate::job_queues::Membership;
use crate::missing::DataCheck;
use crate::parts::{Ask, Verdict};
use crate::state::State;

/// What a job is doing, and why it is pending if it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Explanation {
    /// The job is unknown or has ended.
    Unknown,
    /// The job is running or starting.
    Running {
        /// When it got its GPUs.
        since: Time,
        /// Number of GPUs.
        gpus: u32,
        /// Number of nodes.
        nodes: u32,
    },
    /// The job is stopping.
    Stopping,
    /// The job is pending.
    Waiting {
        /// Since when it waits.
        since: Time,
        /// What prevents it from starting, the most important reason first.
        reasons: Vec<Reason>,
        /// Number of jobs ahead of it in the queue.
        ahead: u32,
    },
}

/// The positions of all queued jobs at one moment, for explaining many jobs with one sort of the queue.
#[derive(Debug, Clone, Default)]
pub struct QueuePositions {
    head: Option<JobKey>,
    ahead: BTreeMap<JobKey, u32>,
    /// Head of the lane and number of jobs ahead in it, of each job that admission holds.
    held: BTreeMap<JobKey, (JobKey, u32)>,
}

impl QueuePositions {
    pub(crate) fn new<'a>(queue: Vec<JobKey>, lanes: impl Iterator<Item = &'a VecDeque<JobKey>>) -> Self {
        let in_lane = |lane: &'a VecDeque<JobKey>| {
            let head = lane.front().copied();
            lane.iter()
                .zip(0..)
                .filter_map(move |(job, ahead)| Some((*job, (head?, ahead))))
        };
        Self {
            head: queue.first().copied(),
            ahead: queue.into_iter().zip(0..).collect(),
            held: lanes.flat_map(in_lane).collect(),
        }
    }

    /// Returns the number of jobs with a position.
    pub fn len(&self) -> usize {
        self.ahead.len() + self.held.len()
    }

    /// Returns whether no job has a position.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the head of the queue, and the number of jobs ahead of a job. One that was queued since is behind all others.
    fn of(&self, id: JobKey) -> (Option<JobKey>, u32) {
        let behind_all = u32::try_from(self.ahead.len()).unwrap_or(u32::MAX);
        (self.head, self.ahead.get(&id).copied().unwrap_or(behind_all))
    }
}

/// Finds out why jobs are pending.
pub(crate) struct Explainer<'a> {
    engine: &'a Engine,
    state: &'a State,
    /// The positions of queued jobs; none to sort the queue when they are needed.
    positions: Option<&'a QueuePositions>,
}

impl<'a> Explainer<'a> {
    pub(crate) fn new(engine: &'a Engine, positions: Option<&'a QueuePositions>) -> Self {
        Self {
            engine,
            state: &engine.state,
            positions,
        }
    }

    pub(crate) fn explain(&self, id: JobKey) -> Explanation {
        let Some(job) = self.state.find_job(id) else {
            return Explanation::Unknown;
        };
        if let (Some(a), true) = (&job.allocation, job.holds_gpus()) {
            return Explanation::Running {
                since: job.held_since,
                gpus: a.gpus(),
                nodes: a.nodes() as u32,
            };
        }
        // A job that moves waits for other jobs to vacate its new GPUs, if there are any, and otherwise for itself.
        let waits_for_others = |a| self.state.cluster.lingering_in(a) > 0;
        if matches!(job.run_state, RunState::Stopping(_))
            && !job.allocation.as_ref().is_some_and(waits_for_others)
        {
            return Explanation::Stopping;
        }
        let (mut reasons, ahead) = self.pending(job);
        if reasons.is_empty() {
            let at = self.engine.wake_at();
            reasons.push(Reason::NextRound { at });
        }
        reasons.extend(self.missing_data(id));
        Explanation::Waiting {
            since: job.waiting_since,
            reasons,
            ahead,
        }
    }

    /// Returns the data that the policy needs of a job and that are unknown.
    fn missing_data(&self, id: JobKey) -> impl Iterator<Item = Reason> {
        let missing = DataCheck::new(self.engine).of_job(id).into_iter();
        missing.map(|missing| Reason::MissingData {
            datum: missing.need.datum().to_owned(),
            effect: missing.without.to_owned(),
        })
    }

    /// Returns why a job is pending, and how many jobs are ahead of it.
    fn pending(&self, job: &Job) -> (Vec<Reason>, u32) {
        if job.stage != Stage::Admitted {
            let verdict = verdict(&mut self.engine.policy.clone(), self.state, job.spec.id);
            return match verdict {
                Verdict::Hold(reason) | Verdict::Reject(reason) => (vec![reason], 0),
                Verdict::Admit => self.held_ahead(&job.spec),
            };
        }
        let Some(allocation) = &job.allocation else {
            return self.queued(job);
        };
        let reason = match self.state.cluster.lingering_in(allocation) {
            0 => Reason::NotEnoughCpuOrMemory {
                cpu_milli_per_gpu: job.spec.cpu_milli_per_gpu,
                memory_mib_per_gpu: job.spec.memory_mib_per_gpu,
            },
            busy => Reason::WaitingForGpus { busy },
        };
        (vec![reason], 0)
    }

    /// Explains a job that is held behind others of its lane.
    fn held_ahead(&self, spec: &JobSpec) -> (Vec<Reason>, u32) {
        if let Some(positions) = self.positions {
            return match positions.held.get(&spec.id) {
                None | Some((_, 0)) => (Vec::new(), 0),
                Some((head, ahead)) => {
                    let (head, ahead) = (*head, *ahead);
                    (vec![Reason::BehindInQueue { head, ahead }], ahead)
                }
            };
        }
        let lane = self.engine.policy.admission.lane(spec);
        let held = self.state.held.get(&lane).into_iter().flatten();
        let mut ahead = held.take_while(|other| **other != spec.id);
        match ahead.next() {
            None => (Vec::new(), 0),
            Some(head) => {
                let ahead = 1 + ahead.count() as u32;
                (vec![Reason::BehindInQueue { head: *head, ahead }], ahead)
            }
        }
    }

    /// Explains a queued job: why it does not fit now, or which jobs are served first.
    fn queued(&self, job: &Job) -> (Vec<Reason>, u32) {
        let policy = &self.engine.policy;
        let ask = policy.sizing.ask(job, &self.state.cluster);
        let mut reasons = self.why_it_does_not_fit(job, &ask);
        let id = job.spec.id;
        let entry = self.state.jobs[id].as_ref();
        if entry.is_none_or(|e| e.membership != Membership::Queued) {
            return (reasons, 0);
        }
        let (head, ahead) = match self.positions {
            Some(positions) => positions.of(id),
            None => self.engine.queue_positions().of(id),
        };
        if let Some(head) = head.filter(|_| ahead > 0 && !policy.discipline.passes_over()) {
            reasons.push(Reason::BehindInQueue { head, ahead });
        }
        let reserved_for = self.engine.progress.reserved_for;
        if let Some((job, expected_start)) = reserved_for.filter(|(job, _)| *job != id && reasons.is_empty())
        {
            reasons.push(Reason::ReservedFor { job, expected_start });
        }
        (reasons, ahead)
    }

    /// Returns why the job cannot start on what is free now.
    fn why_it_does_not_fit(&self, job: &Job, ask: &Ask) -> Vec<Reason> {
        let (policy, cluster) = (&self.engine.policy, &self.state.cluster);
        // CPU, memory and node constraints may change while the job waits; the placement reports what they prevent now.
        let gpus_alone = JobSpec {
            gpu_type: ask.gpu_type,
            min_gpus: policy.sizing.min_gpus(&job.spec),
            ..JobSpec::new(job.spec.id, ask.gpus)
        };
        if let Some(reason) = never_fits(&gpus_alone, cluster, NodeScope::Open) {
            return vec![reason];
        }
        let free = cluster.free_gpus(ask.gpu_type);
        if free < ask.gpus && !policy.tenancy.has_limits() {
            return vec![Reason::NotEnoughFreeGpus {
                asked: ask.gpus,
                free,
            }];
        }
        let mut trial = policy.clone();
        match trial.tenancy.place(job, ask, cluster, &mut *trial.placement) {
            Ok(_) => Vec::new(),
            Err(reason) => {
                let mut reasons = vec![reason];
                reasons.extend(policy.tenancy.explain(job, ask));
                reasons
            }
        }
    }
}
