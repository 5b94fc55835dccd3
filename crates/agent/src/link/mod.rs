//! The connection to the server: opened, kept open, opened again.

pub(crate) mod authority;
pub(crate) mod credentials;
mod outgoing;

use std::time::Duration;

use dovetail_proto::v1::scheduler_client::SchedulerClient;
use dovetail_proto::v1::{AgentMessage, ServerMessage, agent_message, server_message::Body};
use tokio::sync::mpsc::UnboundedSender;
use tonic::Code;

use crate::config::AgentConfig;
use crate::error::AgentError;
use crate::link::credentials::Connector;
pub(crate) use crate::link::outgoing::MessageSender;

/// A change of the connection, or a message from it.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// A connection is about to be opened. The first message to send is `Hello`.
    Connecting(MessageSender),
    /// A message from the server.
    Received(Box<ServerMessage>),
    /// The connection has ended; the next attempt follows.
    Disconnected(String),
    /// There will be no further attempt.
    Failed(AgentError),
}

/// How long the server may take to answer `Hello`.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of heartbeat intervals without a message after which a connection is given up.
const SILENT_HEARTBEATS: u32 = 4;

/// Keeps a connection open until the receiver of the events is dropped or the server rejects this agent permanently.
pub(crate) async fn keep_connected(config: AgentConfig, events: UnboundedSender<LinkEvent>) {
    let mut connector = Connector::new(config.clone());
    let mut backoff = Backoff::new(config.max_reconnect_delay);
    loop {
        let mut session = Session {
            events: &events,
            read_timeout: ANSWER_TIMEOUT,
            is_welcome: false,
        };
        let end = session.run(&mut connector).await;
        if session.is_welcome {
            backoff.reset();
        }
        let event = match end {
            AgentError::Rejected { .. } | AgentError::Config { .. } => LinkEvent::Failed(end),
            other => LinkEvent::Disconnected(other.to_string()),
        };
        let has_failed = matches!(event, LinkEvent::Failed(_));
        if events.send(event).is_err() || has_failed {
            return;
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// One connection.
struct Session<'a> {
    events: &'a UnboundedSender<LinkEvent>,
    read_timeout: Duration,
    is_welcome: bool,
}

impl Session<'_> {
    /// Runs a connection and returns why it ended.
    async fn run(&mut self, connector: &mut Connector) -> AgentError {
        match self.connect(connector).await {
            Ok(()) => unreachable("the server closed the connection"),
            Err(e) => e,
        }
    }

    async fn connect(&mut self, connector: &mut Connector) -> Result<(), AgentError> {
        let channel = connector.channel().await?;
        let (sender, outgoing) = outgoing::pair();
        if self.events.send(LinkEvent::Connecting(sender)).is_err() {
            return Err(AgentError::ShuttingDown);
        }
        let mut client = SchedulerClient::new(channel);
        let attached = tokio::time::timeout(ANSWER_TIMEOUT, client.attach(outgoing)).await;
        let attached = attached.map_err(|_| unreachable("the server does not answer"))?;
        let mut messages = match attached {
            Ok(reply) => reply.into_inner(),
            Err(status) => return Err(connector.attach_failed(&status)),
        };
        loop {
            let message = tokio::time::timeout(self.read_timeout, messages.message()).await;
            let message = message.map_err(|_| unreachable("the server has stopped answering"))?;
            match message {
                Ok(Some(message)) => self.received(connector, message)?,
                Ok(None) => return Ok(()),
                Err(status) if status.code() == Code::Unauthenticated => {
                    return Err(connector.attach_failed(&status));
                }
                Err(status) => return Err(unreachable(status.message())),
            }
        }
    }

    fn received(&mut self, connector: &Connector, message: ServerMessage) -> Result<(), AgentError> {
        match &message.body {
            Some(Body::Rejection(rejection)) if rejection.permanent => {
                return Err(connector.rejected(&rejection.reason));
            }
            Some(Body::Rejection(rejection)) => {
                let reason = format!("temporarily rejected: {}", rejection.reason);
                return Err(AgentError::Unreachable(reason));
            }
            Some(Body::Welcome(welcome)) => {
                let silent_ms = SILENT_HEARTBEATS * welcome.heartbeat_ms;
                self.read_timeout = Duration::from_millis(u64::from(silent_ms)).max(Duration::from_secs(1));
                self.is_welcome = true;
            }
            _ => {}
        }
        let event = LinkEvent::Received(Box::new(message));
        self.events.send(event).map_err(|_| AgentError::ShuttingDown)
    }
}

fn unreachable(reason: &str) -> AgentError {
    AgentError::Unreachable(reason.to_owned())
}

/// Delay before the next attempt to connect. It doubles up to a limit, and is randomized so that nodes do not reconnect
/// all at once.
struct Backoff {
    current: Duration,
    max: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);

    fn new(max: Duration) -> Self {
        Self {
            current: Self::FIRST,
            max,
        }
    }

    fn reset(&mut self) {
        self.current = Self::FIRST;
    }

    fn next(&mut self) -> Duration {
        let delay = self.current.min(self.max);
        self.current = (self.current * 2).min(self.max);
        delay.mul_f64(rand::random_range(0.5..1.0))
    }
}

/// Returns a message that expects no acknowledgement.
pub(crate) fn unnumbered(body: agent_message::Body) -> AgentMessage {
    AgentMessage {
        sequence: 0,
        body: Some(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_limit_and_can_be_reset() {
        let max = Duration::from_millis(300);
        let mut backoff = Backoff::new(max);
        assert!(backoff.next() <= Backoff::FIRST);
        for _ in 0..20 {
            assert!(backoff.next() <= max);
        }
        assert!(backoff.next() >= max / 2);
        backoff.reset();
        assert!(backoff.next() <= Backoff::FIRST);
    }
}
