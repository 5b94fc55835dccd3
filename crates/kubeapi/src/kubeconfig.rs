//! Kubeconfig files: `~/.kube/config`, or those that `KUBECONFIG` names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::config::{Auth, Config, ExecPlugin};
use crate::error::{ConfigError, KubeconfigError};

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

/// The user of a context that names none.
static ANONYMOUS: User = User {
    client_certificate: None,
    client_certificate_data: None,
    client_key: None,
    client_key_data: None,
    token: None,
    token_file: None,
    exec: None,
};

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
            let existing = std::env::split_paths(&paths).find(|p| !p.as_os_str().is_empty() && p.exists());
            // If no file exists, the error names the whole variable.
            let path = existing.unwrap_or_else(|| PathBuf::from(&paths));
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
        let file = KubeconfigFile::read(path)?;
        let invalid = |source| ConfigError::Content {
            path: path.to_owned(),
            source,
        };
        let (context, cluster, user) = file.select(context).map_err(invalid)?;
        if cluster.insecure_skip_tls_verify {
            return Err(invalid(KubeconfigError::Insecure));
        }
        let pem = PemSource { path };
        let ca = pem.read(
            "certificate-authority",
            cluster.certificate_authority_data.as_deref(),
            cluster.certificate_authority.as_deref(),
        )?;
        let certificate = pem.read(
            "client-certificate",
            user.client_certificate_data.as_deref(),
            user.client_certificate.as_deref(),
        )?;
        let key = pem.read(
            "client-key",
            user.client_key_data.as_deref(),
            user.client_key.as_deref(),
        )?;
        let identity = match (&certificate, &key) {
            (Some(certificate), Some(key)) => Some((certificate.as_slice(), key.as_slice())),
            (None, None) => None,
            _ => {
                return Err(invalid(KubeconfigError::HalfIdentity {
                    user: context.user.clone(),
                }));
            }
        };
        let mut config = Self::new(&cluster.server, ca.as_deref(), identity)?;
        config.auth = user.auth(folder_of(path));
        if let Some(namespace) = context.namespace.as_ref().filter(|n| !n.is_empty()) {
            config.namespace = namespace.clone();
        }
        Ok(config)
    }
}

impl KubeconfigFile {
    fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read(path)?;
        serde_saphyr::from_str(&String::from_utf8_lossy(&text)).map_err(|e| ConfigError::Content {
            path: path.to_owned(),
            source: KubeconfigError::Yaml(e.to_string().lines().next().unwrap_or_default().to_owned()),
        })
    }

    /// Returns the named or current context with its cluster and user.
    fn select(&self, context: Option<&str>) -> Result<(&Context, &Cluster, &User), KubeconfigError> {
        let name = context.unwrap_or(&self.current_context);
        if name.is_empty() {
            return Err(KubeconfigError::NoContext);
        }
        let contexts = self.contexts.iter().map(|c| (c.name.as_str(), &c.context));
        let context = find("contexts", name, contexts)?;
        let clusters = self.clusters.iter().map(|c| (c.name.as_str(), &c.cluster));
        let cluster = find("clusters", &context.cluster, clusters)?;
        let users = self.users.iter().map(|u| (u.name.as_str(), &u.user));
        let user = match context.user.as_str() {
            "" => &ANONYMOUS,
            name => find("users", name, users)?,
        };
        Ok((context, cluster, user))
    }
}

fn find<'a, T>(
    list: &'static str,
    name: &str,
    entries: impl Iterator<Item = (&'a str, &'a T)> + Clone,
) -> Result<&'a T, KubeconfigError> {
    let found = entries.clone().find(|(entry, _)| *entry == name);
    found
        .map(|(_, entry)| entry)
        .ok_or_else(|| KubeconfigError::UnknownEntry {
            list,
            name: name.to_owned(),
            known: entries.map(|(entry, _)| entry.to_owned()).collect(),
        })
}

impl User {
    /// Returns the credentials beside a certificate; file names are relative to the folder of the kubeconfig.
    fn auth(&self, folder: &Path) -> Auth {
        match (&self.token, &self.token_file, &self.exec) {
            (Some(token), _, _) => Auth::Token(token.clone()),
            (None, Some(file), _) => Auth::TokenFile(folder.join(file)),
            (None, None, Some(exec)) => Auth::Exec(Arc::new(exec.plugin())),
            (None, None, None) => Auth::None,
        }
    }
}

impl ExecEntry {
    fn plugin(&self) -> ExecPlugin {
        let env = self.env.iter().flatten();
        ExecPlugin {
            command: self.command.clone(),
            args: self.args.clone().unwrap_or_default(),
            env: env.map(|v| (v.name.clone(), v.value.clone())).collect(),
            api_version: self.api_version.clone(),
            last: Mutex::new(None),
        }
    }
}

/// A kubeconfig whose entries hold PEM text, inline in base64 or in files beside it.
struct PemSource<'a> {
    path: &'a Path,
}

impl PemSource<'_> {
    fn read(
        &self,
        field: &'static str,
        data: Option<&str>,
        file: Option<&Path>,
    ) -> Result<Option<Vec<u8>>, ConfigError> {
        let Some(data) = data else {
            return file
                .map(|file| read(&folder_of(self.path).join(file)))
                .transpose();
        };
        let plain: String = data.split_whitespace().collect();
        let bytes = base64::engine::general_purpose::STANDARD.decode(plain);
        bytes.map(Some).map_err(|source| ConfigError::Content {
            path: self.path.to_owned(),
            source: KubeconfigError::Base64 { field, source },
        })
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
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
        assert!(outcome("[1").starts_with("FILE: "));
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
        fn no_kubeconfig_makes_the_parser_panic(text in "\\PC{0,200}") {
            let _ = outcome(&text);
            let _ = outcome(&format!("{GOOD}{text}"));
        }
    }
}
