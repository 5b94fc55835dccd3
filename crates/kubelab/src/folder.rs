//! The temporary folder of a lab.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::LabError;

/// Folder with the keys, logs and data of a lab, removed when the value is dropped.
///
/// A lab in a `static` is never dropped: then the last component to end removes the folder, if it contains the marker file.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    _temporary: Option<TempDir>,
}

/// Marker file in a folder that the components may remove.
const MARKER: &str = ".kubelab";

impl Folder {
    /// Creates the folder below the system's temporary directory; `KUBELAB_KEEP` in the environment keeps it.
    pub(crate) fn new() -> Result<Self, LabError> {
        let parent = std::env::temp_dir();
        let folder = tempfile::Builder::new()
            .prefix("kubelab-")
            .tempdir_in(&parent)
            .map_err(LabError::file(&parent))?;
        if std::env::var_os("KUBELAB_KEEP").is_some() {
            return Ok(Self {
                path: folder.keep(),
                _temporary: None,
            });
        }
        let marker = folder.path().join(MARKER);
        fs::write(&marker, "").map_err(LabError::file(&marker))?;
        Ok(Self {
            path: folder.path().to_owned(),
            _temporary: Some(folder),
        })
    }
}
