//! Sessions of agents, one for each node. Commands go to connected agents; others get them when they reconnect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dovetail_cluster::{AttemptId, Handle, JobId, LoadPoint, LogPiece, LogRequest, RuntimeCommand};
use dovetail_model::{NodeId, Time};
use dovetail_proto::v1::{self, server_message::Body};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::convert;
use crate::loads::Loads;
use crate::logs::Readers;
use crate::mps::{MpsAnswer, MpsRequests};
use crate::stops::Stops;

/// Configuration of the hub.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// Time between two heartbeats of an agent.
    pub heartbeat: Duration,
    /// Time without an answer after which agents end their tasks.
    pub lease: Duration,
    /// Time after the lease at which a node is lost, in which its agent ends its tasks.
    pub margin: Duration,
    /// Folder for checkpoints that all nodes share, with one subfolder for each job; empty for none.
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

/// Why the hub refuses a session or a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HubError {
    /// Another agent is connected for the same node.
    #[error("another agent of the same name is connected; every node must have a unique name")]
    DuplicateName,
    /// The agent of the node is not connected.
    #[error("the agent of the node is not connected; try again when it reconnects")]
    NotConnected,
}

/// The connection to one agent.
#[derive(Debug)]
pub(crate) struct Session {
    /// Distinguishes a connection of a node from the one that replaced it.
    pub(crate) epoch: u64,
    pub(crate) identity: u64,
    /// Whether the agent has sent all facts it kept, so that commands can be sent.
    ready: bool,
    out: UnboundedSender<v1::ServerMessage>,
    /// Asks the connection to close.
    close: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Connections {
    sessions: BTreeMap<NodeId, Session>,
    last_heard: BTreeMap<NodeId, Instant>,
    next_epoch: u64,
    readers: Readers,
    stops: Stops,
    loads: Loads,
    mps: MpsRequests,
}

/// Sessions of all agents; cheap to clone.
#[derive(Debug, Clone)]
pub struct Hub {
    pub(crate) config: HubConfig,
    connections: Arc<Mutex<Connections>>,
    started: Instant,
}

impl Hub {
    /// Creates a hub without sessions.
    pub fn new(config: HubConfig) -> Self {
        Self {
            config,
            connections: Arc::default(),
            started: Instant::now(),
        }
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns whether the agent of a node is connected.
    pub(crate) fn has_session(&self, node: NodeId) -> bool {
        self.connections().sessions.contains_key(&node)
    }

    /// Opens a session for a node. It replaces an older one of the same agent, but not one of another agent. Returns its
    /// epoch, and the signal that asks the connection to close.
    pub(crate) fn open_session(
        &self,
        node: NodeId,
        identity: u64,
        out: UnboundedSender<v1::ServerMessage>,
    ) -> Result<(u64, Arc<Notify>), HubError> {
        let mut connections = self.connections();
        let other = connections.sessions.get(&node).filter(|s| s.identity != identity);
        if other.is_some_and(|s| !s.out.is_closed()) {
            return Err(HubError::DuplicateName);
        }
        connections.next_epoch += 1;
        let epoch = connections.next_epoch;
        connections.last_heard.insert(node, Instant::now());
        let close = Arc::new(Notify::new());
        let session = Session {
            epoch,
            identity,
            ready: false,
            out,
            close: Arc::clone(&close),
        };
        connections.sessions.insert(node, session);
        Ok((epoch, close))
    }

    /// Ends the session of a node that was declared lost, so that its agent must reconnect and register again.
    pub(crate) fn disconnect(&self, node: NodeId) {
        if let Some(session) = self.connections().sessions.get(&node) {
            session.close.notify_one();
        }
    }

    /// Records that the agent of a node is about to register, so that the node is not declared lost meanwhile.
    pub(crate) fn expect_session(&self, node: NodeId) {
        self.connections().last_heard.insert(node, Instant::now());
    }

    /// Returns the identity of the connected agent of a node.
    pub(crate) fn connected_identity(&self, node: NodeId) -> Option<u64> {
        let connections = self.connections();
        let session = connections.sessions.get(&node).filter(|s| !s.out.is_closed())?;
        Some(session.identity)
    }

    /// Marks a session as ready to receive commands.
    pub(crate) fn set_ready(&self, node: NodeId, epoch: u64) {
        if let Some(session) = self
            .connections()
            .sessions
            .get_mut(&node)
            .filter(|s| s.epoch == epoch)
        {
            session.ready = true;
        }
    }

    pub(crate) fn close_session(&self, node: NodeId, epoch: u64) {
        let mut connections = self.connections();
        if connections.sessions.get(&node).is_some_and(|s| s.epoch == epoch) {
            connections.sessions.remove(&node);
            connections.readers.end_for_node(node);
            connections.mps.end_for_node(node);
        }
    }

    pub(crate) fn record_contact(&self, node: NodeId, epoch: u64) {
        let mut connections = self.connections();
        if connections.sessions.get(&node).is_some_and(|s| s.epoch == epoch) {
            connections.last_heard.insert(node, Instant::now());
        }
    }

    /// Records the utilization in a heartbeat.
    pub(crate) fn record_load(&self, node: NodeId, beat: &v1::Heartbeat) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
        self.connections().loads.record(node, now, beat);
    }

    /// Returns the utilization of a node since a point in time, oldest first; empty if it is unknown.
    pub(crate) fn loads_since(&self, node: NodeId, since: Time) -> Vec<LoadPoint> {
        self.connections().loads.since(node, since)
    }

    /// Sends a message to an agent, if it is connected.
    pub(crate) fn send(&self, node: NodeId, body: Body) -> bool {
        let connections = self.connections();
        let session = connections.sessions.get(&node);
        session.is_some_and(|s| s.out.send(v1::ServerMessage { body: Some(body) }).is_ok())
    }

    /// Sends a command to an agent, if it is connected and ready.
    pub(crate) fn send_command(&self, node: NodeId, command: RuntimeCommand) {
        let body = convert::command(command, &self.config.checkpoints);
        let ready = self.connections().sessions.get(&node).is_some_and(|s| s.ready);
        if ready {
            self.send(node, body);
        }
    }

    /// Records the step of a rank of a stopping job. When all ranks have reported, their agents get the step to stop after.
    pub(crate) fn record_step(&self, handle: &Handle, task: (JobId, AttemptId), report: &v1::StepReached) {
        let agreed = self
            .connections()
            .stops
            .at_step(task, report.rank, report.step, report.world_size);
        let Some(step) = agreed else { return };
        let nodes = handle.read(|state| {
            let attempt = state.job(task.0).and_then(|job| job.attempt());
            let shares = attempt.filter(|a| a.id == task.1).map(|a| &a.allocation.shares);
            shares.map_or(Vec::new(), |shares| shares.iter().map(|s| s.node).collect())
        });
        for node in nodes {
            let stop_at = v1::StopAfterStep {
                task: convert::task_key(task.0, task.1),
                step,
            };
            self.send(node, Body::StopAfterStep(stop_at));
        }
    }

    pub(crate) fn forget_stop(&self, task: (JobId, AttemptId)) {
        self.connections().stops.forget(task);
    }

    /// Requests a log from the agent of its node.
    ///
    /// # Errors
    /// If the agent is not connected.
    pub(crate) fn start_reading(&self, request: &LogRequest) -> Result<Receiver<LogPiece>, HubError> {
        let mut connections = self.connections();
        let out = connections
            .sessions
            .get(&request.node)
            .map(|s| s.out.clone())
            .ok_or(HubError::NotConnected)?;
        let (message, receiver) = connections.readers.open(request);
        let body = Some(Body::ReadLog(message));
        out.send(v1::ServerMessage { body })
            .map_err(|_| HubError::NotConnected)?;
        Ok(receiver)
    }

    pub(crate) fn pass_on_log(&self, node: NodeId, chunk: v1::LogChunk) {
        let cancel = self.connections().readers.pass_on(node, chunk);
        if let Some(message) = cancel {
            self.send(node, Body::ReadLog(message));
        }
    }

    /// Asks an agent to start or stop MPS. Returns the channel on which its answer arrives.
    ///
    /// # Errors
    /// If the agent is not connected.
    pub(crate) fn set_mps(
        &self,
        node: NodeId,
        is_on: bool,
    ) -> Result<oneshot::Receiver<MpsAnswer>, HubError> {
        let mut connections = self.connections();
        let out = connections.sessions.get(&node).map(|s| s.out.clone());
        let out = out.ok_or(HubError::NotConnected)?;
        let (message, answer) = connections.mps.open(node, is_on);
        let body = Some(Body::SetMps(message));
        out.send(v1::ServerMessage { body })
            .map_err(|_| HubError::NotConnected)?;
        Ok(answer)
    }

    pub(crate) fn pass_on_mps(&self, node: NodeId, report: v1::MpsReport) {
        self.connections().mps.pass_on(node, report);
    }

    /// Returns the nodes that have been silent for longer than the lease and the margin.
    pub fn silent(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
        let connections = self.connections();
        let longest = self.config.lease + self.config.margin;
        nodes
            .filter(|node| {
                connections
                    .last_heard
                    .get(node)
                    .unwrap_or(&self.started)
                    .elapsed()
                    > longest
            })
            .collect()
    }
}
