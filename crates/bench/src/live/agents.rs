//! Agents that report tasks as started and ended without starting anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dovetail_agent::{ProgressFilter, StepReport};
use dovetail_hub::Authority;
use dovetail_proto::v1::scheduler_client::SchedulerClient;
use dovetail_proto::v1::{self, agent_message, server_message};
use rcgen::{CertificateParams, KeyPair};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::BenchError;
use crate::error::StepResult;

const HEARTBEAT: Duration = Duration::from_secs(2);
/// Steps of a task in a second.
const STEPS_PER_SECOND: u64 = 10;

/// What becomes of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tasks {
    /// They complete as soon as they are started.
    EndAtOnce,
    /// They run until the agents disconnect.
    Run,
}

/// Connected agents. They disconnect when the value is dropped.
pub(super) struct AgentPool {
    started_tasks: Arc<AtomicU64>,
    reporting: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl AgentPool {
    /// Connects agents, each with its own certificate and connection.
    pub(super) async fn connect(
        authority: &Authority,
        port: u16,
        (agents, gpus): (usize, u32),
        kind: Tasks,
    ) -> Result<Self, BenchError> {
        let started_tasks = Arc::new(AtomicU64::new(0));
        let reporting = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for i in 0..agents {
            let name = format!("node-{i}");
            let channel = channel(authority, port, &name).await?;
            let (outbox, messages) = unbounded_channel();
            let agent = Agent {
                outbox,
                sequence: 0,
                started_tasks: Arc::clone(&started_tasks),
                reporting: Arc::clone(&reporting),
                kind,
                running: Vec::new(),
            };
            agent.say_hello(&name, i as u64, gpus);
            let inbox = SchedulerClient::new(channel)
                .attach(UnboundedReceiverStream::new(messages))
                .await
                .step(&format!("attach agent {name}"))?;
            tasks.spawn(agent.run(inbox.into_inner()));
        }
        Ok(Self {
            started_tasks,
            reporting,
            _tasks: tasks,
        })
    }

    /// Returns the number of tasks that have been started so far.
    pub(super) fn started_tasks(&self) -> u64 {
        self.started_tasks.load(Ordering::Relaxed)
    }

    /// Lets all running tasks report their steps from now on.
    pub(super) fn report_steps(&self) {
        self.reporting.store(true, Ordering::Relaxed);
    }
}

/// Connects over TLS with a new certificate of this node.
async fn channel(authority: &Authority, port: u16, node: &str) -> Result<Channel, BenchError> {
    let sign = "sign a certificate";
    let key = KeyPair::generate().step(sign)?;
    let request = CertificateParams::default()
        .serialize_request(&key)
        .step(sign)?
        .pem()
        .step(sign)?;
    let certificate = authority.sign_node(node, &request)?;
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority.certificate()))
        .domain_name("localhost")
        .identity(Identity::from_pem(certificate, key.serialize_pem()));
    let connect = "connect an agent";
    Endpoint::from_shared(format!("https://127.0.0.1:{port}"))
        .and_then(|endpoint| endpoint.tls_config(tls))
        .step(connect)?
        .connect()
        .await
        .step(connect)
}

struct Agent {
    outbox: UnboundedSender<v1::AgentMessage>,
    /// Number of the last message that the server acknowledges.
    sequence: u64,
    started_tasks: Arc<AtomicU64>,
    reporting: Arc<AtomicBool>,
    kind: Tasks,
    running: Vec<RunningTask>,
}

/// A task that runs until the agent disconnects.
struct RunningTask {
    task: Option<v1::TaskKey>,
    started: Instant,
    filter: ProgressFilter,
}

impl Agent {
    fn say_hello(&self, node: &str, identity: u64, gpus: u32) {
        let gpu = |slot: u32| v1::Gpu {
            uuid: format!("GPU-{node}-{slot}"),
            r#type: "virtual".to_owned(),
            ..Default::default()
        };
        let hello = v1::Hello {
            node: node.to_owned(),
            version: "bench".to_owned(),
            address: "127.0.0.1".to_owned(),
            hardware: Some(v1::Hardware {
                gpus: (0..gpus).map(gpu).collect(),
                cpu_milli: 64_000,
                memory_mib: 512 << 10,
                ..Default::default()
            }),
            running: Vec::new(),
            identity,
        };
        let body = Some(agent_message::Body::Hello(hello));
        let _ = self.outbox.send(v1::AgentMessage { sequence: 0, body });
    }

    /// Sends a message that the server acknowledges.
    fn send(&mut self, message: agent_message::Body) {
        self.sequence += 1;
        let _ = self.outbox.send(v1::AgentMessage {
            sequence: self.sequence,
            body: Some(message),
        });
    }

    async fn run(mut self, mut inbox: tonic::Streaming<v1::ServerMessage>) {
        let mut heartbeats = tokio::time::interval(HEARTBEAT);
        let mut reports = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                message = inbox.message() => match message {
                    Ok(Some(v1::ServerMessage { body: Some(server_message::Body::StartTask(task)) })) => self.start(&task),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return,
                },
                _ = reports.tick() => self.report(),
                _ = heartbeats.tick() => self.send(agent_message::Body::Heartbeat(v1::Heartbeat::default())),
            }
        }
    }

    /// Forwards the reports of all running tasks, as far as a real agent does.
    fn report(&mut self) {
        if !self.reporting.load(Ordering::Relaxed) {
            return;
        }
        for running in &mut self.running {
            let step = running.started.elapsed().as_millis() as u64 * STEPS_PER_SECOND / 1_000;
            let report = StepReport {
                step,
                total: 1_000_000,
                step_us: 1_000_000 / STEPS_PER_SECOND,
                checkpoint: step / 1_000 * 1_000,
            };
            if running.filter.admit(Instant::now(), report) {
                let progress = v1::Progress {
                    task: running.task,
                    step: report.step,
                    total_steps: report.total,
                    step_time_us: report.step_us,
                    checkpoint_step: report.checkpoint,
                    ..Default::default()
                };
                let body = Some(agent_message::Body::Progress(progress));
                let _ = self.outbox.send(v1::AgentMessage { sequence: 0, body });
            }
        }
    }

    /// Reports a task as started, and as completed unless it runs.
    fn start(&mut self, task: &v1::StartTask) {
        self.started_tasks.fetch_add(1, Ordering::Relaxed);
        self.send(agent_message::Body::TaskStarted(v1::TaskStarted {
            task: task.task,
            ..Default::default()
        }));
        if self.kind == Tasks::Run {
            return self.running.push(RunningTask {
                task: task.task,
                started: Instant::now(),
                filter: ProgressFilter::default(),
            });
        }
        self.send(agent_message::Body::TaskEnded(v1::TaskEnded {
            task: task.task,
            ..Default::default()
        }));
    }
}
