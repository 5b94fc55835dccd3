//! A control plane as a value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dovetail_kubeapi::{Client, Config};
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::binary::{binary, skip};
use crate::component::{Component, ComponentProcess};
use crate::folder::Folder;
use crate::http::{self, Response};
use crate::identity::{Authority, Identity, new_key};
use crate::nodes::{NodeShape, create_nodes};
use crate::ports::Ports;
use crate::proxy::Proxy;
use crate::settings::Settings;
use crate::{LabError, kubeconfig};

/// A Kubernetes control plane. Its processes end when the value is dropped or this process ends.
#[derive(Debug)]
pub struct Lab {
    // The first field, so that the processes have ended when the folder is removed.
    processes: Mutex<BTreeMap<Component, ComponentProcess>>,
    ports: Ports,
    authority: Authority,
    admin: Identity,
    admin_tls: Arc<ClientConfig>,
    next_namespace: AtomicU64,
    folder: Folder,
}

/// Longest time until a component is ready; generous, because the machine may be busy.
const READY_WITHIN: Duration = Duration::from_secs(180);

/// Returns the control plane that all tests of a program share, each in its own namespace. It has the gang API and no
/// controllers. Prints a line with `SKIPPED` and returns `None` if the binary is not available.
pub fn shared() -> Option<&'static Lab> {
    static LAB: OnceLock<Option<Lab>> = OnceLock::new();
    LAB.get_or_init(|| Lab::start_or_skip(&Settings::default().with_gangs()))
        .as_ref()
}

impl Lab {
    /// Starts a control plane and waits until all components are ready.
    ///
    /// # Errors
    /// If the binary is not available or a component does not start.
    pub fn start(settings: &Settings) -> Result<Self, LabError> {
        let binary = binary()?;
        let mut tries = 3;
        loop {
            tries -= 1;
            match Self::try_start(&binary, settings) {
                // Another process may have taken a port since it was chosen.
                Err(LabError::Component { log, .. })
                    if tries > 0 && log.contains("address already in use") => {}
                result => return result,
            }
        }
    }

    /// Does the same for a test: prints a line with `SKIPPED` and returns `None` if the binary is not available.
    ///
    /// # Panics
    /// If the binary is available but a component does not start.
    pub fn start_or_skip(settings: &Settings) -> Option<Self> {
        skip(Self::start(settings))
    }

    fn try_start(binary: &Path, settings: &Settings) -> Result<Self, LabError> {
        let authority = Authority::new()?;
        let admin = authority.user("kubelab-admin", &["system:masters"])?;
        let admin_tls = http::tls(&authority, &admin).map_err(|e| LabError::Certificate {
            name: "certificate of the administrator".to_owned(),
            reason: e.to_string(),
        })?;
        let lab = Self {
            processes: Mutex::default(),
            ports: Ports::free()?,
            authority,
            admin,
            admin_tls,
            next_namespace: AtomicU64::new(1),
            folder: Folder::new()?,
        };
        lab.write_keys()?;
        let kubeconfig = kubeconfig::write(lab.folder(), lab.ports.api, &lab.admin)?;
        let arguments = Arguments {
            folder: lab.folder(),
            ports: &lab.ports,
            kubeconfig: &kubeconfig,
            settings,
        };
        let mut components = vec![
            (Component::Etcd, arguments.etcd()),
            (Component::ApiServer, arguments.api_server()),
        ];
        if !settings.controllers.is_empty() {
            components.push((Component::ControllerManager, arguments.controller_manager()));
        }
        if let Some(scheduler) = &settings.scheduler {
            components.push((Component::Scheduler, arguments.scheduler(scheduler)?));
        }
        for (component, args) in components {
            let process = ComponentProcess::new(component, binary, lab.folder(), args);
            lab.processes().insert(component, process);
            lab.launch(component)?;
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
            kubeconfig::write_private(&self.folder().join(name), text)?;
        }
        Ok(())
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<Component, ComponentProcess>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function with the process of a component.
    ///
    /// # Panics
    /// If this lab does not have the component.
    fn with<T>(&self, component: Component, f: impl FnOnce(&mut ComponentProcess) -> T) -> T {
        match self.processes().get_mut(&component) {
            Some(process) => f(process),
            None => panic!("this lab has no {component}"),
        }
    }

    /// Starts a component that was stopped or killed, on the same port and with the same data, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn launch(&self, component: Component) -> Result<(), LabError> {
        self.with(component, ComponentProcess::launch)?;
        let deadline = Instant::now() + READY_WITHIN;
        while !self.is_ready(component) {
            self.with(component, |process| match process.exit_status() {
                Some(status) => Err(process.error(format!("ended ({status})"))),
                None if Instant::now() > deadline => {
                    Err(process.error(format!("was not ready after {} s", READY_WITHIN.as_secs())))
                }
                None => Ok(()),
            })?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends a component with `SIGTERM` and waits until it has ended.
    pub fn stop(&self, component: Component) {
        self.with(component, ComponentProcess::stop);
    }

    /// Kills a component, like a crash.
    pub fn kill(&self, component: Component) {
        self.with(component, ComponentProcess::kill);
    }

    /// Stops a component and starts it again.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn restart(&self, component: Component) -> Result<(), LabError> {
        self.stop(component);
        self.launch(component)
    }

    /// Returns whether a component reports that it is ready.
    pub fn is_ready(&self, component: Component) -> bool {
        let (port, path) = match component {
            Component::Etcd => return http::is_healthy(self.ports.etcd),
            Component::ApiServer => (self.ports.api, "/readyz"),
            Component::ControllerManager => (self.ports.controllers, "/healthz"),
            Component::Scheduler => (self.ports.scheduler, "/readyz"),
        };
        http::request(&self.admin_tls, port, "GET", path, None).is_ok_and(|response| response.status == 200)
    }

    /// Returns the CPU time that a component has used in all of its launches.
    pub fn cpu(&self, component: Component) -> Duration {
        self.with(component, |process| process.cpu())
    }

    /// Returns the process ID of a component, or `None` while it does not run.
    pub fn process(&self, component: Component) -> Option<u32> {
        self.with(component, |process| process.id())
    }

    /// Returns the components of this lab.
    pub fn components(&self) -> Vec<Component> {
        self.processes().keys().copied().collect()
    }

    /// Returns the last lines of a component's log.
    pub fn log_tail(&self, component: Component) -> String {
        self.with(component, |process| process.log_tail())
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    /// Returns the port of the API server.
    pub fn port(&self) -> u16 {
        self.ports.api
    }

    /// Returns the folder with keys, logs and data. It is removed with the lab unless `KUBELAB_KEEP` is set.
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// Returns the certificate authority that the API server trusts.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the identity that may do everything.
    pub fn admin(&self) -> &Identity {
        &self.admin
    }

    /// Writes a kubeconfig for an identity and returns its path.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn kubeconfig(&self, identity: &Identity) -> Result<PathBuf, LabError> {
        kubeconfig::write(self.folder(), self.ports.api, identity)
    }

    /// Returns an API client of the administrator.
    ///
    /// # Panics
    /// If the keys are invalid.
    pub fn client(&self) -> Client {
        self.client_as(&self.admin)
    }

    /// Returns an API client of an identity.
    ///
    /// # Panics
    /// If its keys are invalid.
    pub fn client_as(&self, identity: &Identity) -> Client {
        self.client_at(&self.url(), identity)
    }

    /// Starts a proxy to the API server whose connections can be cut, and returns it with an administrator's client that
    /// connects through it.
    ///
    /// # Errors
    /// If no port is free.
    pub fn proxy(&self) -> Result<(Proxy, Client), LabError> {
        let proxy = Proxy::to(self.ports.api).map_err(LabError::file(Path::new("127.0.0.1:0")))?;
        let url = format!("https://127.0.0.1:{}", proxy.port());
        let client = self.client_at(&url, &self.admin);
        Ok((proxy, client))
    }

    fn client_at(&self, url: &str, identity: &Identity) -> Client {
        let keys = (identity.certificate.as_bytes(), identity.key.as_bytes());
        let authority = self.authority.certificate().as_bytes();
        match Config::new(url, Some(authority), Some(keys)) {
            Ok(config) => Client::new(config),
            Err(e) => panic!("keys of {}: {e}", identity.user),
        }
    }

    /// Creates nodes that are ready, named by the prefix and a number from 0.
    ///
    /// # Errors
    /// If the API server rejects one.
    pub fn create_nodes(&self, prefix: &str, count: usize, shape: &NodeShape) -> Result<(), LabError> {
        let nodes: Vec<_> = (0..count)
            .map(|i| (format!("{prefix}{i}"), shape.clone()))
            .collect();
        // In a thread of its own, because the caller may be inside a runtime.
        let result = std::thread::scope(|scope| {
            let task = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime
                    .map_err(|e| e.to_string())?
                    .block_on(create_nodes(&self.client(), &nodes))
                    .map_err(|e| e.to_string())
            };
            scope.spawn(task).join()
        });
        let result = result.unwrap_or_else(|_| Err("the thread panicked".to_owned()));
        result.map_err(|reason| request_error("POST", "/api/v1/nodes", reason))
    }

    /// Sends one request as the administrator. A `PATCH` is a merge patch.
    ///
    /// # Errors
    /// If there is no response.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Response, LabError> {
        http::request(&self.admin_tls, self.ports.api, method, path, body)
            .map_err(|e| request_error(method, path, e))
    }

    /// Sends one request as another identity.
    ///
    /// # Errors
    /// If there is no response.
    pub fn request_as(
        &self,
        identity: &Identity,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response, LabError> {
        http::tls(&self.authority, identity)
            .and_then(|tls| http::request(&tls, self.ports.api, method, path, body))
            .map_err(|e| request_error(method, path, e))
    }

    /// Creates a namespace for one test and returns its name, which is the prefix and a number.
    ///
    /// # Errors
    /// If the API server rejects it.
    pub fn namespace(&self, prefix: &str) -> Result<String, LabError> {
        let name = format!("{prefix}-{}", self.next_namespace.fetch_add(1, Ordering::Relaxed));
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let response = self.request("POST", "/api/v1/namespaces", Some(&body))?;
        match response.status {
            201 => Ok(name),
            _ => Err(request_error("POST", "/api/v1/namespaces", response.body)),
        }
    }
}

fn request_error(method: &str, path: &str, reason: impl ToString) -> LabError {
    LabError::Request {
        request: format!("{method} {path}"),
        reason: reason.to_string(),
    }
}
