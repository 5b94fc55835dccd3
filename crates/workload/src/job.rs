//! A workload in memory: jobs in order of submission, and the names of their ids.

use std::num::NonZeroU64;
use std::sync::Arc;

use dovetail_model::ids::IdVec;
use dovetail_model::{GpuTypeId, ModelId, Scaling, Sensitivity, TenantId, Time, UserId, Work};
use serde::{Deserialize, Serialize};

/// The id a job has in its own trace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum JobLabel {
    /// A number.
    Number(u64),
    /// Anything else.
    Text(Box<str>),
}

impl JobLabel {
    /// Returns a number if the text is one in plain form (`7`, not `007`), else the text itself.
    pub fn from_text(text: &str) -> Self {
        let plain = !text.is_empty() && (text == "0" || !text.starts_with('0'));
        let digits = plain && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits => Self::Number(number),
            _ => Self::Text(text.into()),
        }
    }
}

impl std::fmt::Display for JobLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Text(t) => t.fmt(f),
        }
    }
}

/// One job of a trace, including its true run time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceJob {
    /// Id of the job in the trace.
    pub label: JobLabel,
    /// The tenant (virtual cluster).
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
    /// Priority; larger is more urgent.
    pub priority: i32,
    /// The model, if known.
    pub model: Option<ModelId>,
    /// Required GPU type.
    pub gpu_type: Option<GpuTypeId>,
    /// Submission time; the first job of a trace is submitted at or after zero.
    pub submit: Time,
    /// Run time at full speed, alone, on the requested GPUs.
    pub work: Work,
    /// Requested GPUs.
    pub gpus: u32,
    /// The share of each GPU, in milli-GPU.
    pub gpu_milli: u32,
    /// Minimum GPUs of an elastic job; equal to `gpus` for rigid ones.
    pub min_gpus: u32,
    /// Maximum GPUs of an elastic job.
    pub max_gpus: u32,
    /// How speed grows with GPUs.
    pub scaling: Scaling,
    /// CPU per GPU, in milli-cores; zero if unspecified.
    pub cpu_milli_per_gpu: u32,
    /// Memory per GPU, in MiB; zero if unspecified.
    pub memory_mib_per_gpu: u64,
    /// Memory it uses on each of its GPUs, in MiB; zero if unknown.
    #[serde(default)]
    pub gpu_memory_mib: u64,
    /// Deadline.
    pub deadline: Option<Time>,
    /// Run time in microseconds that its user or a profile stated at submission; see [`TraceJob::expected`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_us: Option<NonZeroU64>,
    /// Interval between checkpoints; `None` keeps all work.
    pub checkpoint: Option<Time>,
    /// Total number of iterations, if the trace has it.
    pub iterations: Option<u64>,
    /// Speed as a function of CPU and memory, if its model was measured.
    #[serde(skip)]
    pub sensitivity: Option<Arc<Sensitivity>>,
    /// Values of the other columns of the trace: one text for each of [`Workload::extra_columns`], empty if it has no value.
    /// `None` if all are empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Box<[Box<str>]>>,
}

impl TraceJob {
    /// Returns a rigid job with a size only.
    pub fn new(label: JobLabel, submit: Time, work: Work, gpus: u32) -> Self {
        Self {
            label,
            tenant: TenantId(0),
            user: UserId(0),
            priority: 0,
            model: None,
            gpu_type: None,
            submit,
            work,
            gpus,
            gpu_milli: 1000,
            min_gpus: gpus,
            max_gpus: gpus,
            scaling: Scaling::Linear,
            cpu_milli_per_gpu: 0,
            memory_mib_per_gpu: 0,
            gpu_memory_mib: 0,
            deadline: None,
            expected_us: None,
            checkpoint: None,
            iterations: None,
            sensitivity: None,
            extra: None,
        }
    }

    /// Returns the run time that was stated at submission, at full speed, alone, on the requested GPUs.
    pub fn expected(&self) -> Option<Work> {
        self.expected_us.map(|us| Work(us.get()))
    }

    /// Returns run time times GPUs.
    pub fn gpu_seconds(&self) -> f64 {
        self.work.as_secs_f64() * f64::from(self.gpus) * f64::from(self.gpu_milli) / 1000.0
    }

    /// Returns the text in an extra column; `None` if it is empty.
    pub fn extra_text(&self, column: usize) -> Option<&str> {
        self.extra
            .as_deref()?
            .get(column)
            .map(AsRef::as_ref)
            .filter(|t: &&str| !t.is_empty())
    }
}

/// Names of the ids of a workload. The first tenant and user stand for "unspecified".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Tenants.
    pub tenants: IdVec<TenantId, String>,
    /// Users.
    pub users: IdVec<UserId, String>,
    /// Models.
    pub models: IdVec<ModelId, String>,
    /// GPU types.
    pub gpu_types: IdVec<GpuTypeId, String>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            tenants: ["default".to_owned()].into_iter().collect(),
            users: ["anyone".to_owned()].into_iter().collect(),
            models: IdVec::default(),
            gpu_types: IdVec::default(),
        }
    }
}

/// A workload: jobs sorted by submission, ties in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Workload {
    /// Name of the source, for messages ("philly.csv.gz", "philly-like, seed 1").
    pub source: String,
    /// The jobs.
    pub jobs: Vec<TraceJob>,
    /// Names of their ids.
    pub names: Names,
    /// Names of the columns without a field of their own, which jobs keep as text in [`TraceJob::extra`].
    #[serde(default)]
    pub extra_columns: Vec<String>,
    /// Notes of the reader for the user: columns kept as text, rows that were skipped and why.
    pub notes: Vec<String>,
}

impl Workload {
    /// Returns the time from the first submission to the last.
    pub fn span(&self) -> Time {
        match (self.jobs.first(), self.jobs.last()) {
            (Some(first), Some(last)) => last.submit.since(first.submit),
            _ => Time::ZERO,
        }
    }

    /// Returns run time times GPUs of all jobs.
    pub fn gpu_seconds(&self) -> f64 {
        self.jobs.iter().map(TraceJob::gpu_seconds).sum()
    }

    /// Returns the position of a column in [`TraceJob::extra`].
    pub fn extra_column(&self, name: &str) -> Option<usize> {
        self.extra_columns.iter().position(|c| c == name)
    }

    /// Returns the number in an extra column of a job ("resource_time_0" of a Muri trace), if there is one.
    pub fn extra_f64(&self, job: &TraceJob, column: &str) -> Option<f64> {
        job.extra_text(self.extra_column(column)?)?.trim().parse().ok()
    }
}
