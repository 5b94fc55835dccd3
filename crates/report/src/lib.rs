//! Results of a run: files, figures and one self-contained HTML page.
//!
//! Everything here is a pure function of [`RunRecord`](dovetail_model::run::RunRecord)s; only [`files`] touches the
//! disk. The same input always gives the same bytes, no number ever prints as `NaN`, and nothing refers to the network.
//!
//! ```
//! use dovetail_model::run::RunRecord;
//!
//! let page = dovetail_report::html(&[RunRecord::default()], "An empty run");
//! assert!(page.starts_with("<!doctype html>"));
//! ```

pub mod error;
pub mod figures;
pub mod files;
pub mod format;
pub mod html;
pub mod lanes;
pub mod stats;
pub mod svg;

pub use error::ReportError;
pub use figures::{
    BarSeries, LineChart, Series, compare_bars, gantt, grouped_bars, interleaving, jct_cdf, lines,
    queue_length, utilization, wait_cdf,
};
pub use files::{
    Completions, parse_completions, read_run, read_runs, run_directories, write_comparison, write_muri,
    write_run,
};
pub use html::{html, html_of_experiment, html_with};
pub use svg::{AxisKind, Figure};
