//! The jobs of a run: those of a trace, or those that a live engine has and the ones that arrive after them.

use std::borrow::Cow;

use dovetail_model::{Event, JobKey, JobSpec, Rate, Stages, Time, Work};
use dovetail_workload::{JobLabel, TraceJob, Workload};

use super::resume::{Future, FutureJob, TrueJob};
use crate::truth::KnowledgeFilter;

/// The jobs of a run, in the order in which the run got to know them.
pub(super) struct Jobs<'a> {
    all: Cow<'a, [TraceJob]>,
    /// Keys of the jobs that a live engine had, in order; empty for a trace.
    known: Vec<JobKey>,
    /// Key of the first job that was submitted during the run.
    first_new: JobKey,
    source: JobSource<'a>,
}

/// Where jobs come from.
enum JobSource<'a> {
    /// A trace.
    Trace(KnowledgeFilter),
    /// A live engine, and what happens after it.
    Live {
        future: &'a mut dyn Future,
        /// The next job that is submitted.
        next: Option<FutureJob>,
        /// Stages of the jobs so far.
        stages: Vec<Option<Stages>>,
    },
}

impl<'a> Jobs<'a> {
    pub(super) fn of_trace(workload: &'a Workload, filter: KnowledgeFilter) -> Self {
        Self {
            all: Cow::Borrowed(&workload.jobs),
            known: Vec::new(),
            first_new: JobKey(0),
            source: JobSource::Trace(filter),
        }
    }

    /// Returns the jobs of a live engine, none of them known yet. Later ones get keys from `first_new` on.
    pub(super) fn of_engine(first_new: JobKey, future: &'a mut dyn Future) -> Self {
        let next = future.next_job();
        Self {
            all: Cow::Owned(Vec::new()),
            known: Vec::new(),
            first_new,
            source: JobSource::Live {
                future,
                next,
                stages: Vec::new(),
            },
        }
    }

    /// Adds a job that a live engine has. Keys must ascend.
    pub(super) fn add_known(&mut self, spec: &JobSpec, truth: TrueJob) {
        self.known.push(spec.id);
        self.add(spec, truth);
    }

    /// Returns what is true of a job that a live engine has.
    pub(super) fn truth(&mut self, job: &dovetail_engine::Job) -> TrueJob {
        match &mut self.source {
            JobSource::Live { future, .. } => future.truth(job),
            JobSource::Trace(_) => unreachable!("the jobs of a trace are known"),
        }
    }

    fn add(&mut self, spec: &JobSpec, truth: TrueJob) {
        self.all.to_mut().push(TraceJob {
            tenant: spec.tenant,
            user: spec.user,
            priority: spec.priority,
            model: spec.model,
            min_gpus: spec.min_gpus,
            max_gpus: spec.max_gpus,
            scaling: spec.scaling.clone(),
            sensitivity: spec.sensitivity.clone(),
            checkpoint: truth.checkpoint,
            ..TraceJob::new(
                JobLabel::Number(spec.id.0.into()),
                spec.submit,
                truth.work,
                spec.gpus,
            )
        });
        if let JobSource::Live { stages, .. } = &mut self.source {
            stages.push(spec.stages);
        }
    }

    /// Returns the position of a job.
    pub(super) fn position(&self, id: JobKey) -> usize {
        match id.0.checked_sub(self.first_new.0) {
            Some(later) => self.known.len() + later as usize,
            None => self.known.partition_point(|known| *known < id),
        }
    }

    pub(super) fn get(&self, id: JobKey) -> &TraceJob {
        &self.all[self.position(id)]
    }

    /// Counts the progress of a job that reports its steps as a live cluster does: as a share of the run time that the policy
    /// expects.
    pub(super) fn count_in_steps(&self, event: &mut Event) {
        let (Event::Started { job, .. } | Event::Progressed { job, .. } | Event::Stopped { job, .. }) = event
        else {
            return;
        };
        let job = self.get(*job);
        let (Some(expected), Some(_), true) = (job.expected(), job.iterations, job.work > Work(0)) else {
            return;
        };
        let share = |done: Work| {
            let done = u128::from(done.0) * u128::from(expected.0) / u128::from(job.work.0);
            Work(u64::try_from(done).unwrap_or(u64::MAX))
        };
        let speed = Rate::from_factor(expected.as_secs_f64() / job.work.as_secs_f64());
        match event {
            Event::Started { rate, .. } => *rate = rate.times(speed),
            Event::Progressed { done, rate, .. } => (*done, *rate) = (share(*done), rate.times(speed)),
            Event::Stopped { done, .. } => *done = share(*done),
            _ => {}
        }
    }

    /// Learns from a job that has ended, if run times are predicted. Returns when it was submitted.
    pub(super) fn finish(&mut self, id: JobKey) -> Time {
        let job = &self.all[self.position(id)];
        if let JobSource::Trace(filter) = &mut self.source {
            filter.learn(job);
        }
        job.submit
    }

    /// Returns all jobs so far, or all of the trace.
    pub(super) fn all(&self) -> &[TraceJob] {
        &self.all
    }

    /// Returns the stages of a job's iterations, where they are known.
    pub(super) fn stages(&self, id: JobKey) -> Option<Stages> {
        match &self.source {
            JobSource::Trace(filter) => filter.stages(self.get(id)),
            JobSource::Live { stages, .. } => stages[self.position(id)],
        }
    }

    /// Returns when the next job is submitted; `submitted` jobs were.
    pub(super) fn next_submission(&self, submitted: usize) -> Option<Time> {
        match &self.source {
            JobSource::Trace(_) => self.all.get(submitted).map(|job| job.submit),
            JobSource::Live { next, .. } => next.as_ref().map(|job| job.spec.submit),
        }
    }

    /// Returns the next job as the engine gets it; `submitted` jobs were.
    pub(super) fn submit_next(&mut self, submitted: usize) -> Option<JobSpec> {
        let id = JobKey(self.first_new.0 + (submitted - self.known.len()) as u32);
        match &mut self.source {
            JobSource::Trace(filter) => self.all.get(submitted).map(|job| filter.spec(id, job)),
            JobSource::Live { future, next, .. } => {
                let job = std::mem::replace(next, future.next_job())?;
                let spec = JobSpec { id, ..job.spec };
                self.add(&spec, job.truth);
                Some(spec)
            }
        }
    }
}
