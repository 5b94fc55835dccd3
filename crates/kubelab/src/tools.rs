//! kubectl and Helm from the control plane binary, in the versions that the tests are written for.

use std::path::Path;
use std::process::{Command, Output};

use crate::{Lab, LabError, binary};

impl Lab {
    /// Runs `kubectl` with these arguments as the administrator.
    ///
    /// # Errors
    /// If it cannot be started.
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

    /// Runs Helm with these arguments as the administrator.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn helm(&self, args: &[&str]) -> Result<Output, LabError> {
        let config = self.kubeconfig(self.admin())?.display().to_string();
        helm(
            self.folder(),
            &[&["--kubeconfig", config.as_str()], args].concat(),
        )
    }
}

/// Runs Helm with these arguments and without a cluster; its own files are kept in the folder.
///
/// # Errors
/// If the binary is not available or cannot be started.
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
