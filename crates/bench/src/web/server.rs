//! A server with many past jobs, one wide job and one long log.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use dovetail_cluster::{
    Actor, Capabilities, Driver, Handle, JobId, LiveRuntime, LogError, LogPiece, LogRequest, NodeCommand,
    NodeRegistration, Runtime,
};
use dovetail_console::ScratchFolder;
use dovetail_model::{NodeId, NodeSpec};
use dovetail_web::{ApiConfig, Audit, Tls, Users};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::http::HttpClient;
use crate::BenchError;
use crate::error::StepResult;
use crate::live::{driver_config, job_request};

/// Tasks of the wide job.
pub(super) const TASKS: usize = 1_000;
/// Length of its log.
pub(super) const LOG_BYTES: u64 = 10_000_000_000;

/// A runtime that starts nothing, and whose nodes all have the same log, in a folder of this machine.
#[derive(Clone)]
struct SharedLog(PathBuf);

impl Runtime for SharedLog {
    type Command = NodeCommand;

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn execute(&mut self, _commands: &mut dyn Iterator<Item = NodeCommand>) {}
}

impl LiveRuntime for SharedLog {
    fn is_connected(&self, _node: NodeId) -> bool {
        true
    }

    fn read_log(&self, request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, LogError> {
        let (data, offset) = dovetail_agent::read_log(&self.0, request.offset, 1 << 20)
            .map_err(|e| LogError(e.to_string()))?;
        let (sender, receiver) = mpsc::channel(2);
        for piece in [LogPiece::Data { data, offset }, LogPiece::End] {
            sender.try_send(piece).map_err(|e| LogError(e.to_string()))?;
        }
        Ok(receiver)
    }
}

/// A server in this process.
pub(super) struct WebServer {
    handle: Handle,
    users: Arc<Users>,
    port: u16,
    driver: JoinHandle<()>,
    service: tokio::task::JoinHandle<()>,
    _folder: ScratchFolder,
}

impl WebServer {
    /// Starts a server with this many past jobs.
    pub(super) async fn start(jobs: usize) -> Result<Self, BenchError> {
        let folder = ScratchFolder::new("bench-web")?;
        let path = |name: &str| folder.path().join(name);
        let (driver, handle, _) = Driver::open(&driver_config(path("journal")))?;
        let runtime = SharedLog(path("log"));
        let driver = driver.spawn(runtime.clone());
        let past = handle.clone();
        spawn_blocking(move || create_jobs(&past, jobs))
            .await
            .step("create jobs")??;
        create_log(&path("log")).step("create a log")?;
        let users = Arc::new(Users::open(&path("users.json"))?);
        let audit = Arc::new(Audit::open(folder.path())?);
        let router = dovetail_web::router(
            handle.clone(),
            Arc::new(runtime),
            Arc::clone(&users),
            audit,
            ApiConfig::default(),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.step("listen")?;
        let port = listener.local_addr().step("listen")?.port();
        let service = tokio::spawn(async move {
            let _ = dovetail_web::serve(listener, Tls::Off, router, std::future::pending()).await;
        });
        Ok(Self {
            handle,
            users,
            port,
            driver,
            service,
            _folder: folder,
        })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Adds a user, and returns a client for it.
    pub(super) fn client(&self, user: &str, is_admin: bool) -> Result<HttpClient, BenchError> {
        Ok(HttpClient {
            port: self.port,
            token: self.users.add(user, is_admin)?,
        })
    }

    /// Returns the id of the job with many tasks.
    pub(super) fn wide_job(&self) -> Result<JobId, BenchError> {
        self.handle
            .read(|state| state.active_jobs().next().map(|job| job.id))
            .ok_or_else(|| BenchError::Unexpected(format!("the job with {TASKS} tasks did not start")))
    }

    pub(super) async fn stop(self) {
        self.service.abort();
        let _ = spawn_blocking(move || {
            let _ = self.handle.shut_down().wait();
            drop(self.handle);
            self.driver.join()
        })
        .await;
    }
}

/// Creates jobs that were submitted and cancelled, and one that runs on a thousand nodes.
fn create_jobs(handle: &Handle, jobs: usize) -> Result<(), BenchError> {
    for i in 0..jobs {
        let mut request = job_request(1 + (i % 16) as u32);
        request.hold = true;
        request.name = format!("sweep-{}", i % 1_000);
        request.labels.insert("kind".to_owned(), (i % 10).to_string());
        handle.submit(&format!("user-{}", i % 100), request).then(|_| {});
    }
    for id in 1..=jobs as u64 {
        handle.cancel(id, Actor::user("bench")).then(|_| {});
    }
    for i in 0..TASKS {
        let registration = NodeRegistration {
            spec: NodeSpec::plain(format!("node-{i}"), 1),
            gpu_type: "virtual".to_owned(),
            rack: String::new(),
            address: "127.0.0.1".to_owned(),
            identity: i as u64,
        };
        handle.register_node(registration).wait()?;
    }
    let wide = handle.submit("bench", job_request(TASKS as u32)).wait()?;
    let started = handle.task_started(wide, 1, NodeId(0), String::new(), Vec::new());
    Ok(started.wait()?)
}

/// Creates a log as a sparse file, which takes up hardly any disk space.
fn create_log(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut file = std::fs::File::create(folder.join("log.0"))?;
    file.set_len(LOG_BYTES)?;
    file.seek(SeekFrom::End(0))?;
    for i in 0..1_000 {
        writeln!(file, "step {i} of 1000, loss 0.125")?;
    }
    Ok(())
}
