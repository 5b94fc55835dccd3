//! Kubeconfig files: `~/.kube/config`, or those that `KUBECONFIG` names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::config::{Auth, Config, ExecPlugin};
use crate::error::ConfigError;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct KubeconfigFile {
    current_context: String,
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
    contexts: Vec<NamedContext>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    exec: Option<ExecEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecEntry {
    api_version: String,
    command: String,
    args: Option<Vec<String>>,
    env: Option<Vec<Variable>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Variable {
    name: String,
    value: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

impl Config {
    /// Reads the given file, else that of `KUBECONFIG`, else `~/.kube/config`, else the service account of this pod.
    ///
    /// # Errors
    /// When no configuration exists, or it is invalid.
    pub fn find(named: Option<&Path>, context: Option<&str>) -> Result<Self, ConfigError> {
        if let Some(path) = named {
            return Self::from_kubeconfig(path, context);
        }
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        if let Some(paths) = set("KUBECONFIG") {
            let mut paths = std::env::split_paths(&paths).filter(|p| !p.as_os_str().is_empty());
            let first = paths.find(|p| p.exists());
            let path = first.unwrap_or_else(|| PathBuf::from(&paths_shown(&set("KUBECONFIG"))));
            return Self::from_kubeconfig(&path, context);
        }
        let home = set("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
        match home.filter(|path| path.exists()) {
            Some(path) => Self::from_kubeconfig(&path, context),
            None => Self::in_cluster(),
        }
    }

    /// Reads a kubeconfig file, using its current context unless another one is given.
    ///
    /// # Errors
    /// When the file cannot be read, or an entry it refers to is missing.
    pub fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Self, ConfigError> {
        let text = read(path)?;
        let text = String::from_utf8_lossy(&text);
        let wrong = |what: String| ConfigError::Content {
            path: path.to_owned(),
            what,
        };
        let file: KubeconfigFile = serde_saphyr::from_str(&text)
            .map_err(|e| wrong(e.to_string().lines().next().unwrap_or_default().to_owned()))?;
        let name = context.unwrap_or(&file.current_context);
        if name.is_empty() {
            return Err(wrong(
                "current-context is missing; name a context with --context".to_owned(),
            ));
        }
        let all = |names: Vec<&str>| match names.is_empty() {
            true => "the list is empty".to_owned(),
            false => format!("expected one of {}", names.join(", ")),
        };
        let context = file.contexts.iter().find(|c| c.name == name).ok_or_else(|| {
            wrong(format!(
                "contexts: unknown name {name:?}; {}",
                all(file.contexts.iter().map(|c| c.name.as_str()).collect())
            ))
        })?;
        let context = &context.context;
        let cluster = file
            .clusters
            .iter()
            .find(|c| c.name == context.cluster)
            .ok_or_else(|| {
                wrong(format!(
                    "clusters: unknown name {:?}; {}",
                    context.cluster,
                    all(file.clusters.iter().map(|c| c.name.as_str()).collect())
                ))
            })?;
        let cluster = &cluster.cluster;
        if cluster.insecure_skip_tls_verify {
            return Err(wrong(
                "insecure-skip-tls-verify is not supported; set certificate-authority instead".to_owned(),
            ));
        }
        let anonymous = User::default();
        let user = file
            .users
            .iter()
            .find(|u| u.name == context.user)
            .map(|u| &u.user);
        let user = match (user, context.user.is_empty()) {
            (Some(user), _) => user,
            (None, true) => &anonymous,
            (None, false) => {
                return Err(wrong(format!(
                    "users: unknown name {:?}; {}",
                    context.user,
                    all(file.users.iter().map(|u| u.name.as_str()).collect())
                )));
            }
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        let either = |field: &str, data: &Option<String>, file: &Option<PathBuf>| match (data, file) {
            (Some(data), _) => {
                let plain: String = data.split_whitespace().collect();
                let bytes = base64::engine::general_purpose::STANDARD.decode(plain);
                bytes
                    .map(Some)
                    .map_err(|e| wrong(format!("{field}-data: invalid base64: {e}")))
            }
            (None, Some(file)) => read(&folder.join(file)).map(Some),
            (None, None) => Ok(None),
        };
        let ca = either(
            "certificate-authority",
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        )?;
        let certificate = either(
            "client-certificate",
            &user.client_certificate_data,
            &user.client_certificate,
        )?;
        let key = either("client-key", &user.client_key_data, &user.client_key)?;
        let identity = match (&certificate, &key) {
            (Some(certificate), Some(key)) => Some((certificate.as_slice(), key.as_slice())),
            (None, None) => None,
            _ => {
                return Err(wrong(format!(
                    "user {:?}: client-certificate and client-key must be set together",
                    context.user
                )));
            }
        };
        let mut config = Self::new(&cluster.server, ca.as_deref(), identity)?;
        config.auth = match (&user.token, &user.token_file, &user.exec) {
            (Some(token), _, _) => Auth::Token(token.clone()),
            (None, Some(file), _) => Auth::TokenFile(folder.join(file)),
            (None, None, Some(exec)) => Auth::Exec(Arc::new(ExecPlugin {
                command: exec.command.clone(),
                args: exec.args.clone().unwrap_or_default(),
                env: exec
                    .env
                    .iter()
                    .flatten()
                    .map(|v| (v.name.clone(), v.value.clone()))
                    .collect(),
                api_version: exec.api_version.clone(),
                last: Mutex::new(None),
            })),
            (None, None, None) => Auth::None,
        };
        if let Some(namespace) = context.namespace.as_ref().filter(|n| !n.is_empty()) {
            config.namespace = namespace.clone();
        }
        Ok(config)
    }
}

fn paths_shown(paths: &Option<std::ffi::OsString>) -> String {
    paths
        .as_ref()
        .map(|p| p.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::File {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, text).unwrap();
        match Config::from_kubeconfig(&path, None) {
            Ok(config) => format!("{}:{} {}", config.host, config.port, config.namespace),
            Err(e) => e.to_string().replace(&path.display().to_string(), "FILE"),
        }
    }

    const GOOD: &str = "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u, namespace: team}}]\n\
        clusters: [{name: c, cluster: {server: 'http://127.0.0.1:8080'}}]\nusers: [{name: u, user: {token: t}}]\n";

    #[test]
    fn server_and_namespace_are_read_from_the_context() {
        assert_eq!(outcome(GOOD), "127.0.0.1:8080 team");
    }

    #[test]
    fn errors_name_the_entry() {
        assert_eq!(outcome("[1"), outcome("[1"));
        assert!(outcome("{}").contains("current-context is missing"));
        assert!(
            outcome(&GOOD.replace("current-context: a", "current-context: b"))
                .contains("unknown name \"b\"; expected one of a")
        );
        assert!(
            outcome(&GOOD.replace("cluster: c,", "cluster: d,")).contains("clusters: unknown name \"d\"")
        );
        assert!(outcome(&GOOD.replace("user: u,", "user: v,")).contains("users: unknown name \"v\""));
        assert!(
            outcome(&GOOD.replace("http://127.0.0.1:8080", "ftp://x")).contains("expected https://HOST:PORT")
        );
        assert!(outcome(&GOOD.replace("http:", "https:")).contains("certificate-authority is missing"));
        let insecure = GOOD.replace("server:", "insecure-skip-tls-verify: true, server:");
        assert!(outcome(&insecure).contains("insecure-skip-tls-verify"));
    }

    proptest::proptest! {
        #[test]
        fn no_file_makes_it_panic(text in "\\PC{0,200}") {
            let _ = outcome(&text);
            let _ = outcome(&format!("{GOOD}{text}"));
        }
    }
}
