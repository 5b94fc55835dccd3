//! The control plane as a value.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dovetail_kubeapi::{Client, Config};
use rustls::ClientConfig;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::{binary, skip};
use crate::identity::{Authority, Identity, new_key};
use crate::line::Line;
use crate::nodes::{NodeShape, create_nodes};
use crate::part::{Component, Part};
use crate::plain::{self, Answer};
use crate::settings::{Scheduler, Settings};
use crate::{LabError, kubeconfig};

/// A control plane. It ends with the value, and with the process.
#[derive(Debug)]
pub struct Lab {
    // Goes first, so that no process is left when the folder goes.
    components: Mutex<BTreeMap<Part, Component>>,
    ports: Ports,
    authority: Authority,
    admin: Identity,
    admin_tls: Arc<ClientConfig>,
    names: AtomicU64,
    folder: Folder,
}

/// How long a component may take until it is ready, on a machine that is busy with others.
const READY_WITHIN: Duration = Duration::from_secs(180);

/// One control plane for all tests of a program, each in a namespace of its own; with the gang API, without controllers.
/// `None` and a line that says `SKIPPED` where it cannot be had.
pub fn shared() -> Option<&'static Lab> {
    static LAB: OnceLock<Option<Lab>> = OnceLock::new();
    LAB.get_or_init(|| Lab::start_or_skip(&Settings::default().with_gangs()))
        .as_ref()
}

impl Lab {
    /// Starts it and waits until every component is ready.
    ///
    /// # Errors
    /// When the binary cannot be had, or a component does not start.
    pub fn start(settings: &Settings) -> Result<Self, LabError> {
        let binary = binary()?;
        let mut tries = 3;
        loop {
            tries -= 1;
            match Self::try_start(&binary, settings) {
                // A port that was free a moment ago may be taken by now.
                Err(LabError::Part { log, .. }) if tries > 0 && log.contains("address already in use") => {}
                tried => return tried,
            }
        }
    }

    /// The same, for a test: `None` and a line that says `SKIPPED` where it cannot be had.
    ///
    /// # Panics
    /// When it could be had, but does not start.
    pub fn start_or_skip(settings: &Settings) -> Option<Self> {
        skip(Self::start(settings))
    }

    fn try_start(binary: &Path, settings: &Settings) -> Result<Self, LabError> {
        let authority = Authority::new()?;
        let admin = authority.user("kubelab-admin", &["system:masters"])?;
        let admin_tls = plain::tls(&authority, &admin).map_err(|why| LabError::Certificate {
            what: "the administrator's certificate".to_owned(),
            why,
        })?;
        let lab = Self {
            components: Mutex::default(),
            ports: Ports::free()?,
            authority,
            admin,
            admin_tls,
            names: AtomicU64::new(1),
            folder: Folder::new()?,
        };
        lab.write_keys()?;
        let config = kubeconfig::write(lab.folder(), lab.ports.api, &lab.admin)?;
        let config = config.display().to_string();
        let mut parts = vec![
            (Part::Etcd, lab.etcd_args()),
            (Part::ApiServer, lab.api_server_args(settings)),
        ];
        if !settings.controllers.is_empty() {
            parts.push((Part::ControllerManager, lab.controllers_args(settings, &config)));
        }
        if let Some(scheduler) = &settings.scheduler {
            let args = lab.scheduler_args(settings, scheduler, &config)?;
            parts.push((Part::Scheduler, args));
        }
        for (part, args) in parts {
            let component = Component::new(part, binary, lab.folder(), args);
            lab.components().insert(part, component);
            lab.launch(part)?;
        }
        Ok(lab)
    }

    fn write_keys(&self) -> Result<(), LabError> {
        let server = self.authority.server()?;
        let accounts = new_key()?;
        for (name, text) in [
            ("ca.pem", self.authority.certificate()),
            ("server.pem", &server.certificate),
            ("server.key", &server.key),
            ("service-accounts.key", &accounts.serialize_pem()),
            ("service-accounts.pub", &accounts.public_key_pem()),
        ] {
            kubeconfig::private(&self.path(name), text)?;
        }
        Ok(())
    }

    fn etcd_args(&self) -> Vec<String> {
        vec![
            format!("--data-dir={}", self.path("etcd").display()),
            format!("--client-url=http://127.0.0.1:{}", self.ports.etcd),
            format!("--peer-url=http://127.0.0.1:{}", self.ports.etcd_peers),
        ]
    }

    fn api_server_args(&self, settings: &Settings) -> Vec<String> {
        let accounts = self.path("service-accounts");
        let mut args = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--client-ca-file={}", self.path("ca.pem").display()),
            format!("--service-account-key-file={}.pub", accounts.display()),
            format!("--service-account-signing-key-file={}.key", accounts.display()),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--anonymous-auth=false".to_owned(),
            // Nobody makes default service accounts, and nobody takes taints off new nodes.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--allow-privileged=true".to_owned(),
            // Names of nodes are known to nobody.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!(
                "--kubelet-client-certificate={}",
                self.path("kubelab-admin.pem").display()
            ),
            format!(
                "--kubelet-client-key={}",
                self.path("kubelab-admin.key").display()
            ),
            // What is measured here is the scheduler, not what the server thinks fair.
            "--enable-priority-and-fairness=false".to_owned(),
            "--max-requests-inflight=4000".to_owned(),
            "--max-mutating-requests-inflight=4000".to_owned(),
            "--shutdown-delay-duration=0s".to_owned(),
            // Those who watch would keep it from ending for a minute.
            "--shutdown-watch-termination-grace-period=1s".to_owned(),
            "--profiling=false".to_owned(),
        ];
        args.extend(self.serving(self.ports.api));
        args.extend(gates(settings));
        if !settings.runtime_config.is_empty() {
            args.push(format!("--runtime-config={}", settings.runtime_config.join(",")));
        }
        args.extend(settings.api_server.iter().cloned());
        args
    }

    fn controllers_args(&self, settings: &Settings, config: &str) -> Vec<String> {
        let mut args = vec![
            format!("--controllers={}", settings.controllers.join(",")),
            format!("--kubeconfig={config}"),
            format!(
                "--service-account-private-key-file={}",
                self.path("service-accounts.key").display()
            ),
            format!("--root-ca-file={}", self.path("ca.pem").display()),
            "--kube-api-qps=5000".to_owned(),
            "--kube-api-burst=5000".to_owned(),
            "--leader-elect=false".to_owned(),
        ];
        args.extend(self.asking(config));
        args.extend(self.serving(self.ports.controllers));
        args.extend(gates(settings));
        args.extend(settings.controller_manager.iter().cloned());
        args
    }

    fn scheduler_args(
        &self,
        settings: &Settings,
        scheduler: &Scheduler,
        config: &str,
    ) -> Result<Vec<String>, LabError> {
        let file = self.path("kube-scheduler.yaml");
        let rate = scheduler.requests_per_second;
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: {config}
  qps: {rate}
  burst: {rate}
leaderElection:
  leaderElect: false
{}",
            scheduler.configuration
        );
        kubeconfig::private(&file, &text)?;
        let mut args = vec![format!("--config={}", file.display())];
        args.extend(self.asking(config));
        args.extend(self.serving(self.ports.scheduler));
        args.extend(gates(settings));
        Ok(args)
    }

    /// Whom a component asks about its own visitors.
    fn asking(&self, config: &str) -> [String; 3] {
        [
            format!("--authentication-kubeconfig={config}"),
            format!("--authorization-kubeconfig={config}"),
            format!("--client-ca-file={}", self.path("ca.pem").display()),
        ]
    }

    fn serving(&self, port: u16) -> [String; 4] {
        [
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", self.path("server.pem").display()),
            format!("--tls-private-key-file={}", self.path("server.key").display()),
        ]
    }

    fn components(&self) -> MutexGuard<'_, BTreeMap<Part, Component>> {
        self.components.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with a component.
    ///
    /// # Panics
    /// When this lab is without it.
    fn with<T>(&self, part: Part, act: impl FnOnce(&mut Component) -> T) -> T {
        match self.components().get_mut(&part) {
            Some(component) => act(component),
            None => panic!("this lab is without {part}"),
        }
    }

    /// Starts a component that was stopped or killed, on the same port and with the same data, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn launch(&self, part: Part) -> Result<(), LabError> {
        self.with(part, Component::launch)?;
        let deadline = Instant::now() + READY_WITHIN;
        while !self.is_ready(part) {
            self.with(part, |component| match component.ended() {
                Some(how) => Err(component.error(format!("ended ({how})"))),
                None if Instant::now() > deadline => Err(component.error("does not become ready")),
                None => Ok(()),
            })?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Asks a component to end, and waits until it has.
    pub fn stop(&self, part: Part) {
        self.with(part, Component::stop);
    }

    /// Ends a component at once, as a crash would.
    pub fn kill(&self, part: Part) {
        self.with(part, Component::kill);
    }

    /// Stops a component and starts it again.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn restart(&self, part: Part) -> Result<(), LabError> {
        self.stop(part);
        self.launch(part)
    }

    /// Whether a component says that it is ready.
    pub fn is_ready(&self, part: Part) -> bool {
        let (port, path) = match part {
            Part::Etcd => return plain::is_healthy(self.ports.etcd),
            Part::ApiServer => (self.ports.api, "/readyz"),
            Part::ControllerManager => (self.ports.controllers, "/healthz"),
            Part::Scheduler => (self.ports.scheduler, "/readyz"),
        };
        plain::request(&self.admin_tls, port, "GET", path, None).is_ok_and(|answer| answer.status == 200)
    }

    /// CPU time a component has used so far, over all its launches.
    pub fn cpu(&self, part: Part) -> Duration {
        self.with(part, |component| component.cpu())
    }

    /// The process of a component, while it runs.
    pub fn process(&self, part: Part) -> Option<u32> {
        self.with(part, |component| component.id())
    }

    /// The components of this lab.
    pub fn parts(&self) -> Vec<Part> {
        self.components().keys().copied().collect()
    }

    /// The end of a component's log.
    pub fn log_tail(&self, part: Part) -> String {
        self.with(part, |component| component.tail())
    }

    /// Where the API is.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    /// The port of the API.
    pub fn port(&self) -> u16 {
        self.ports.api
    }

    /// The folder with keys, logs and data. It goes with the lab, unless `KUBELAB_KEEP` is set.
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// The authority that the API server believes.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Who may do everything.
    pub fn admin(&self) -> &Identity {
        &self.admin
    }

    /// A file with which a client speaks as this identity.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig(&self, identity: &Identity) -> Result<PathBuf, LabError> {
        kubeconfig::write(self.folder(), self.ports.api, identity)
    }

    /// A client that speaks as the administrator.
    ///
    /// # Panics
    /// When the keys that were made here are none.
    pub fn client(&self) -> Client {
        self.client_as(&self.admin)
    }

    /// A client that speaks as this identity.
    ///
    /// # Panics
    /// When its keys are none.
    pub fn client_as(&self, identity: &Identity) -> Client {
        self.client_at(&self.url(), identity)
    }

    /// A line to the API server that can be cut, and a client of the administrator at its end.
    ///
    /// # Errors
    /// When there is no port to be had.
    pub fn line(&self) -> Result<(Line, Client), LabError> {
        let line = Line::to(self.ports.api).map_err(LabError::file(Path::new("127.0.0.1:0")))?;
        let url = format!("https://127.0.0.1:{}", line.port());
        let client = self.client_at(&url, &self.admin);
        Ok((line, client))
    }

    fn client_at(&self, url: &str, identity: &Identity) -> Client {
        let keys = (identity.certificate.as_bytes(), identity.key.as_bytes());
        let authority = self.authority.certificate().as_bytes();
        match Config::new(url, Some(authority), Some(keys)) {
            Ok(config) => Client::new(config),
            Err(e) => panic!("the keys of {}: {e}", identity.user),
        }
    }

    /// Makes nodes that are ready, called by the prefix and a number from 0; many at a time.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub fn create_nodes(&self, prefix: &str, count: usize, shape: &NodeShape) -> Result<(), LabError> {
        let nodes: Vec<_> = (0..count)
            .map(|i| (format!("{prefix}{i}"), shape.clone()))
            .collect();
        // On a thread of its own, since whoever asks may be inside a runtime.
        let made = std::thread::scope(|scope| {
            let task = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime
                    .map_err(|e| e.to_string())?
                    .block_on(create_nodes(&self.client(), &nodes))
                    .map_err(|e| e.to_string())
            };
            scope.spawn(task).join()
        });
        let made = made.unwrap_or_else(|_| Err("the thread has panicked".to_owned()));
        made.map_err(|why| failed("POST", "/api/v1/nodes", why))
    }

    /// One plain request as the administrator; a patch is a merge patch.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer, LabError> {
        plain::request(&self.admin_tls, self.ports.api, method, path, body)
            .map_err(|why| failed(method, path, why))
    }

    /// One plain request as someone else.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn request_as(
        &self,
        identity: &Identity,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, LabError> {
        plain::tls(&self.authority, identity)
            .and_then(|tls| plain::request(&tls, self.ports.api, method, path, body))
            .map_err(|why| failed(method, path, why))
    }

    /// Makes a namespace that no other test of this lab has; its name starts with the prefix.
    ///
    /// # Errors
    /// When the API server does not make it.
    pub fn namespace(&self, prefix: &str) -> Result<String, LabError> {
        let name = format!("{prefix}-{}", self.names.fetch_add(1, Ordering::Relaxed));
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let answer = self.request("POST", "/api/v1/namespaces", Some(&body))?;
        match answer.status {
            201 => Ok(name),
            _ => Err(failed("POST", "/api/v1/namespaces", answer.body.to_string())),
        }
    }
}

fn failed(method: &str, path: &str, why: String) -> LabError {
    LabError::Request {
        request: format!("{method} {path}"),
        why,
    }
}

fn gates(settings: &Settings) -> Option<String> {
    let gates = &settings.feature_gates;
    (!gates.is_empty()).then(|| format!("--feature-gates={}", gates.join(",")))
}

/// Ports on loopback that were free a moment ago.
#[derive(Debug)]
struct Ports {
    etcd: u16,
    etcd_peers: u16,
    api: u16,
    controllers: u16,
    scheduler: u16,
}

impl Ports {
    fn free() -> Result<Self, LabError> {
        let no_port = LabError::file(Path::new("127.0.0.1:0"));
        // All are held until the last is found, so that they differ.
        let held: Result<Vec<_>, _> = (0..5).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
        let ports: Result<Vec<_>, _> = held
            .map_err(&no_port)?
            .iter()
            .map(|l| l.local_addr().map(|a| a.port()))
            .collect();
        let ports = ports.map_err(&no_port)?;
        Ok(Self {
            etcd: ports[0],
            etcd_peers: ports[1],
            api: ports[2],
            controllers: ports[3],
            scheduler: ports[4],
        })
    }
}

/// Where a lab keeps everything. A lab in a static is never dropped: then the last process to end takes the folder
/// with it, which it does only where it finds the mark.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    _temporary: Option<TempDir>,
}

/// The file that says that a folder may be removed.
const MARK: &str = ".kubelab";

impl Folder {
    fn new() -> Result<Self, LabError> {
        let at = std::env::temp_dir();
        let made = tempfile::Builder::new()
            .prefix("kubelab-")
            .tempdir_in(&at)
            .map_err(LabError::file(&at))?;
        if std::env::var_os("KUBELAB_KEEP").is_some() {
            return Ok(Self {
                path: made.keep(),
                _temporary: None,
            });
        }
        let mark = made.path().join(MARK);
        fs::write(&mark, "").map_err(LabError::file(&mark))?;
        Ok(Self {
            path: made.path().to_owned(),
            _temporary: Some(made),
        })
    }
}
