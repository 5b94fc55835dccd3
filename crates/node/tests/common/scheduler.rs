//! The scheduler's side of the protocol, as far as tests need it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use dovetail_proto::v1::from_agent::What as Said;
use dovetail_proto::v1::scheduler_server::{Scheduler as Service, SchedulerServer};
use dovetail_proto::v1::to_agent::What;
use dovetail_proto::v1::{
    Ack, FromAgent, Hello, JoinReply, JoinRequest, ReadLog, StartTask, StopTask, TaskEnded, TaskKey,
    TaskStarted, ToAgent, Welcome,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use super::until;

/// Signs what a node asks for, or refuses.
pub(crate) type Joins = Arc<dyn Fn(JoinRequest) -> Result<String, Status> + Send + Sync>;

type Word = Result<ToAgent, Status>;

/// How it answers. Everything can be changed while it runs.
pub(crate) struct Manners {
    pub(crate) acks_facts: bool,
    pub(crate) acks_beats: bool,
    pub(crate) heartbeat_ms: u32,
    pub(crate) lease_ms: u32,
    /// Every order is sent so many times.
    pub(crate) copies: usize,
    /// Tasks that are not kept though they run.
    pub(crate) unwanted: Vec<TaskKey>,
    pub(crate) refusal: Option<dovetail_proto::v1::Refused>,
}

#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) hellos: Vec<Hello>,
    pub(crate) all: Vec<(String, FromAgent)>,
    /// Nodes that showed a certificate.
    pub(crate) certified: Vec<String>,
    words: BTreeMap<String, UnboundedSender<Word>>,
}

#[derive(Clone)]
pub(crate) struct Scheduler {
    pub(crate) address: String,
    heard: Arc<Mutex<Heard>>,
    manners: Arc<Mutex<Manners>>,
    /// Signs certificates for this token.
    joins: Option<Joins>,
}

impl Scheduler {
    pub(crate) async fn start() -> Self {
        Self::start_with(None, None).await
    }

    pub(crate) async fn start_with(tls: Option<ServerTlsConfig>, joins: Option<Joins>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self {
            address: listener.local_addr().unwrap().to_string(),
            heard: Arc::default(),
            manners: Arc::new(Mutex::new(Manners {
                acks_facts: true,
                acks_beats: true,
                heartbeat_ms: 100,
                lease_ms: 120_000,
                copies: 1,
                unwanted: Vec::new(),
                refusal: None,
            })),
            joins,
        };
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        let service = SchedulerServer::new(this.clone());
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        tokio::spawn(server.add_service(service).serve_with_incoming(incoming));
        this
    }

    pub(crate) fn manners(&self) -> MutexGuard<'_, Manners> {
        self.manners.lock().unwrap()
    }

    pub(crate) fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap()
    }

    /// Waits until a node has said hello so many times.
    pub(crate) async fn hello(&self, node: &str, times: usize) -> Hello {
        until("hello", || {
            let heard = self.heard();
            let mut of_node = heard.hellos.iter().filter(|h| h.node == node);
            of_node.nth(times - 1).cloned()
        })
        .await
    }

    pub(crate) fn send(&self, node: &str, what: What) {
        let copies = self.manners().copies;
        for _ in 0..copies {
            let word = ToAgent {
                what: Some(what.clone()),
            };
            if let Some(words) = self.heard().words.get(node) {
                let _ = words.send(Ok(word));
            }
        }
    }

    pub(crate) fn order(&self, node: &str, order: StartTask) {
        self.send(node, What::Start(order));
    }

    pub(crate) fn stop(&self, node: &str, task: TaskKey, kill: bool) {
        let reason = "preempted".into();
        let task = Some(task);
        self.send(node, What::Stop(StopTask { task, reason, kill }));
    }

    /// Closes the connection of a node.
    pub(crate) fn drop_link(&self, node: &str) {
        self.heard().words.remove(node);
    }

    /// Waits for something a node says.
    pub(crate) async fn said<T>(&self, node: &str, what: &str, find: impl Fn(&Said) -> Option<T>) -> T {
        until(what, || {
            let heard = self.heard();
            let mut of_node = heard.all.iter().filter(|(n, _)| n == node);
            of_node.find_map(|(_, m)| find(m.what.as_ref()?))
        })
        .await
    }

    pub(crate) async fn started(&self, node: &str, task: TaskKey) -> TaskStarted {
        self.said(node, "a start", |said| match said {
            Said::Started(fact) if fact.task == Some(task) => Some(fact.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn ended(&self, node: &str, task: TaskKey) -> TaskEnded {
        self.said(node, "an end", |said| match said {
            Said::Ended(fact) if fact.task == Some(task) => Some(fact.clone()),
            _ => None,
        })
        .await
    }

    /// Starts a task and waits for its end.
    pub(crate) async fn run(&self, node: &str, order: StartTask) -> TaskEnded {
        let task = order.task.unwrap();
        self.order(node, order);
        self.ended(node, task).await
    }

    /// How many facts of a kind came.
    pub(crate) fn count(&self, find: impl Fn(&Said) -> bool) -> usize {
        let heard = self.heard();
        heard
            .all
            .iter()
            .filter(|(_, m)| m.what.as_ref().is_some_and(&find))
            .count()
    }

    /// Reads a log to its end.
    pub(crate) async fn log(&self, node: &str, order: ReadLog) -> (String, u64, String) {
        let request = order.request;
        self.send(node, What::ReadLog(order));
        let last = self
            .said(node, "the end of a log", |said| match said {
                Said::Log(piece) if piece.request == request && piece.end => Some(piece.clone()),
                _ => None,
            })
            .await;
        (self.pieces(request), last.offset, last.error)
    }

    /// What has come of a log so far.
    pub(crate) fn pieces(&self, request: u64) -> String {
        let mut text = Vec::new();
        for (_, message) in &self.heard().all {
            if let Some(Said::Log(piece)) = &message.what
                && piece.request == request
            {
                text.extend_from_slice(&piece.data);
            }
        }
        String::from_utf8(text).unwrap()
    }

    fn hear(&self, node: &str, message: FromAgent, words: &UnboundedSender<Word>) {
        let number = message.number;
        let manners = self.manners();
        let acks = match &message.what {
            Some(Said::Heartbeat(_)) => manners.acks_beats,
            _ => manners.acks_facts && number > 0,
        };
        if acks {
            let what = Some(What::Ack(Ack { number }));
            let _ = words.send(Ok(ToAgent { what }));
        }
        drop(manners);
        if !matches!(message.what, Some(Said::Heartbeat(_))) {
            self.heard().all.push((node.to_owned(), message));
        }
    }

    fn attached(&self, hello: Hello, words: UnboundedSender<Word>, is_certified: bool) {
        let mut heard = self.heard();
        heard.words.insert(hello.node.clone(), words);
        if is_certified {
            heard.certified.push(hello.node.clone());
        }
        heard.hellos.push(hello);
    }

    fn answer(&self, hello: &Hello) -> What {
        let manners = self.manners();
        if let Some(refusal) = &manners.refusal {
            return What::Refused(refusal.clone());
        }
        let wanted = hello.running.iter().filter(|k| !manners.unwanted.contains(k));
        What::Welcome(Welcome {
            node: 1,
            heartbeat_ms: manners.heartbeat_ms,
            lease_ms: manners.lease_ms,
            keep: wanted.copied().collect(),
        })
    }
}

#[tonic::async_trait]
impl Service for Scheduler {
    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinReply>, Status> {
        let joins = self
            .joins
            .as_ref()
            .ok_or_else(|| Status::unimplemented("no joins"))?;
        let certificate = joins(request.into_inner())?;
        Ok(Response::new(JoinReply { certificate }))
    }

    type AttachStream = Pin<Box<dyn Stream<Item = Word> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let is_certified = request.peer_certs().is_some_and(|certs| !certs.is_empty());
        if self.joins.is_some() && !is_certified {
            return Err(Status::unauthenticated("no certificate"));
        }
        let mut said = request.into_inner();
        let (words, to_say) = unbounded_channel();
        let this = self.clone();
        tokio::spawn(async move {
            let Some(Ok(first)) = said.next().await else {
                return;
            };
            let Some(Said::Hello(hello)) = first.what else {
                return;
            };
            let node = hello.node.clone();
            let _ = words.send(Ok(ToAgent {
                what: Some(this.answer(&hello)),
            }));
            // The only sender is in the table: taking it out closes the connection.
            let weak = words.downgrade();
            this.attached(hello, words, is_certified);
            while let Some(Ok(message)) = said.next().await {
                let Some(words) = weak.upgrade() else { return };
                this.hear(&node, message, &words);
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(to_say))))
    }
}
