//! What was known at a moment of a replay.

use std::collections::{BTreeMap, VecDeque};

use dovetail_engine::{Engine, Job};
use dovetail_model::{Command, Event, JobKey, JobSpec, Time, Work};
use dovetail_sim::SimConfig;
use dovetail_workload::Workload;

use crate::history::{History, JobTraits, MAX_FINISHED, ObservedJob};
use crate::neighbours::{SubmittedJob, neighbours};
use crate::outlook::{Arrival, JobHint, MAX_ARRIVALS, Outlook};

/// What happened so far in a replay.
#[derive(Debug)]
pub(super) struct Past<'a> {
    workload: &'a Workload,
    config: SimConfig,
    /// What was submitted, in order of the keys.
    specs: Vec<JobSpec>,
    /// When each job first got GPUs.
    starts: BTreeMap<JobKey, Time>,
    /// Work of each job that has finished.
    works: BTreeMap<JobKey, Work>,
    finished: VecDeque<ObservedJob>,
    /// Jobs that were submitted since the last call of [`Past::take_waiting`].
    new: Vec<JobKey>,
}

impl<'a> Past<'a> {
    pub(super) fn new(workload: &'a Workload, config: &SimConfig) -> Self {
        Self {
            workload,
            config: config.for_future(),
            specs: Vec::new(),
            starts: BTreeMap::new(),
            works: BTreeMap::new(),
            finished: VecDeque::new(),
            new: Vec::new(),
        }
    }

    /// Follows an event.
    pub(super) fn event(&mut self, now: Time, event: &Event, engine: &Engine) {
        match event {
            Event::Submitted(spec) => {
                self.new.push(spec.id);
                self.specs.push(spec.clone());
            }
            Event::Exited { job, .. } => {
                let Some(job) = engine.job(*job) else { return };
                self.works.insert(job.spec.id, job.done(now));
                if self.finished.len() >= MAX_FINISHED {
                    self.finished.pop_front();
                }
                let observed = self.observed(job, now, true);
                self.finished.extend(observed);
            }
            _ => {}
        }
    }

    /// Follows a command. Returns the job that gets GPUs for the first time, if one does.
    pub(super) fn command(&mut self, now: Time, command: &Command) -> Option<JobKey> {
        let Command::Launch { job, .. } = command else {
            return None;
        };
        let is_first = !self.starts.contains_key(job);
        self.starts.entry(*job).or_insert(now);
        is_first.then_some(*job)
    }

    /// Returns the jobs that were submitted since the last call and wait.
    pub(super) fn take_waiting(&mut self, engine: &Engine) -> Vec<JobKey> {
        let mut new = std::mem::take(&mut self.new);
        new.retain(|id| !self.starts.contains_key(id) && engine.job(*id).is_some());
        new
    }

    pub(super) fn submitted(&self, id: JobKey) -> &JobSpec {
        &self.specs[id.0 as usize]
    }

    fn traits(&self, id: JobKey) -> JobTraits {
        let job = &self.workload.jobs[id.0 as usize];
        let names = &self.workload.names;
        JobTraits {
            user: names.users[job.user].clone(),
            name: job
                .model
                .map_or(String::new(), |model| names.models[model].clone()),
            tenant: names.tenants[job.tenant].clone(),
            gpus: job.gpus,
        }
    }

    fn hint(&self, id: JobKey) -> JobHint {
        JobHint {
            traits: self.traits(id),
            expected: self.submitted(id).expected,
            checkpoint: self.workload.jobs[id.0 as usize].checkpoint,
            ..JobHint::default()
        }
    }

    fn observed(&self, job: &Job, now: Time, is_finished: bool) -> Option<ObservedJob> {
        Some(ObservedJob {
            traits: self.traits(job.spec.id),
            started: job.first_start?,
            work: job.done(now),
            is_finished,
            expected: job.spec.expected,
        })
    }

    /// Returns the latest jobs, oldest first.
    fn latest(&self, count: usize) -> impl Iterator<Item = &JobSpec> {
        self.specs[self.specs.len().saturating_sub(count)..].iter()
    }

    /// Returns the present state with what is known now.
    pub(super) fn outlook(&self, engine: &Engine) -> Outlook {
        let mut observed: Vec<ObservedJob> = self.finished.iter().cloned().collect();
        observed.extend(
            engine
                .jobs()
                .filter_map(|job| self.observed(job, engine.now(), false)),
        );
        let submitted = |spec: &JobSpec| SubmittedJob {
            key: Some(spec.id),
            submitted: spec.submit,
            traits: self.traits(spec.id),
            work: self.works.get(&spec.id).copied(),
        };
        let submitted: Vec<SubmittedJob> = self.latest(MAX_FINISHED).map(submitted).collect();
        let arrival = |spec: &JobSpec| Arrival {
            spec: spec.clone(),
            hint: self.hint(spec.id),
            work: self.works.get(&spec.id).copied(),
        };
        let hint = |job: &Job| (job.spec.id, self.hint(job.spec.id));
        Outlook {
            engine: engine.clone(),
            first_new: JobKey(self.specs.len() as u32),
            config: self.config.clone(),
            history: History::new(observed),
            arrivals: self.latest(MAX_ARRIVALS).map(arrival).collect(),
            hints: engine.jobs().map(hint).collect(),
            neighbours: neighbours(&submitted),
        }
    }
}
