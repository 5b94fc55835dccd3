//! Who is there. One session for each node; orders go to whoever is there, and to the others when they come.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dovetail_cluster::{AttemptId, Backend, Handle, JobId, LoadPoint, LogPiece, LogRequest, RuntimeCommand};
use dovetail_model::{NodeId, Time};
use dovetail_proto::v1::{self, server_message::Body};
use tokio::sync::mpsc::{Receiver, UnboundedSender};
use tokio::sync::watch;

use crate::convert;
use crate::loads::Loads;
use crate::logs::Readers;
use crate::stops::Stops;

/// How the hub deals with agents.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// How often agents are to be heard.
    pub heartbeat: Duration,
    /// Agents end their tasks when they have not been answered for so long.
    pub lease: Duration,
    /// After the lease, so long until a node counts as lost: time to end what runs there.
    pub margin: Duration,
    /// The folder, shared by all nodes, in which jobs find one of their own for checkpoints; empty for none.
    pub checkpoints: String,
}

impl Default for HubConfig {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(2),
            lease: Duration::from_secs(60),
            margin: Duration::from_secs(10),
            checkpoints: String::new(),
        }
    }
}

/// The connection to one agent.
#[derive(Debug)]
pub(crate) struct Session {
    /// Tells an old connection of a node from the one that replaced it.
    pub(crate) epoch: u64,
    pub(crate) identity: u64,
    /// Whether it has told everything it kept, so that orders can be sent.
    ready: bool,
    out: UnboundedSender<v1::ServerMessage>,
}

#[derive(Debug, Default)]
struct Room {
    sessions: BTreeMap<NodeId, Session>,
    heard: BTreeMap<NodeId, Instant>,
    next_epoch: u64,
    readers: Readers,
    stops: Stops,
    loads: Loads,
}

/// Who is there; clone it freely.
#[derive(Debug, Clone)]
pub struct Hub {
    pub(crate) config: HubConfig,
    room: Arc<Mutex<Room>>,
    started: Instant,
    last_event: watch::Sender<u64>,
    stuck: watch::Sender<Option<String>>,
}

impl Hub {
    /// Nobody is there yet.
    pub fn new(config: HubConfig) -> Self {
        Self {
            config,
            room: Arc::default(),
            started: Instant::now(),
            last_event: watch::Sender::new(0),
            stuck: watch::Sender::new(None),
        }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The number of the last notice in the book, whenever it changes.
    pub fn notices(&self) -> watch::Receiver<u64> {
        self.last_event.subscribe()
    }

    /// Why the journal cannot be written; none if it can.
    pub fn trouble(&self) -> watch::Receiver<Option<String>> {
        self.stuck.subscribe()
    }

    /// Whether the agent of a node is connected.
    pub fn is_connected(&self, node: NodeId) -> bool {
        self.room().sessions.contains_key(&node)
    }

    /// A session for a node. An older one of the same agent is replaced; one of another agent is not.
    pub(crate) fn enter(
        &self,
        node: NodeId,
        identity: u64,
        out: UnboundedSender<v1::ServerMessage>,
    ) -> Result<u64, String> {
        let mut room = self.room();
        let other = room.sessions.get(&node).filter(|s| s.identity != identity);
        if other.is_some_and(|s| !s.out.is_closed()) {
            return Err(
                "another agent of the same name is connected; every node needs a name of its own".to_owned(),
            );
        }
        room.next_epoch += 1;
        let epoch = room.next_epoch;
        room.heard.insert(node, Instant::now());
        let session = Session {
            epoch,
            identity,
            ready: false,
            out,
        };
        room.sessions.insert(node, session);
        Ok(epoch)
    }

    /// The identity of the agent that is connected for a node.
    pub(crate) fn connected_identity(&self, node: NodeId) -> Option<u64> {
        let room = self.room();
        let session = room.sessions.get(&node).filter(|s| !s.out.is_closed())?;
        Some(session.identity)
    }

    /// Orders can be sent from now on.
    pub(crate) fn is_ready(&self, node: NodeId, epoch: u64) {
        if let Some(session) = self.room().sessions.get_mut(&node).filter(|s| s.epoch == epoch) {
            session.ready = true;
        }
    }

    pub(crate) fn leave(&self, node: NodeId, epoch: u64) {
        let mut room = self.room();
        if room.sessions.get(&node).is_some_and(|s| s.epoch == epoch) {
            room.sessions.remove(&node);
            room.readers.node_is_away(node);
        }
    }

    pub(crate) fn heard(&self, node: NodeId, epoch: u64) {
        let mut room = self.room();
        if room.sessions.get(&node).is_some_and(|s| s.epoch == epoch) {
            room.heard.insert(node, Instant::now());
        }
    }

    /// A node tells how busy it is.
    pub(crate) fn is_busy(&self, node: NodeId, beat: &v1::Heartbeat) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
        self.room().loads.told(node, now, beat);
    }

    /// How busy a node was since then, oldest first; nothing where it does not tell.
    pub fn loads(&self, node: NodeId, since: Time) -> Vec<LoadPoint> {
        self.room().loads.of(node, since)
    }

    /// Says something to an agent, if it is there.
    pub(crate) fn say(&self, node: NodeId, body: Body) -> bool {
        let room = self.room();
        let session = room.sessions.get(&node);
        session.is_some_and(|s| s.out.send(v1::ServerMessage { body: Some(body) }).is_ok())
    }

    pub(crate) fn order(&self, node: NodeId, order: RuntimeCommand) {
        let body = convert::order(order, &self.config.checkpoints);
        let ready = self.room().sessions.get(&node).is_some_and(|s| s.ready);
        if ready {
            self.say(node, body);
        }
    }

    /// A rank of a job that stops is at this step; when all are known, all are told where to stop.
    pub(crate) fn at_step(&self, handle: &Handle, task: (JobId, AttemptId), words: &v1::StepReached) {
        let agreed = self
            .room()
            .stops
            .at_step(task, words.rank, words.step, words.world_size);
        let Some(step) = agreed else { return };
        let nodes = handle.read(|state| {
            let attempt = state.job(task.0).and_then(|job| job.attempt());
            let shares = attempt.filter(|a| a.id == task.1).map(|a| &a.allocation.shares);
            shares.map_or(Vec::new(), |shares| shares.iter().map(|s| s.node).collect())
        });
        for node in nodes {
            let stop_at = v1::StopAfterStep {
                task: convert::key(task.0, task.1),
                step,
            };
            self.say(node, Body::StopAfterStep(stop_at));
        }
    }

    pub(crate) fn forget_stop(&self, task: (JobId, AttemptId)) {
        self.room().stops.forget(task);
    }

    /// Reads a log where it is.
    ///
    /// # Errors
    /// When the agent of the node is not connected.
    pub fn read_log(&self, request: &LogRequest) -> Result<Receiver<LogPiece>, String> {
        let mut room = self.room();
        let away = || "the agent of the node is not connected; its logs can be read when it is".to_owned();
        let out = room
            .sessions
            .get(&request.node)
            .map(|s| s.out.clone())
            .ok_or_else(away)?;
        let (words, receiver) = room.readers.open(request);
        let body = Some(Body::ReadLog(words));
        out.send(v1::ServerMessage { body }).map_err(|_| away())?;
        Ok(receiver)
    }

    pub(crate) fn log_piece(&self, node: NodeId, chunk: v1::LogChunk) {
        let back = self.room().readers.piece(node, chunk);
        if let Some(words) = back {
            self.say(node, Body::ReadLog(words));
        }
    }

    /// Nodes that have been silent for longer than their lease and the margin.
    pub fn silent(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
        let room = self.room();
        let longest = self.config.lease + self.config.margin;
        nodes
            .filter(|node| room.heard.get(node).unwrap_or(&self.started).elapsed() > longest)
            .collect()
    }
}

impl Backend for Hub {
    fn dispatch(&mut self, orders: Vec<(NodeId, RuntimeCommand)>) {
        for (node, order) in orders {
            Hub::order(self, node, order);
        }
    }

    fn events_recorded(&mut self, last: u64) {
        self.last_event.send_replace(last);
    }

    fn journal_unavailable(&mut self, why: Option<&str>) {
        match why {
            Some(why) => tracing::error!(why, "the journal cannot be written"),
            None => tracing::info!("the journal can be written again"),
        }
        self.stuck.send_replace(why.map(str::to_owned));
    }
}
