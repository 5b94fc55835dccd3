//! The agent: one task owns everything it knows, and hears of what happens one thing at a time.

mod facts;
mod launch;
mod logs;
mod orders;
mod recover;
mod state;
mod stopping;

use std::future::Future;
use std::time::Duration;

use dovetail_proto::v1::to_agent::What;
use tokio::sync::mpsc::unbounded_channel;

use crate::agent::state::{Agent, TaskEvent};
use crate::config::AgentConfig;
use crate::error::NodeError;
use crate::link::{self, LinkEvent};
use crate::task::record::Key;
use crate::trainers;

/// Runs an agent until `shutdown` is ready. Its tasks go on; the next agent in the same folder takes them up again.
///
/// # Errors
/// When a setting cannot be, the folder cannot be used, or the scheduler refuses this node for good. A scheduler that
/// cannot be reached is no error: it is dialled again and again.
pub async fn run(config: AgentConfig, shutdown: impl Future<Output = ()>) -> Result<(), NodeError> {
    config.check()?;
    let (task_events, mut of_tasks) = unbounded_channel::<(Key, TaskEvent)>();
    let (trainer_events, mut of_trainers) = unbounded_channel();
    let (link_events, mut of_link) = unbounded_channel();
    let mut agent = Agent::new(config.clone(), task_events)?;
    trainers::listen(&agent.socket, trainer_events)?;
    agent.recover()?;
    let link = tokio::spawn(link::keep(config, link_events));
    let mut housekeeping = tokio::time::interval(Duration::from_secs(60));
    let mut shutdown = std::pin::pin!(shutdown);
    let result = loop {
        tokio::select! {
            () = &mut shutdown => break Ok(()),
            Some(event) = of_link.recv() => match event {
                LinkEvent::Dialled(sender) => agent.dialled(sender),
                LinkEvent::Heard(word) => agent.heard(word.what),
                LinkEvent::Down(why) => agent.down(&why),
                LinkEvent::Refused(why) => break Err(why),
            },
            Some((key, event)) = of_tasks.recv() => agent.of_task(key, event),
            Some(event) = of_trainers.recv() => agent.of_trainer(event),
            () = tokio::time::sleep_until(agent.next_beat()) => agent.beat(),
            _ = housekeeping.tick() => agent.delete_old(),
        }
    };
    link.abort();
    agent.stop_reading_logs();
    result
}

impl Agent {
    /// A word from the scheduler.
    fn heard(&mut self, what: Option<What>) {
        match what {
            Some(What::Welcome(welcome)) => self.welcome(&welcome),
            Some(What::Ack(ack)) => self.acknowledged(ack.number),
            Some(What::Start(order)) => self.start(order),
            Some(What::Stop(order)) => self.stop(&order),
            Some(What::StopAt(order)) => self.stop_at(order.task.unwrap_or_default().into(), order.step),
            Some(What::Resize(order)) => self.resize(&order),
            Some(What::ReadLog(order)) => self.read_log(order),
            // The link has acted on it; a word that this release does not know is for a newer one.
            Some(What::Refused(_)) | None => {}
        }
    }
}
