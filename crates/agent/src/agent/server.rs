//! The agent's view of its connection to the server: what was sent, and what has not been acknowledged.

use std::collections::BTreeMap;

use dovetail_proto::v1::agent_message::Body;
use dovetail_proto::v1::{AgentMessage, Heartbeat, Hello, TaskEnded, Welcome};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use crate::clock::{boot_ms, unix_us};
use crate::link::{self, MessageSender};

/// Number of heartbeats after which facts are resent if they have not been acknowledged.
const RESEND_HEARTBEATS: u32 = 10;

/// The connection to the server. Facts are kept until they are acknowledged, heartbeats extend the lease.
#[derive(Default)]
pub(crate) struct ServerLink {
    sender: Option<MessageSender>,
    /// Whether the server has accepted this agent on the current connection.
    is_welcome: bool,
    hello_ms: u64,
    heartbeat_ms: u64,
    /// Length of the lease; zero for no limit.
    lease_ms: u64,
    next_heartbeat: Option<Instant>,
    heartbeats_since_facts: u32,
    /// When heartbeats were sent that have not been acknowledged, by sequence number.
    heartbeats: BTreeMap<u64, u64>,
    /// Answers to commands that were not carried out, until they are acknowledged.
    answers: BTreeMap<u64, TaskEnded>,
    last_sequence: u64,
}

impl ServerLink {
    /// Sends `Hello` on a new connection.
    pub(crate) fn connecting(&mut self, sender: MessageSender, hello: Hello) {
        self.sender = Some(sender);
        self.is_welcome = false;
        self.heartbeats.clear();
        self.next_heartbeat = None;
        self.hello_ms = boot_ms();
        self.send(link::unnumbered(Body::Hello(hello)));
    }

    pub(crate) fn disconnected(&mut self, reason: &str) {
        if self.is_welcome {
            tracing::warn!("disconnected: {reason}");
        } else {
            tracing::info!("not connected yet: {reason}");
        }
        self.sender = None;
        self.is_welcome = false;
        self.next_heartbeat = None;
    }

    /// The server has accepted this agent. Returns the end of the lease.
    pub(crate) fn welcomed(&mut self, welcome: &Welcome) -> u64 {
        self.is_welcome = true;
        self.heartbeat_ms = u64::from(welcome.heartbeat_ms).max(10);
        self.lease_ms = u64::from(welcome.lease_ms);
        self.lease_end(self.hello_ms)
    }

    /// Returns the end of a lease that begins when the acknowledged message was sent.
    fn lease_end(&self, sent_ms: u64) -> u64 {
        match self.lease_ms {
            0 => u64::MAX,
            ms => sent_ms + ms,
        }
    }

    pub(crate) fn is_welcome(&self) -> bool {
        self.is_welcome
    }

    /// Returns when the next heartbeat is due.
    pub(crate) fn next_heartbeat(&self) -> Instant {
        let never = || Instant::now() + Duration::from_secs(3600);
        self.next_heartbeat.unwrap_or_else(never)
    }

    /// Sends a heartbeat. Returns whether unacknowledged facts should be resent.
    pub(crate) fn send_heartbeat(&mut self, heartbeat: Heartbeat) -> bool {
        let sequence = self.next_sequence();
        self.heartbeats.insert(sequence, boot_ms());
        self.next_heartbeat = Some(Instant::now() + Duration::from_millis(self.heartbeat_ms));
        self.send_numbered(sequence, Body::Heartbeat(heartbeat));
        self.heartbeats_since_facts += 1;
        self.heartbeats_since_facts > RESEND_HEARTBEATS
    }

    /// Removes an acknowledged heartbeat. Returns the new end of the lease, or `None` if it was not a heartbeat.
    pub(crate) fn acknowledge_heartbeat(&mut self, sequence: u64) -> Option<u64> {
        let sent_ms = self.heartbeats.remove(&sequence)?;
        self.heartbeats.retain(|other, _| *other > sequence);
        Some(self.lease_end(sent_ms))
    }

    /// Removes an acknowledged answer. Returns whether there was one.
    pub(crate) fn acknowledge_answer(&mut self, sequence: u64) -> bool {
        self.answers.remove(&sequence).is_some()
    }

    /// Answers a command that is not carried out.
    pub(crate) fn answer(&mut self, answer: TaskEnded) {
        let sequence = self.next_sequence();
        self.answers.insert(sequence, answer.clone());
        self.send_numbered(sequence, Body::TaskEnded(answer));
    }

    /// Resends unacknowledged answers.
    pub(crate) fn resend_answers(&mut self) {
        self.heartbeats_since_facts = 0;
        for (sequence, answer) in &self.answers {
            self.send_numbered(*sequence, Body::TaskEnded(answer.clone()));
        }
    }

    /// Sends a message that the server acknowledges. It is dropped while there is no connection.
    pub(crate) fn send_numbered(&self, sequence: u64, body: Body) {
        if self.is_welcome {
            let body = Some(body);
            self.send(AgentMessage { sequence, body });
        }
    }

    /// Sends a message that needs no acknowledgement. It is dropped while there is no connection.
    pub(crate) fn send_unnumbered(&self, body: Body) {
        if self.is_welcome {
            self.send(link::unnumbered(body));
        }
    }

    fn send(&self, message: AgentMessage) {
        if let Some(sender) = &self.sender {
            sender.send(message);
        }
    }

    /// Returns the queue for log chunks.
    pub(crate) fn log_queue(&self) -> Option<mpsc::Sender<AgentMessage>> {
        self.sender.as_ref().map(|sender| sender.logs.clone())
    }

    /// Returns a sequence number greater than all before, including those of earlier agents in the folder.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.last_sequence = unix_us().max(self.last_sequence + 1);
        self.last_sequence
    }
}
