//! Kubeconfig files.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::LabError;
use crate::identity::Identity;

/// Writes the kubeconfig of an identity and its key files; the authority's certificate is in the folder already.
pub(crate) fn write(folder: &Path, port: u16, identity: &Identity) -> Result<PathBuf, LabError> {
    let name: String = identity
        .user
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let [certificate, key, config] =
        ["pem", "key", "kubeconfig"].map(|end| folder.join(format!("{name}.{end}")));
    write_private(&certificate, &identity.certificate)?;
    write_private(&key, &identity.key)?;
    let text = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: kubelab
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority: {ca}
users:
- name: {user:?}
  user:
    client-certificate: {certificate}
    client-key: {key}
contexts:
- name: kubelab
  context:
    cluster: kubelab
    user: {user:?}
current-context: kubelab
",
        ca = folder.join("ca.pem").display(),
        user = identity.user,
        certificate = certificate.display(),
        key = key.display(),
    );
    write_private(&config, &text)?;
    Ok(config)
}

/// Writes a file that only its owner can read. It is replaced atomically, because other processes may be reading it.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), LabError> {
    let new = path.with_extension("new");
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&new, path))
        .map_err(LabError::file(path))
}
