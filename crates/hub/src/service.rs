//! The gRPC service: joining, and one long conversation with each agent.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dovetail_cluster::state::NodeState;
use dovetail_cluster::{Actor, AttemptId, DriverCall, Fact, Handle, InstanceEnd, JobId, Refusal, SystemRule};
use dovetail_model::{NodeId, Time};
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
use crate::hub::Hub;

/// Why agents cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address.
    #[error("{address}: {source}")]
    Address {
        /// Which.
        address: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The certificate of the server.
    #[error(transparent)]
    Authority(#[from] crate::AuthorityError),
    /// The transport.
    #[error("agents cannot be served: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// So long an agent may take to say who it is.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// Serves agents on a socket until the signal comes. `names` are those by which agents dial this server.
///
/// # Errors
/// When the certificate cannot be made or the transport fails.
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
    let watch = tokio::spawn(watch_silence(hub, handle));
    // Words are short and must not wait for each other. (The builder's own setting is for sockets it opens itself.)
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

/// Tells the driver of nodes that have been silent for too long.
async fn watch_silence(hub: Hub, handle: Handle) {
    let every = (hub.config.lease / 10).clamp(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        tokio::time::sleep(every).await;
        let up: Vec<NodeId> = handle.read(|state| {
            let there = state.nodes().filter(|(_, n)| n.state != NodeState::Lost);
            there.map(|(id, _)| id).collect()
        });
        for node in hub.silent(up.into_iter()) {
            tracing::warn!(node = node.0, "the node is lost");
            let _ = answer(handle.node_lost(node)).await;
        }
    }
}

/// Waits for an answer of the driver without holding up other conversations.
async fn answer<T: Send + 'static>(ask: DriverCall<'_, T>) -> Result<T, Refusal> {
    let (sender, receiver) = oneshot::channel();
    ask.then(move |result| drop(sender.send(result)));
    receiver.await.unwrap_or(Err(Refusal::ShuttingDown))
}

struct Service {
    authority: Arc<Authority>,
    hub: Hub,
    handle: Handle,
}

type Words = Pin<Box<dyn Stream<Item = Result<v1::ServerMessage, Status>> + Send>>;

#[tonic::async_trait]
impl Scheduler for Service {
    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::JoinReply>, Status> {
        let asked = request.into_inner();
        if !self.authority.join_token().is(&asked.token) {
            tracing::warn!(node = asked.node, "a node showed a wrong join token");
            return Err(Status::permission_denied(
                "the join token is not the one of this scheduler",
            ));
        }
        let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if asked.node.is_empty() || asked.node.len() > 253 || !asked.node.chars().all(is_fine) {
            return Err(Status::invalid_argument(
                "node: letters, digits, `-`, `_` and `.` only",
            ));
        }
        let certificate = self
            .authority
            .sign_node(&asked.node, &asked.signing_request)
            .map_err(|e| Status::invalid_argument(e.to_string()))?;
        tracing::info!(node = asked.node, "a node joined");
        Ok(Response::new(v1::JoinReply { certificate }))
    }

    type AttachStream = Words;

    async fn attach(&self, request: Request<Streaming<v1::AgentMessage>>) -> Result<Response<Words>, Status> {
        let shown = request.peer_certs();
        let name = shown
            .as_ref()
            .and_then(|certificates| authority::node_of(certificates.first()?));
        let Some(name) = name else {
            return Err(Status::unauthenticated(
                "an agent must show the certificate it was given",
            ));
        };
        let (out, words) = unbounded_channel();
        let conversation = Conversation {
            hub: self.hub.clone(),
            handle: self.handle.clone(),
            name,
            out,
        };
        tokio::spawn(conversation.hold(request.into_inner()));
        Ok(Response::new(Box::pin(until_closed(words))))
    }
}

fn until_closed(
    words: UnboundedReceiver<v1::ServerMessage>,
) -> impl Stream<Item = Result<v1::ServerMessage, Status>> + Send {
    UnboundedReceiverStream::new(words).map(Ok)
}

/// What one agent and the scheduler say to each other.
struct Conversation {
    hub: Hub,
    handle: Handle,
    /// The name in the agent's certificate.
    name: String,
    out: UnboundedSender<v1::ServerMessage>,
}

impl Conversation {
    fn say(&self, body: Body) {
        // An agent that is gone hears nothing, and is told again when it comes back.
        let _ = self.out.send(v1::ServerMessage { body: Some(body) });
    }

    fn refuse(&self, why: &str, for_good: bool) {
        tracing::warn!(node = self.name, why, "an agent was refused");
        self.say(Body::Rejection(v1::Rejection {
            reason: why.to_owned(),
            permanent: for_good,
        }));
    }

    async fn hold(self, mut words: Streaming<v1::AgentMessage>) {
        let first = tokio::time::timeout(FIRST_WORD, words.message()).await;
        let Ok(Ok(Some(v1::AgentMessage {
            body: Some(agent_message::Body::Hello(hello)),
            ..
        }))) = first
        else {
            return self.refuse("the first word must be Hello", false);
        };
        if hello.node != self.name {
            let why = format!(
                "its certificate is for {:?}, but it calls itself {:?}",
                self.name, hello.node
            );
            return self.refuse(&why, true);
        }
        let arrival = match convert::arrival(&hello) {
            Ok(arrival) => arrival,
            Err(why) => return self.refuse(&why, true),
        };
        let known = self.handle.read(|state| state.node_named(&self.name));
        let other = known.and_then(|node| self.hub.connected_identity(node));
        if other.is_some_and(|identity| identity != hello.identity) {
            let why = "another agent of the same name is connected; every node needs a name of its own";
            return self.refuse(why, true);
        }
        let admitted = match answer(self.handle.register_node(arrival)).await {
            Ok(admitted) => admitted,
            Err(refusal) => return self.refuse(&refusal.to_string(), false),
        };
        let node = admitted.node;
        let epoch = match self.hub.enter(node, hello.identity, self.out.clone()) {
            Ok(epoch) => epoch,
            Err(why) => return self.refuse(&why, true),
        };
        tracing::info!(node = self.name, version = hello.version, "an agent is connected");
        let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        self.say(Body::Welcome(v1::Welcome {
            node: node.0,
            heartbeat_ms: millis(self.hub.config.heartbeat),
            lease_ms: millis(self.hub.config.lease),
            keep: admitted
                .keep
                .iter()
                .filter_map(|(j, l)| convert::key(*j, *l))
                .collect(),
        }));
        if let Some(why) = hello.hardware.as_ref().and_then(|h| convert::faulty(&h.gpus)) {
            let _ = answer(self.handle.set_draining(
                &self.name,
                Some(why),
                Actor::System(SystemRule::Health),
            ))
            .await;
        }
        let running: Vec<(JobId, AttemptId)> = hello.running.iter().map(|t| (t.job, t.attempt)).collect();
        let mut listener = Listener {
            conversation: &self,
            node,
            epoch,
            running: Some(running),
        };
        while let Ok(Some(word)) = words.message().await {
            listener.hear(word).await;
        }
        self.hub.leave(node, epoch);
        tracing::info!(node = self.name, "an agent is gone");
    }
}

/// The scheduler's ear for one agent.
struct Listener<'a> {
    conversation: &'a Conversation,
    node: NodeId,
    epoch: u64,
    /// What ran when the agent came, until it has told everything it kept.
    running: Option<Vec<(JobId, AttemptId)>>,
}

impl Listener<'_> {
    async fn hear(&mut self, word: v1::AgentMessage) {
        let Conversation {
            hub, handle, name, ..
        } = self.conversation;
        let node = self.node;
        hub.heard(node, self.epoch);
        match word.body {
            Some(agent_message::Body::Heartbeat(beat)) => {
                self.acknowledge(word.sequence);
                hub.is_busy(node, &beat);
                if let Some(running) = self.running.take() {
                    self.settle(running).await;
                }
                if let Some(why) = convert::faulty(&beat.gpus) {
                    let _ =
                        answer(handle.set_draining(name, Some(why), Actor::System(SystemRule::Health))).await;
                }
            }
            Some(agent_message::Body::TaskStarted(started)) => {
                let (job, attempt_id) = named(started.task);
                self.when_durable(
                    word.sequence,
                    handle.task_started(job, attempt_id, node, started.sharing, started.remarks),
                );
            }
            Some(agent_message::Body::TaskEnded(ended)) => {
                let (job, attempt_id) = named(ended.task);
                hub.forget_stop((job, attempt_id));
                self.when_durable(
                    word.sequence,
                    handle.task_ended(job, attempt_id, node, convert::end(ended)),
                );
            }
            Some(agent_message::Body::InstanceEnded(ended)) => {
                let (job, attempt_id) = named(ended.task);
                let fact = Fact::InstanceEnded {
                    job,
                    attempt: attempt_id,
                    end: InstanceEnd {
                        role: ended.role,
                        index: ended.index,
                        exit_code: ended.exit_code,
                        signal: ended.signal,
                    },
                };
                self.when_durable(word.sequence, handle.tell(fact));
            }
            Some(agent_message::Body::Progress(progress)) => {
                let (job, attempt_id) = named(progress.task);
                let fact = Fact::Progressed {
                    job,
                    attempt: attempt_id,
                    step: progress.step,
                    total_steps: progress.total_steps,
                    step_time: Time(i64::try_from(progress.step_time_us).unwrap_or(i64::MAX)),
                    checkpoint_step: progress.checkpoint_step,
                };
                self.when_durable(word.sequence, handle.tell(fact));
            }
            Some(agent_message::Body::StepReached(at_step)) => {
                hub.at_step(handle, named(at_step.task), &at_step)
            }
            Some(agent_message::Body::LogChunk(chunk)) => hub.log_piece(node, chunk),
            // A second Hello says nothing new, and an empty word nothing at all.
            Some(agent_message::Body::Hello(_)) | None => {}
        }
    }

    /// The agent has told everything it kept: it hears what is to be done.
    async fn settle(&self, running: Vec<(JobId, AttemptId)>) {
        let Conversation { hub, handle, .. } = self.conversation;
        let (sender, receiver) = oneshot::channel();
        let (at_hub, node, epoch) = (hub.clone(), self.node, self.epoch);
        handle.reconcile_node(node, running).then(move |orders| {
            // Before the driver's next orders go out, so that none falls between these and those.
            at_hub.is_ready(node, epoch);
            let _ = sender.send(orders);
        });
        if let Ok(Ok(orders)) = receiver.await {
            orders.into_iter().for_each(|order| hub.order(node, order));
        }
    }

    fn acknowledge(&self, number: u64) {
        if number > 0 {
            self.conversation.say(Body::Ack(v1::Ack { sequence: number }));
        }
    }

    /// Acknowledges a fact once it is in the journal. One that was refused is told again by the agent later.
    fn when_durable(&self, number: u64, ask: DriverCall<'_, ()>) {
        let out = self.conversation.out.clone();
        ask.then(move |result| {
            if result.is_ok() && number > 0 {
                let body = Some(Body::Ack(v1::Ack { sequence: number }));
                let _ = out.send(v1::ServerMessage { body });
            }
        });
    }
}

fn named(task: Option<v1::TaskKey>) -> (JobId, AttemptId) {
    task.map_or((0, 0), |t| (t.job, t.attempt))
}
