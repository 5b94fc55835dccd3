//! The tools people use, as the control plane's binary has them: kubectl and Helm of the versions the tests are for, whatever
//! is installed.

use std::path::Path;
use std::process::{Command, Output};

use crate::{Lab, LabError, binary};

impl Lab {
    /// `kubectl` with these arguments, as the administrator.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn kubectl(&self, args: &[&str]) -> Result<Output, LabError> {
        let binary = binary()?;
        let mut command = Command::new(&binary);
        command
            .arg("kubectl")
            .arg("--kubeconfig")
            .arg(self.kubeconfig(self.admin())?)
            .arg("--cache-dir")
            .arg(self.folder().join("kubectl"))
            .args(args);
        output(command, &binary)
    }

    /// Helm with these arguments, as the administrator.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn helm(&self, args: &[&str]) -> Result<Output, LabError> {
        let config = self.kubeconfig(self.admin())?.display().to_string();
        helm(
            self.folder(),
            &[&["--kubeconfig", config.as_str()], args].concat(),
        )
    }
}

/// Helm with these arguments, for what it does without a cluster; it keeps its own files in this folder.
///
/// # Errors
/// When it cannot be started, or the binary cannot be had.
pub fn helm(folder: &Path, args: &[&str]) -> Result<Output, LabError> {
    let binary = binary()?;
    let mut command = Command::new(&binary);
    command.arg("helm").args(args);
    for (name, at) in [
        ("HELM_CACHE_HOME", "helm-cache"),
        ("HELM_CONFIG_HOME", "helm-config"),
        ("HELM_DATA_HOME", "helm-data"),
    ] {
        command.env(name, folder.join(at));
    }
    output(command, &binary)
}

fn output(mut command: Command, binary: &Path) -> Result<Output, LabError> {
    command.output().map_err(LabError::file(binary))
}
