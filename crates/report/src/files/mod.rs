//! A run as a directory, for scripts and for later reports.
//!
//! | file | content |
//! |---|---|
//! | `summary.json` | the figures of the run, keys as in [`Summary`](dovetail_model::run::Summary) |
//! | `jobs.csv` | one row per job |
//! | `timeline.csv` | the cluster over time |
//! | `segments.csv` | which job held which GPUs |
//! | `nodes.csv` | GPU slots of each node |
//! | `job.csv`, `cluster.csv` | the run in the layout of another system, see [`write_muri`] |
//! | `report.html`, `figures/*.svg` | for people |
//!
//! A file is written under a temporary name and then renamed, so a partial file never has its final name.

mod completions;
mod csv_in;
mod csv_out;
mod jobs;
mod muri;
mod names;
mod read;
mod summary;
mod tables;
mod write;

pub use completions::{COMPLETION_METRICS, CompletionMetric, Completions, parse_completions};
pub use muri::write_muri;
pub use names::short_names;
pub use read::{read_run, read_runs};
pub use write::{run_directories, write_comparison, write_file, write_run};
