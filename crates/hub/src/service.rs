//! The gRPC service: joining, and one stream of messages with each agent.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dovetail_cluster::state::{ClusterState, NodeState};
use dovetail_cluster::{
    Actor, AttemptId, DriverCall, Fact, Handle, JobId, Refusal, RegisteredNode, SystemRule,
};
use dovetail_model::NodeId;
use dovetail_proto::v1::scheduler_server::{Scheduler, SchedulerServer};
use dovetail_proto::v1::{self, agent_message, server_message::Body};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use crate::authority::{self, Authority};
use crate::convert;
use crate::hub::{Hub, HubError};

/// Why the service for agents cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be used.
    #[error("{address}: {source}")]
    Address {
        /// The address.
        address: String,
        /// The system error.
        source: std::io::Error,
    },
    /// The certificate of the server cannot be created.
    #[error(transparent)]
    Authority(#[from] crate::AuthorityError),
    /// The transport failed.
    #[error("cannot serve agents: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// Tasks that run on a node.
type RunningTasks = Vec<(JobId, AttemptId)>;

/// Time within which an agent must send its first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves agents on a socket until `until` completes. `names` are the host names of this server.
///
/// # Errors
/// If the certificate cannot be created or the transport fails.
pub async fn serve(
    listener: TcpListener,
    names: &[String],
    authority: Arc<Authority>,
    hub: Hub,
    handle: Handle,
    until: impl Future<Output = ()>,
) -> Result<SocketAddr, ServeError> {
    let address = listener.local_addr().map_err(|source| ServeError::Address {
        address: "the socket".to_owned(),
        source,
    })?;
    let (chain, key) = authority.server_identity(names)?;
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(chain, key))
        .client_ca_root(Certificate::from_pem(authority.certificate()))
        .client_auth_optional(true);
    let service = Service {
        authority,
        hub: hub.clone(),
        handle: handle.clone(),
    };
    let watch = tokio::spawn(watch_leases(hub, handle));
    // Messages are short and must not be delayed. (The builder's own setting is for sockets it opens itself.)
    let connections = TcpListenerStream::new(listener).map(|accepted| {
        accepted.inspect(|stream| {
            let _ = stream.set_nodelay(true);
        })
    });
    let served = Server::builder()
        .tls_config(tls)?
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .add_service(SchedulerServer::new(service))
        .serve_with_incoming_shutdown(connections, until)
        .await;
    watch.abort();
    served?;
    Ok(address)
}

/// Reports nodes whose lease has expired to the driver.
async fn watch_leases(hub: Hub, handle: Handle) {
    let every = (hub.config.lease / 10).clamp(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        tokio::time::sleep(every).await;
        let nodes: Vec<NodeId> = handle.read(|state| {
            let connected = state.nodes().filter(|(_, n)| n.state != NodeState::Lost);
            connected.map(|(id, _)| id).collect()
        });
        for node in hub.silent(nodes.into_iter()) {
            tracing::warn!(node = node.0, "node lost");
            let _ = answer(handle.node_lost(node)).await;
            // An agent that is connected all the same, or again, must register again: its node is used no more.
            hub.disconnect(node);
        }
    }
}

/// Waits for an answer of the driver without blocking other streams.
async fn answer<T: Send + 'static>(call: DriverCall<'_, T>) -> Result<T, Refusal> {
    let (sender, receiver) = oneshot::channel();
    call.then(move |result| drop(sender.send(result)));
    receiver.await.unwrap_or(Err(Refusal::ShuttingDown))
}

struct Service {
    authority: Arc<Authority>,
    hub: Hub,
    handle: Handle,
}

type ServerMessages = Pin<Box<dyn Stream<Item = Result<v1::ServerMessage, Status>> + Send>>;

#[tonic::async_trait]
impl Scheduler for Service {
    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::JoinReply>, Status> {
        let request = request.into_inner();
        if !self.authority.join_token().has_secret(&request.token) {
            tracing::warn!(node = request.node, "wrong join token");
            return Err(Status::permission_denied(
                "wrong join token; `dovetail server --print-join-token` prints the right one",
            ));
        }
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if request.node.is_empty() || request.node.len() > 253 || !request.node.chars().all(is_valid) {
            return Err(Status::invalid_argument(
                "node: expected up to 253 letters, digits, `-`, `_` and `.`",
            ));
        }
        let certificate = self
            .authority
            .sign_node(&request.node, &request.signing_request)
            .map_err(|e| Status::invalid_argument(e.to_string()))?;
        tracing::info!(node = request.node, "node joined");
        Ok(Response::new(v1::JoinReply { certificate }))
    }

    type AttachStream = ServerMessages;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<ServerMessages>, Status> {
        let certificates = request.peer_certs();
        let name = certificates
            .as_ref()
            .and_then(|certificates| authority::node_of(certificates.first()?));
        let Some(name) = name else {
            return Err(Status::unauthenticated(
                "missing client certificate; the agent must join first",
            ));
        };
        let (out, messages) = unbounded_channel();
        let connection = Connection {
            hub: self.hub.clone(),
            handle: self.handle.clone(),
            name,
            out,
        };
        tokio::spawn(connection.run(request.into_inner()));
        Ok(Response::new(Box::pin(until_closed(messages))))
    }
}

fn until_closed(
    messages: UnboundedReceiver<v1::ServerMessage>,
) -> impl Stream<Item = Result<v1::ServerMessage, Status>> + Send {
    UnboundedReceiverStream::new(messages).map(Ok)
}

/// The stream of messages with one agent.
struct Connection {
    hub: Hub,
    handle: Handle,
    /// The name in the agent's certificate.
    name: String,
    out: UnboundedSender<v1::ServerMessage>,
}

impl Connection {
    fn send(&self, body: Body) {
        // An agent that has disconnected gets everything again when it reconnects.
        let _ = self.out.send(v1::ServerMessage { body: Some(body) });
    }

    fn reject(&self, reason: &str, permanent: bool) {
        tracing::warn!(node = self.name, reason, "agent rejected");
        self.send(Body::Rejection(v1::Rejection {
            reason: reason.to_owned(),
            permanent,
        }));
    }

    /// Receives the first message of the agent. `None` if it is not a valid `Hello`.
    async fn receive_hello(&self, messages: &mut Streaming<v1::AgentMessage>) -> Option<v1::Hello> {
        let first = tokio::time::timeout(HELLO_TIMEOUT, messages.message()).await;
        let Ok(Ok(Some(v1::AgentMessage {
            body: Some(agent_message::Body::Hello(hello)),
            ..
        }))) = first
        else {
            self.reject("the first message must be Hello", false);
            return None;
        };
        if hello.node != self.name {
            let reason = format!(
                "the certificate is for node {:?}, but the agent reports node {:?}",
                self.name, hello.node
            );
            self.reject(&reason, true);
            return None;
        }
        Some(hello)
    }

    /// Registers the node of an agent. `None` if it is rejected.
    async fn register(&self, hello: &v1::Hello) -> Option<RegisteredNode> {
        let registration = convert::registration(hello)
            .inspect_err(|error| self.reject(&error.to_string(), true))
            .ok()?;
        let known = self.handle.read(|state| state.node_named(&self.name));
        if let Some(node) = known {
            let other = self.hub.connected_identity(node);
            if other.is_some_and(|identity| identity != hello.identity) {
                self.reject(&HubError::DuplicateName.to_string(), true);
                return None;
            }
            self.hub.expect_session(node);
        }
        answer(self.handle.register_node(registration))
            .await
            .inspect_err(|refusal| self.reject(&refusal.to_string(), false))
            .ok()
    }

    async fn run(self, mut messages: Streaming<v1::AgentMessage>) {
        let Some(hello) = self.receive_hello(&mut messages).await else {
            return;
        };
        let Some(registered) = self.register(&hello).await else {
            return;
        };
        let node = registered.node;
        let (epoch, close) = match self.hub.open_session(node, hello.identity, self.out.clone()) {
            Ok(session) => session,
            Err(error) => return self.reject(&error.to_string(), true),
        };
        let is_lost = |state: &ClusterState| state.node(node).is_none_or(|n| n.state == NodeState::Lost);
        if self.handle.read(is_lost) {
            self.hub.close_session(node, epoch);
            return self.reject("the node was declared lost while it registered", false);
        }
        tracing::info!(node = self.name, version = hello.version, "agent connected");
        let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        self.send(Body::Welcome(v1::Welcome {
            node: node.0,
            heartbeat_ms: millis(self.hub.config.heartbeat),
            lease_ms: millis(self.hub.config.lease),
            keep: registered
                .keep
                .iter()
                .filter_map(|(job, attempt)| convert::task_key(*job, *attempt))
                .collect(),
        }));
        if let Some(fault) = hello.hardware.as_ref().and_then(|h| convert::find_fault(&h.gpus)) {
            let _ = answer(self.handle.set_draining(
                &self.name,
                Some(fault),
                Actor::System(SystemRule::Health),
            ))
            .await;
        }
        let running: RunningTasks = hello.running.iter().map(|t| (t.job, t.attempt)).collect();
        let mut receiver = MessageReceiver {
            connection: &self,
            node,
            epoch,
            running: Some(running),
        };
        loop {
            tokio::select! {
                message = messages.message() => match message {
                    Ok(Some(message)) => receiver.receive(message).await,
                    Ok(None) | Err(_) => break,
                },
                () = close.notified() => break,
            }
        }
        self.hub.close_session(node, epoch);
        tracing::info!(node = self.name, "agent disconnected");
    }
}

/// Receives the messages of one agent.
struct MessageReceiver<'a> {
    connection: &'a Connection,
    node: NodeId,
    epoch: u64,
    /// Tasks that ran when the agent connected, until it has sent all facts it kept.
    running: Option<RunningTasks>,
}

impl MessageReceiver<'_> {
    async fn receive(&mut self, message: v1::AgentMessage) {
        let Connection {
            hub, handle, name, ..
        } = self.connection;
        let node = self.node;
        hub.record_contact(node, self.epoch);
        match message.body {
            Some(agent_message::Body::Heartbeat(beat)) => {
                self.acknowledge(message.sequence);
                hub.record_load(node, &beat);
                if let Some(running) = self.running.take() {
                    // If the journal cannot be written, the next heartbeat tries again.
                    self.running = self.reconcile(running).await.err();
                }
                if let Some(fault) = convert::find_fault(&beat.gpus) {
                    let _ = answer(handle.set_draining(name, Some(fault), Actor::System(SystemRule::Health)))
                        .await;
                }
            }
            Some(agent_message::Body::TaskStarted(started)) => {
                let (job, attempt) = numbers(started.task);
                self.acknowledge_when_durable(
                    message.sequence,
                    handle.task_started(job, attempt, node, started.sharing, started.remarks),
                );
            }
            Some(agent_message::Body::TaskEnded(ended)) => {
                let (job, attempt) = numbers(ended.task);
                hub.forget_stop((job, attempt));
                self.acknowledge_when_durable(
                    message.sequence,
                    handle.task_ended(job, attempt, node, convert::task_end(ended)),
                );
            }
            Some(agent_message::Body::InstanceEnded(ended)) => {
                let (job, attempt) = numbers(ended.task);
                let end = convert::instance_end(ended);
                let fact = Fact::InstanceEnded { job, attempt, end };
                self.acknowledge_when_durable(message.sequence, handle.record(fact));
            }
            Some(agent_message::Body::Progress(progress)) => {
                let (job, attempt) = numbers(progress.task);
                let fact = Fact::Progressed {
                    job,
                    attempt,
                    step: progress.step,
                    total_steps: progress.total_steps,
                    step_time: convert::span(progress.step_time_us),
                    data_time: convert::span(progress.data_time_us),
                    checkpoint_step: progress.checkpoint_step,
                    stages: convert::stage_report(progress).map(Box::new),
                };
                self.acknowledge_when_durable(message.sequence, handle.record(fact));
            }
            Some(agent_message::Body::StepReached(report)) => {
                hub.record_step(handle, numbers(report.task), &report)
            }
            Some(agent_message::Body::LogChunk(chunk)) => hub.pass_on_log(node, chunk),
            Some(agent_message::Body::MpsReport(report)) => hub.pass_on_mps(node, report),
            // Only the first Hello counts; unknown messages are ignored.
            Some(agent_message::Body::Hello(_)) | None => {}
        }
    }

    /// Reconciles the tasks of an agent that has sent all facts it kept, and sends it its commands. Returns the tasks if that
    /// was refused.
    async fn reconcile(&self, running: RunningTasks) -> Result<(), RunningTasks> {
        let Connection { hub, handle, .. } = self.connection;
        let (sender, receiver) = oneshot::channel();
        let (hub_of_driver, node, epoch) = (hub.clone(), self.node, self.epoch);
        handle
            .reconcile_node(node, running.clone())
            .then(move |commands| {
                // Set in the driver's thread, before its next commands: none is lost between these and those.
                if commands.is_ok() {
                    hub_of_driver.set_ready(node, epoch);
                }
                let _ = sender.send(commands);
            });
        let Ok(Ok(commands)) = receiver.await else {
            return Err(running);
        };
        for command in commands {
            hub.send_command(node, command);
        }
        Ok(())
    }

    fn acknowledge(&self, sequence: u64) {
        if sequence > 0 {
            self.connection.send(Body::Ack(v1::Ack { sequence }));
        }
    }

    /// Acknowledges a fact when it is in the journal. The agent sends one that was refused again later.
    fn acknowledge_when_durable(&self, sequence: u64, call: DriverCall<'_, ()>) {
        let out = self.connection.out.clone();
        call.then(move |result| {
            if result.is_ok() && sequence > 0 {
                let body = Some(Body::Ack(v1::Ack { sequence }));
                let _ = out.send(v1::ServerMessage { body });
            }
        });
    }
}

/// Returns the job and the attempt of a task.
fn numbers(task: Option<v1::TaskKey>) -> (JobId, AttemptId) {
    task.map_or((0, 0), |t| (t.job, t.attempt))
}
