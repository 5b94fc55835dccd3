//! The connection to the scheduler: dialled, kept, dialled again.

pub(crate) mod authority;
pub(crate) mod credentials;
mod outgoing;

use std::time::Duration;

use dovetail_proto::v1::scheduler_client::SchedulerClient;
use dovetail_proto::v1::{FromAgent, ToAgent, to_agent::What};
use tokio::sync::mpsc::{self, UnboundedSender};
use tonic::Code;

use crate::config::AgentConfig;
use crate::error::NodeError;
use crate::link::credentials::Dialer;
pub(crate) use crate::link::outgoing::Sender;

/// What happens to the connection.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// A connection is about to be opened; the first thing to send is `Hello`.
    Dialled(Sender),
    /// A word from the scheduler.
    Heard(Box<ToAgent>),
    /// It is gone; another one is tried.
    Down(String),
    /// There will be no other one.
    Refused(NodeError),
}

/// So long a scheduler may take for its first word.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// A connection on which nothing is heard for so many heartbeats is given up.
const SILENT_BEATS: u32 = 4;

/// Keeps a connection for ever. Ends when nobody listens, or the scheduler refuses for good.
pub(crate) async fn keep(config: AgentConfig, events: UnboundedSender<LinkEvent>) {
    let mut dialer = Dialer::new(config.clone());
    let mut pause = Pause::new(config.redial_most);
    loop {
        let mut session = Session {
            events: &events,
            silence: FIRST_WORD,
            heard_any: false,
        };
        let end = session.run(&mut dialer).await;
        if session.heard_any {
            pause.reset();
        }
        let event = match end {
            NodeError::Refused { .. } | NodeError::Setting { .. } => LinkEvent::Refused(end),
            other => LinkEvent::Down(other.to_string()),
        };
        let is_over = matches!(event, LinkEvent::Refused(_));
        if events.send(event).is_err() || is_over {
            return;
        }
        tokio::time::sleep(pause.next()).await;
    }
}

struct Session<'a> {
    events: &'a UnboundedSender<LinkEvent>,
    silence: Duration,
    heard_any: bool,
}

impl Session<'_> {
    /// One connection, until it ends; why.
    async fn run(&mut self, dialer: &mut Dialer) -> NodeError {
        match self.attempt(dialer).await {
            Ok(()) => unreachable("the scheduler closed the connection"),
            Err(e) => e,
        }
    }

    async fn attempt(&mut self, dialer: &mut Dialer) -> Result<(), NodeError> {
        let channel = dialer.channel().await?;
        let (sender, outgoing) = outgoing::pair();
        if self.events.send(LinkEvent::Dialled(sender)).is_err() {
            return Err(unreachable("the agent is shutting down"));
        }
        let mut client = SchedulerClient::new(channel);
        let opened = tokio::time::timeout(FIRST_WORD, client.attach(outgoing)).await;
        let opened = opened.map_err(|_| unreachable("the scheduler does not answer"))?;
        let mut words = match opened {
            Ok(reply) => reply.into_inner(),
            Err(status) => return Err(dialer.turned_away(&status)),
        };
        loop {
            let word = tokio::time::timeout(self.silence, words.message()).await;
            let word = word.map_err(|_| unreachable("the scheduler has gone silent"))?;
            match word {
                Ok(Some(word)) => self.heard(dialer, word)?,
                Ok(None) => return Ok(()),
                Err(status) if status.code() == Code::Unauthenticated => {
                    return Err(dialer.turned_away(&status));
                }
                Err(status) => return Err(unreachable(status.message())),
            }
        }
    }

    fn heard(&mut self, dialer: &Dialer, word: ToAgent) -> Result<(), NodeError> {
        match &word.what {
            Some(What::Refused(no)) if no.for_good => return Err(dialer.refused(&no.why)),
            Some(What::Refused(no)) => return Err(unreachable(&format!("refused for now: {}", no.why))),
            Some(What::Welcome(welcome)) => {
                let beats = SILENT_BEATS * welcome.heartbeat_ms;
                self.silence = Duration::from_millis(u64::from(beats)).max(Duration::from_secs(1));
                self.heard_any = true;
            }
            _ => {}
        }
        let gone = |_| unreachable("the agent is shutting down");
        self.events.send(LinkEvent::Heard(Box::new(word))).map_err(gone)
    }
}

fn unreachable(why: &str) -> NodeError {
    NodeError::Unreachable(why.to_owned())
}

/// The pause before the next attempt: it doubles, up to a limit, and is not the same on all nodes.
struct Pause {
    now: Duration,
    most: Duration,
}

impl Pause {
    const FIRST: Duration = Duration::from_millis(50);

    fn new(most: Duration) -> Self {
        Self {
            now: Self::FIRST,
            most,
        }
    }

    fn reset(&mut self) {
        self.now = Self::FIRST;
    }

    fn next(&mut self) -> Duration {
        let all = self.now.min(self.most);
        self.now = (self.now * 2).min(self.most);
        all.mul_f64(rand::random_range(0.5..1.0))
    }
}

/// For [`outgoing`]: as many pieces of logs may wait, so that facts and heartbeats never wait behind them.
const WAITING_LOGS: usize = 2;

/// A message that needs no answer.
pub(crate) fn unnumbered(what: dovetail_proto::v1::from_agent::What) -> FromAgent {
    FromAgent {
        number: 0,
        what: Some(what),
    }
}

fn log_channel() -> (mpsc::Sender<FromAgent>, mpsc::Receiver<FromAgent>) {
    mpsc::channel(WAITING_LOGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_begin_anew() {
        let most = Duration::from_millis(300);
        let mut pause = Pause::new(most);
        assert!(pause.next() <= Pause::FIRST);
        for _ in 0..20 {
            assert!(pause.next() <= most);
        }
        assert!(pause.next() >= most / 2);
        pause.reset();
        assert!(pause.next() <= Pause::FIRST);
    }
}
