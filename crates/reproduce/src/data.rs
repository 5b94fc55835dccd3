//! The public traces and results that experiments read.

use std::path::{Path, PathBuf};

use dovetail_workload::{Format, Workload, read};

use crate::{Options, ReproduceError};

/// Returns a folder of the public data.
pub(crate) fn data_folder(options: &Options, name: &str) -> Result<PathBuf, ReproduceError> {
    find_data(options.data.as_deref(), name)
}

/// Returns a folder of the public data below `data`, `$DOVETAIL_SHARED/data` or `../shared/data`.
///
/// # Errors
/// Fails when there is no such folder.
pub fn find_data(data: Option<&Path>, name: &str) -> Result<PathBuf, ReproduceError> {
    let root = data.map(Path::to_owned).unwrap_or_else(|| {
        let shared =
            std::env::var_os("DOVETAIL_SHARED").map_or_else(|| PathBuf::from("../shared"), PathBuf::from);
        shared.join("data")
    });
    let path = root.join(name);
    if path.is_dir() {
        Ok(path)
    } else {
        Err(ReproduceError::MissingData { path })
    }
}

/// Reads the trace `NAME.csv` of a folder, or `NAME.csv.gz` if there is no such file.
pub(crate) fn read_trace(folder: &Path, name: &str, format: Format) -> Result<Workload, ReproduceError> {
    let plain = folder.join(format!("{name}.csv"));
    let path = if plain.is_file() {
        plain
    } else {
        folder.join(format!("{name}.csv.gz"))
    };
    Ok(read(path, Some(format))?)
}
