//! Agents that report tasks as started and ended without starting anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// Connected agents. They disconnect when the value is dropped.
pub(super) struct AgentPool {
    started_tasks: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl AgentPool {
    /// Connects agents, each with its own certificate and connection.
    pub(super) async fn connect(
        authority: &Authority,
        port: u16,
        agents: usize,
        gpus: u32,
    ) -> Result<Self, BenchError> {
        let started_tasks = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for i in 0..agents {
            let name = format!("node-{i}");
            let channel = channel(authority, port, &name).await?;
            let (outbox, messages) = unbounded_channel();
            let agent = Agent {
                outbox,
                sequence: 0,
                started_tasks: Arc::clone(&started_tasks),
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
            _tasks: tasks,
        })
    }

    /// Returns the number of tasks that have been started so far.
    pub(super) fn started_tasks(&self) -> u64 {
        self.started_tasks.load(Ordering::Relaxed)
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
        loop {
            tokio::select! {
                message = inbox.message() => match message {
                    Ok(Some(v1::ServerMessage { body: Some(server_message::Body::StartTask(task)) })) => self.start(&task),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return,
                },
                _ = heartbeats.tick() => self.send(agent_message::Body::Heartbeat(v1::Heartbeat::default())),
            }
        }
    }

    /// Reports a task as started and as completed.
    fn start(&mut self, task: &v1::StartTask) {
        self.started_tasks.fetch_add(1, Ordering::Relaxed);
        self.send(agent_message::Body::TaskStarted(v1::TaskStarted {
            task: task.task,
            ..Default::default()
        }));
        self.send(agent_message::Body::TaskEnded(v1::TaskEnded {
            task: task.task,
            ..Default::default()
        }));
    }
}
