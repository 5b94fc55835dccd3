//! What happens with results: files, and how a command prints them.

use std::path::{Path, PathBuf};

use dovetail_model::run::RunRecord;
use dovetail_report::ReportError;
use serde::{Deserialize, Serialize};

/// What a caller does with the results of a run; keys of a scenario file, like [`RunSpec`](crate::RunSpec).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct OutputSpec {
    /// Directory to write results to.
    pub out: Option<PathBuf>,
    /// The system whose result files are written as well.
    pub emit: Option<ResultLayout>,
    /// Print the result as JSON.
    pub json: bool,
    /// Print nothing but the result.
    pub quiet: bool,
}

/// A system whose result files can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultLayout {
    /// Muri's simulator: `job.csv` and `cluster.csv`.
    Muri,
}

impl ResultLayout {
    fn write(self, dir: &Path, record: &RunRecord) -> Result<(), ReportError> {
        match self {
            Self::Muri => dovetail_report::write_muri(dir, record).map(drop),
        }
    }
}

impl OutputSpec {
    /// Writes the files of one run, if a directory is given.
    ///
    /// # Errors
    /// If a file is not writable.
    pub fn write_run(&self, record: &RunRecord) -> Result<(), ReportError> {
        let Some(dir) = &self.out else { return Ok(()) };
        dovetail_report::write_run(dir, record)?;
        self.emit.map_or(Ok(()), |layout| layout.write(dir, record))
    }

    /// Writes the files of several runs, if a directory is given.
    ///
    /// # Errors
    /// If a file is not writable.
    pub fn write_comparison(&self, records: &[RunRecord]) -> Result<(), ReportError> {
        let Some(dir) = &self.out else { return Ok(()) };
        dovetail_report::write_comparison(dir, records)?;
        let Some(layout) = self.emit else { return Ok(()) };
        let names = dovetail_report::run_directories(records);
        let mut runs = records.iter().zip(names);
        runs.try_for_each(|(record, name)| layout.write(&dir.join(name), record))
    }
}
