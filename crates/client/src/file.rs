//! `client.yaml`: how to reach a server, and as which user.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ClientError;

/// The content of `client.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientFile {
    /// `https://host:port`, or `http://host:port` without TLS.
    pub server: String,
    /// Certificate of the server's authority, in PEM.
    #[serde(default)]
    pub ca: String,
    /// Token of the user.
    pub token: String,
}

impl ClientFile {
    /// Reads the given file; without one, that of `DOVETAIL_CONFIG`, else `dovetail/client.yaml` in the folder for
    /// configuration, else that of a local `dovetail up`.
    ///
    /// # Errors
    /// Fails when there is no such file, or its content is invalid.
    pub fn find(config: Option<&Path>) -> Result<Self, ClientError> {
        if let Some(path) = config
            .map(Path::to_owned)
            .or_else(|| env_folder("DOVETAIL_CONFIG"))
        {
            return Self::read(&path);
        }
        [config_folder(), data_folder().ok()]
            .into_iter()
            .flatten()
            .map(|folder| folder.join("client.yaml"))
            .find(|path| path.exists())
            .ok_or(ClientError::NotConfigured)
            .and_then(|path| Self::read(&path))
    }

    fn read(path: &Path) -> Result<Self, ClientError> {
        let text = std::fs::read_to_string(path).map_err(|source| ClientError::ReadFile {
            path: path.to_owned(),
            source,
        })?;
        serde_saphyr::from_str(&text).map_err(|error| ClientError::InvalidFile {
            path: path.to_owned(),
            reason: error.to_string().lines().next().unwrap_or_default().to_owned(),
        })
    }
}

/// Returns the default folder for data: `dovetail` in `XDG_DATA_HOME` or `~/.local/share`.
///
/// # Errors
/// Fails when neither `XDG_DATA_HOME` nor `HOME` is set.
pub fn data_folder() -> Result<PathBuf, ClientError> {
    env_folder("XDG_DATA_HOME")
        .or_else(|| env_folder("HOME").map(|home| home.join(".local/share")))
        .map(|folder| folder.join("dovetail"))
        .ok_or(ClientError::NoDataFolder)
}

fn config_folder() -> Option<PathBuf> {
    env_folder("XDG_CONFIG_HOME")
        .or_else(|| env_folder("HOME").map(|home| home.join(".config")))
        .map(|folder| folder.join("dovetail"))
}

fn env_folder(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named() {
        let error = ClientFile::find(Some(Path::new("/nowhere/client.yaml"))).unwrap_err();
        assert!(error.is_request());
        assert_eq!(
            error.to_string(),
            "cannot read /nowhere/client.yaml: No such file or directory (os error 2)"
        );
    }
}
