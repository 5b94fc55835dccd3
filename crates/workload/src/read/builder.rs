//! Collects the jobs of a trace into a [`Workload`].

use std::collections::BTreeMap;

use dovetail_model::ids::{Id, IdVec};
use dovetail_model::{GpuTypeId, ModelId, TenantId, Time, UserId, Work};

use super::Input;
use crate::error::TraceError;
use crate::job::{JobLabel, Names, TraceJob, Workload};

/// How the times of a trace relate to the start of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// They are used unchanged.
    Exact,
    /// They count from some start, which is kept unless they are so large that they must be Unix times.
    Relative,
    /// They are dates; the first job is submitted at zero.
    Dates,
}

/// Times from here on are treated as Unix times: September 2001.
const UNIX_TIME: Time = Time::from_secs(1_000_000_000);

/// Builds a workload.
pub(crate) struct Builder {
    file: String,
    source: String,
    jobs: Vec<TraceJob>,
    tenants: Interner,
    users: Interner,
    models: Interner,
    gpu_types: Interner,
    extra_columns: Vec<String>,
    skipped: BTreeMap<&'static str, u64>,
    notes: Vec<String>,
}

impl Builder {
    pub(crate) fn new(input: &Input<'_>) -> Self {
        let names = Names::default();
        Self {
            file: input.file.clone(),
            source: input.source.clone(),
            jobs: Vec::new(),
            tenants: Interner::with(names.tenants.values()),
            users: Interner::with(names.users.values()),
            models: Interner::default(),
            gpu_types: Interner::default(),
            extra_columns: Vec::new(),
            skipped: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Returns the tenant with this name; an empty name is the default tenant.
    pub(crate) fn tenant(&mut self, name: &str) -> TenantId {
        if name.is_empty() {
            TenantId(0)
        } else {
            self.tenants.id(name)
        }
    }

    /// Returns the user with this name; an empty name is the default user.
    pub(crate) fn user(&mut self, name: &str) -> UserId {
        if name.is_empty() {
            UserId(0)
        } else {
            self.users.id(name)
        }
    }

    /// Returns the model with this name; `None` if it is empty.
    pub(crate) fn model(&mut self, name: &str) -> Option<ModelId> {
        (!name.is_empty()).then(|| self.models.id(name))
    }

    /// Returns the GPU type with this name; `None` if it is empty.
    pub(crate) fn gpu_type(&mut self, name: &str) -> Option<GpuTypeId> {
        (!name.is_empty()).then(|| self.gpu_types.id(name))
    }

    /// Returns the number of rows read so far.
    pub(crate) fn rows(&self) -> u64 {
        self.jobs.len() as u64 + self.skipped.values().sum::<u64>()
    }

    pub(crate) fn push(&mut self, job: TraceJob) {
        self.jobs.push(job);
    }

    /// Returns GPUs and run time of a job; `None` if one of them is missing, so that the job is skipped.
    pub(crate) fn sized(&mut self, gpus: Option<u32>, work: Option<Work>) -> Option<(u32, Work)> {
        match (gpus, work) {
            (Some(gpus), Some(work)) => return Some((gpus, work)),
            (None, _) => self.skip("no GPU requested"),
            (_, None) => self.skip("run time of zero or less"),
        }
        None
    }

    /// Counts a skipped job with the reason, such as "no GPU requested".
    pub(crate) fn skip(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Returns the extra columns so far.
    pub(crate) fn extra_columns(&self) -> &[String] {
        &self.extra_columns
    }

    /// Returns the position of an extra column, which is added if it is new.
    pub(crate) fn extra_column(&mut self, name: &str) -> usize {
        let known = self.extra_columns.iter().position(|c| c == name);
        known.unwrap_or_else(|| {
            self.extra_columns.push(name.to_owned());
            self.extra_columns.len() - 1
        })
    }

    /// Returns the workload: jobs in order of submission, names numbered in order of first use.
    pub(crate) fn finish(mut self, clock: Clock) -> Result<Workload, TraceError> {
        for (reason, count) in &self.skipped {
            let jobs = if *count == 1 { "job" } else { "jobs" };
            self.notes.push(format!("skipped {count} {jobs}: {reason}"));
        }
        if self.jobs.is_empty() {
            return Err(TraceError::NoJobs {
                file: self.file,
                notes: self.notes,
            });
        }
        self.jobs.sort_by_key(|j| j.submit);
        self.set_clock(clock);
        if let Some(count) = repeated_labels(&self.jobs) {
            self.notes
                .push(format!("{count} job ids are used by more than one job"));
        }
        self.even_out_extras();
        let Self {
            source,
            mut jobs,
            tenants,
            users,
            models,
            gpu_types,
            extra_columns,
            notes,
            ..
        } = self;
        let names = Names {
            tenants: tenants.by_use(1, jobs.iter_mut().map(|j| Some(&mut j.tenant))),
            users: users.by_use(1, jobs.iter_mut().map(|j| Some(&mut j.user))),
            models: models.by_use(0, jobs.iter_mut().map(|j| j.model.as_mut())),
            gpu_types: gpu_types.by_use(0, jobs.iter_mut().map(|j| j.gpu_type.as_mut())),
        };
        Ok(Workload {
            source,
            jobs,
            names,
            extra_columns,
            notes,
        })
    }

    fn set_clock(&mut self, clock: Clock) {
        let first = self.jobs.first().map_or(Time::ZERO, |j| j.submit);
        let shift = match clock {
            Clock::Exact => Time::ZERO,
            Clock::Relative if first < UNIX_TIME => Time::ZERO,
            Clock::Relative => {
                self.notes.push(
                    "submit times are Unix times; shifted so that the first job is submitted at 0".to_owned(),
                );
                first
            }
            Clock::Dates => first,
        };
        for job in &mut self.jobs {
            job.submit -= shift;
            job.deadline = job.deadline.map(|d| d - shift);
        }
    }

    /// Extends the extra columns of all jobs to the same length: in JSON lines, later rows may add columns.
    fn even_out_extras(&mut self) {
        let width = self.extra_columns.len();
        for job in &mut self.jobs {
            if job
                .extra
                .as_deref()
                .is_some_and(|e| e.iter().all(|t| t.is_empty()))
            {
                job.extra = None;
            }
            if let Some(extra) = job.extra.take_if(|e| e.len() < width) {
                let mut extra = extra.into_vec();
                extra.resize(width, Box::default());
                job.extra = Some(extra.into_boxed_slice());
            }
        }
    }
}

/// Returns the number of labels that several jobs have; `None` if all differ.
fn repeated_labels(jobs: &[TraceJob]) -> Option<usize> {
    let mut labels: Vec<&JobLabel> = jobs.iter().map(|j| &j.label).collect();
    if labels.is_sorted_by(|a, b| a < b) {
        return None;
    }
    labels.sort_unstable();
    let count = labels
        .chunk_by(|a, b| a == b)
        .filter(|same| same.len() > 1)
        .count();
    (count > 0).then_some(count)
}

/// Numbers names in order of appearance.
#[derive(Debug, Default)]
struct Interner {
    ids: BTreeMap<Box<str>, usize>,
    names: Vec<String>,
}

impl Interner {
    fn with<'n>(names: impl Iterator<Item = &'n String>) -> Self {
        let mut interner = Self::default();
        for name in names {
            interner.index(name);
        }
        interner
    }

    fn id<I: Id>(&mut self, name: &str) -> I {
        I::from_index(self.index(name))
    }

    fn index(&mut self, name: &str) -> usize {
        if let Some(index) = self.ids.get(name) {
            return *index;
        }
        self.names.push(name.to_owned());
        self.ids.insert(name.into(), self.names.len() - 1);
        self.names.len() - 1
    }

    /// Renumbers the names in order of use, except for the first `fixed`, and drops unused ones.
    fn by_use<'j, I: Id + 'j>(
        mut self,
        fixed: usize,
        ids: impl Iterator<Item = Option<&'j mut I>>,
    ) -> IdVec<I, String> {
        let mut new_index: Vec<Option<usize>> = vec![None; self.names.len()];
        let mut names: Vec<String> = Vec::new();
        for (slot, name) in new_index.iter_mut().zip(&mut self.names).take(fixed) {
            *slot = Some(names.len());
            names.push(std::mem::take(name));
        }
        for id in ids.flatten() {
            let old = id.index();
            let new = *new_index[old].get_or_insert_with(|| {
                names.push(std::mem::take(&mut self.names[old]));
                names.len() - 1
            });
            *id = I::from_index(new);
        }
        names.into_iter().collect()
    }
}
