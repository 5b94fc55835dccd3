//! A server that speaks the protocol as far as the tests need it, and can misbehave.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use dovetail_proto::v1::agent_message::Body as AgentBody;
use dovetail_proto::v1::scheduler_server::{Scheduler as Service, SchedulerServer};
use dovetail_proto::v1::server_message::Body;
use dovetail_proto::v1::{
    Ack, AgentMessage, Hello, JoinReply, JoinRequest, ReadLog, ServerMessage, StartTask, StopTask, TaskEnded,
    TaskKey, TaskStarted, Welcome,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use super::until;

/// Signs a certificate request or rejects it.
pub(crate) type JoinHandler = Arc<dyn Fn(JoinRequest) -> Result<String, Status> + Send + Sync>;

type Reply = Result<ServerMessage, Status>;

/// How the server answers. All fields can be changed while it runs.
pub(crate) struct Behavior {
    pub(crate) acks_facts: bool,
    pub(crate) acks_heartbeats: bool,
    pub(crate) heartbeat_ms: u32,
    pub(crate) lease_ms: u32,
    /// How often each command is sent.
    pub(crate) copies: usize,
    /// Running tasks that `Welcome` does not keep.
    pub(crate) not_kept: Vec<TaskKey>,
    pub(crate) rejection: Option<dovetail_proto::v1::Rejection>,
}

/// What the server has received.
#[derive(Default)]
pub(crate) struct ReceivedMessages {
    pub(crate) hellos: Vec<Hello>,
    pub(crate) all: Vec<(String, AgentMessage)>,
    /// Nodes that presented a certificate.
    pub(crate) certified: Vec<String>,
    replies: BTreeMap<String, UnboundedSender<Reply>>,
}

#[derive(Clone)]
pub(crate) struct TestServer {
    pub(crate) address: String,
    received: Arc<Mutex<ReceivedMessages>>,
    behavior: Arc<Mutex<Behavior>>,
    /// Handles `Join`; `None` for a server without TLS.
    join: Option<JoinHandler>,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(None, None).await
    }

    pub(crate) async fn start_with(tls: Option<ServerTlsConfig>, join: Option<JoinHandler>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self {
            address: listener.local_addr().unwrap().to_string(),
            received: Arc::default(),
            behavior: Arc::new(Mutex::new(Behavior {
                acks_facts: true,
                acks_heartbeats: true,
                heartbeat_ms: 100,
                lease_ms: 120_000,
                copies: 1,
                not_kept: Vec::new(),
                rejection: None,
            })),
            join,
        };
        let mut builder = Server::builder();
        if let Some(tls) = tls {
            builder = builder.tls_config(tls).unwrap();
        }
        let service = SchedulerServer::new(this.clone());
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        tokio::spawn(builder.add_service(service).serve_with_incoming(incoming));
        this
    }

    pub(crate) fn behavior(&self) -> MutexGuard<'_, Behavior> {
        self.behavior.lock().unwrap()
    }

    pub(crate) fn received(&self) -> MutexGuard<'_, ReceivedMessages> {
        self.received.lock().unwrap()
    }

    /// Waits for the given number of `Hello` messages of a node and returns the last one.
    pub(crate) async fn hello(&self, node: &str, times: usize) -> Hello {
        until("hello", || {
            let received = self.received();
            let mut of_node = received.hellos.iter().filter(|h| h.node == node);
            of_node.nth(times - 1).cloned()
        })
        .await
    }

    pub(crate) fn send(&self, node: &str, body: Body) {
        let copies = self.behavior().copies;
        for _ in 0..copies {
            let reply = ServerMessage {
                body: Some(body.clone()),
            };
            if let Some(replies) = self.received().replies.get(node) {
                let _ = replies.send(Ok(reply));
            }
        }
    }

    pub(crate) fn start_task(&self, node: &str, command: StartTask) {
        self.send(node, Body::StartTask(command));
    }

    pub(crate) fn stop(&self, node: &str, task: TaskKey, kill: bool) {
        let reason = "preempted".into();
        let task = Some(task);
        self.send(node, Body::StopTask(StopTask { task, reason, kill }));
    }

    /// Closes the connection of a node.
    pub(crate) fn disconnect(&self, node: &str) {
        self.received().replies.remove(node);
    }

    /// Waits for a message of a node.
    pub(crate) async fn wait_for<T>(
        &self,
        node: &str,
        what: &str,
        find: impl Fn(&AgentBody) -> Option<T>,
    ) -> T {
        until(what, || {
            let received = self.received();
            let mut of_node = received.all.iter().filter(|(n, _)| n == node);
            of_node.find_map(|(_, m)| find(m.body.as_ref()?))
        })
        .await
    }

    pub(crate) async fn started(&self, node: &str, task: TaskKey) -> TaskStarted {
        self.wait_for(node, "a start", |message| match message {
            AgentBody::TaskStarted(fact) if fact.task == Some(task) => Some(fact.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn ended(&self, node: &str, task: TaskKey) -> TaskEnded {
        self.wait_for(node, "an end", |message| match message {
            AgentBody::TaskEnded(fact) if fact.task == Some(task) => Some(fact.clone()),
            _ => None,
        })
        .await
    }

    /// Starts a task and waits for its end.
    pub(crate) async fn run(&self, node: &str, command: StartTask) -> TaskEnded {
        let task = command.task.unwrap();
        self.start_task(node, command);
        self.ended(node, task).await
    }

    /// Returns the number of matching messages.
    pub(crate) fn count(&self, find: impl Fn(&AgentBody) -> bool) -> usize {
        let received = self.received();
        received
            .all
            .iter()
            .filter(|(_, m)| m.body.as_ref().is_some_and(&find))
            .count()
    }

    /// Reads a log to its end. Returns the text, the final offset and the error.
    pub(crate) async fn log(&self, node: &str, command: ReadLog) -> (String, u64, String) {
        let request = command.request;
        self.send(node, Body::ReadLog(command));
        let last = self
            .wait_for(node, "the end of a log", |message| match message {
                AgentBody::LogChunk(piece) if piece.request == request && piece.end => Some(piece.clone()),
                _ => None,
            })
            .await;
        (self.log_text(request), last.offset, last.error)
    }

    /// Returns what has been received of a log so far.
    pub(crate) fn log_text(&self, request: u64) -> String {
        let mut text = Vec::new();
        for (_, message) in &self.received().all {
            if let Some(AgentBody::LogChunk(piece)) = &message.body
                && piece.request == request
            {
                text.extend_from_slice(&piece.data);
            }
        }
        String::from_utf8(text).unwrap()
    }

    fn record(&self, node: &str, message: AgentMessage, replies: &UnboundedSender<Reply>) {
        let sequence = message.sequence;
        let behavior = self.behavior();
        let acks = match &message.body {
            Some(AgentBody::Heartbeat(_)) => behavior.acks_heartbeats,
            _ => behavior.acks_facts && sequence > 0,
        };
        if acks {
            let body = Some(Body::Ack(Ack { sequence }));
            let _ = replies.send(Ok(ServerMessage { body }));
        }
        drop(behavior);
        if !matches!(message.body, Some(AgentBody::Heartbeat(_))) {
            self.received().all.push((node.to_owned(), message));
        }
    }

    fn attached(&self, hello: Hello, replies: UnboundedSender<Reply>, is_certified: bool) {
        let mut received = self.received();
        received.replies.insert(hello.node.clone(), replies);
        if is_certified {
            received.certified.push(hello.node.clone());
        }
        received.hellos.push(hello);
    }

    fn answer(&self, hello: &Hello) -> Body {
        let behavior = self.behavior();
        if let Some(rejection) = &behavior.rejection {
            return Body::Rejection(rejection.clone());
        }
        let wanted = hello.running.iter().filter(|k| !behavior.not_kept.contains(k));
        Body::Welcome(Welcome {
            node: 1,
            heartbeat_ms: behavior.heartbeat_ms,
            lease_ms: behavior.lease_ms,
            keep: wanted.copied().collect(),
        })
    }
}

#[tonic::async_trait]
impl Service for TestServer {
    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinReply>, Status> {
        let join = self
            .join
            .as_ref()
            .ok_or_else(|| Status::unimplemented("this server has no authority"))?;
        let certificate = join(request.into_inner())?;
        Ok(Response::new(JoinReply { certificate }))
    }

    type AttachStream = Pin<Box<dyn Stream<Item = Reply> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let is_certified = request.peer_certs().is_some_and(|certs| !certs.is_empty());
        if self.join.is_some() && !is_certified {
            return Err(Status::unauthenticated("no certificate"));
        }
        let mut message = request.into_inner();
        let (replies, to_say) = unbounded_channel();
        let this = self.clone();
        tokio::spawn(async move {
            let Some(Ok(first)) = message.next().await else {
                return;
            };
            let Some(AgentBody::Hello(hello)) = first.body else {
                return;
            };
            let node = hello.node.clone();
            let _ = replies.send(Ok(ServerMessage {
                body: Some(this.answer(&hello)),
            }));
            // The table holds the only sender, so removing it closes the connection.
            let weak = replies.downgrade();
            this.attached(hello, replies, is_certified);
            while let Some(Ok(message)) = message.next().await {
                let Some(replies) = weak.upgrade() else { return };
                this.record(&node, message, &replies);
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(to_say))))
    }
}
