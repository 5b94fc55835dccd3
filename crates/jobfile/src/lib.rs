//! Job files: native YAML or JSON, and job files of OpenPAI (protocol version 2), as a [`dovetail_cluster::JobRequest`].
//!
//! A native file has the keys of a job request. Some of them also have a form that is easier to write: `time_limit: 2h` for
//! `time_limit_s: 7200`, `memory_per_gpu: 16G` for `memory_mib_per_gpu: 16384`, a string instead of a list for `command`.
//! `dovetail submit`, `POST /api/v1/jobs` and `dovetail kube submit` all read files with this crate.
//!
//! ```
//! use dovetail_jobfile::JobFile;
//!
//! let file = JobFile::parse("command: python3 train.py\ngpus: 4\ntime_limit: 2h", "job.yaml")?;
//! assert_eq!((file.job.gpus, file.job.time_limit), (4, Some(dovetail_model::Time::from_secs(7200))));
//! # Ok::<(), dovetail_jobfile::JobFileError>(())
//! ```

mod array;
mod error;
mod file;
mod keys;
mod openpai;
mod values;

pub use array::ArrayRequest;
pub use error::{FileFault, JobFileError, KeyError};
pub use file::{JobFile, SCHEMA};
pub use openpai::LABEL as OPENPAI_LABEL;
