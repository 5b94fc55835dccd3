//! A server with a journal and a socket, and a raw HTTP client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dovetail_cluster::{
    Capabilities, Driver, DriverConfig, EndedJobLimits, Handle, LiveRuntime, LoadPoint, LogError, LogPiece,
    LogRequest, NodeCommand, NodeRegistration, PolicyText, Runtime,
};
use dovetail_model::{NodeId, NodeSpec, Time};
use dovetail_web::{ApiConfig, Audit, Tls, Users};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc;

/// Load that the nodes report.
pub(crate) type Loads = Arc<Mutex<Vec<LoadPoint>>>;

/// A runtime without agents: commands are dropped.
#[derive(Clone)]
struct NoAgents(Loads);

impl Runtime for NoAgents {
    type Command = NodeCommand;

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn execute(&mut self, _commands: &mut dyn Iterator<Item = NodeCommand>) {}
}

impl LiveRuntime for NoAgents {
    fn is_connected(&self, _node: NodeId) -> bool {
        false
    }

    fn read_log(&self, _request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, LogError> {
        Err(LogError("no agent is connected".to_owned()))
    }

    fn loads(&self, _node: NodeId, since: Time) -> Vec<LoadPoint> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|p| p.at > since).cloned().collect()
    }
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

pub(crate) struct Server {
    pub(crate) users: Arc<Users>,
    pub(crate) address: SocketAddr,
    pub(crate) admin: String,
    pub(crate) handle: Handle,
    pub(crate) loads: Loads,
    driving: std::thread::JoinHandle<()>,
    dir: TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    /// Starts a server with a number of nodes of four GPUs.
    pub(crate) fn start(nodes: u32) -> Self {
        Self::start_with(nodes, ApiConfig::default())
    }

    /// Starts a server with these settings, and with its notifier, if there is one.
    pub(crate) fn start_with(nodes: u32, api: ApiConfig) -> Self {
        Self::start_on(Capabilities::ALL, nodes, api)
    }

    /// Starts a server on a runtime.
    pub(crate) fn start_on(runtime: Capabilities, nodes: u32, api: ApiConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let users = Arc::new(Users::open(&dir.path().join("users.json")).unwrap());
        let admin = users.add("admin", true).unwrap();
        let server = Self::start_in(dir, runtime, api, users, admin);
        for i in 0..nodes {
            let registration = NodeRegistration {
                spec: NodeSpec::plain(format!("node-{i}"), 4),
                gpu_type: "virtual".to_owned(),
                rack: "rack".to_owned(),
                address: "127.0.0.1".to_owned(),
                identity: u64::from(i),
            };
            server.handle.register_node(registration).wait().unwrap();
        }
        server
    }

    /// Stops the server with a snapshot, and starts it again. Ended jobs leave memory as early as they can.
    pub(crate) fn restart(self) -> Self {
        let Self {
            users,
            admin,
            handle,
            driving,
            dir,
            _runtime: runtime,
            ..
        } = self;
        handle.shut_down().wait().unwrap();
        driving.join().unwrap();
        drop(runtime);
        Self::start_in(dir, Capabilities::ALL, ApiConfig::default(), users, admin)
    }

    fn start_in(
        dir: TempDir,
        runtime: Capabilities,
        api: ApiConfig,
        users: Arc<Users>,
        admin: String,
    ) -> Self {
        let config = DriverConfig {
            dir: dir.path().join("journal"),
            policy: PolicyText::default(),
            clock: dovetail_engine::Clock::Events,
            snapshot_every: 1_000,
            runtime,
        };
        let limits = EndedJobLimits {
            recent: 0,
            ..EndedJobLimits::default()
        };
        let (driver, handle, _) = Driver::open_with(&config, limits).unwrap();
        let loads = Loads::default();
        let agents = NoAgents(Arc::clone(&loads));
        let driving = driver.spawn(agents.clone());
        let audit = Arc::new(Audit::open(dir.path()).unwrap());
        let agents: Arc<dyn LiveRuntime> = Arc::new(agents);
        let notifier = api.notifier.clone();
        let router = dovetail_web::router(
            handle.clone(),
            Arc::clone(&agents),
            Arc::clone(&users),
            audit,
            api,
        );
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(dovetail_web::serve(
            listener,
            Tls::Off,
            router,
            std::future::pending(),
        ));
        if let Some(notifier) = notifier {
            runtime.spawn(notifier.watch(handle.clone(), agents, Arc::clone(&users), std::future::pending()));
        }
        Self {
            users,
            address,
            admin,
            handle,
            loads,
            driving,
            dir,
            _runtime: runtime,
        }
    }

    /// Adds a user with these roles, and returns its token.
    pub(crate) fn user(&self, name: &str, roles: &[(&str, dovetail_web::Role)]) -> String {
        let token = self.users.add(name, false).unwrap();
        let roles = roles.iter().map(|(vc, role)| ((*vc).to_owned(), *role)).collect();
        self.users.edit(name, |account| account.roles = roles).unwrap();
        token
    }

    /// Sends a request with these header lines.
    pub(crate) fn raw(&self, method: &str, path: &str, head: &[String], body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let lines: String = head.iter().map(|line| format!("{line}\r\n")).collect();
        let start = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{lines}\r\n",
            body.len()
        );
        stream.write_all(start.as_bytes()).unwrap();
        let _ = stream.write_all(body);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        let body = match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            true => unchunked(body),
            false => body.to_owned(),
        };
        Answer {
            status,
            head: head.to_owned(),
            text: body,
        }
    }

    /// Sends a request with a token and a JSON body.
    pub(crate) fn call(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        let head = [
            format!("Authorization: Bearer {token}"),
            "Content-Type: application/json".to_owned(),
        ];
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        self.raw(method, &format!("/api/v1{path}"), &head, &body)
    }

    pub(crate) fn get(&self, token: &str, path: &str) -> Answer {
        self.call(token, "GET", path, &Value::Null)
    }

    /// Submits a job, and returns its id.
    pub(crate) fn submit(&self, token: &str, job: Value) -> u64 {
        let mut job = job;
        job["command"] = serde_json::json!(["true"]);
        let answer = self.call(token, "POST", "/jobs", &serde_json::json!({"job": job}));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["id"].as_u64().unwrap()
    }
}

fn unchunked(body: &str) -> String {
    let (mut rest, mut text) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || after.len() < size {
            break;
        }
        text.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    text
}
