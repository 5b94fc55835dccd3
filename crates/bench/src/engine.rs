//! Drives an engine without a cluster: every command succeeds immediately.

use dovetail_engine::Engine;
use dovetail_model::{AttemptKey, Command, Event, JobKey, Rate, Time, Work};

/// A job and its attempt.
pub(crate) type RunningJob = (JobKey, AttemptKey);

/// Returns the commands of one decision.
pub(crate) fn decide(engine: &mut Engine) -> Vec<Command> {
    std::iter::from_fn(|| engine.poll()).collect()
}

/// Reports a command as done. Returns the job that it has started, if any.
pub(crate) fn acknowledge(engine: &mut Engine, now: Time, command: &Command) -> Option<RunningJob> {
    match *command {
        Command::Launch { job, attempt, .. } => {
            let rate = Rate::FULL;
            engine.handle(now, Event::Started { job, attempt, rate });
            Some((job, attempt))
        }
        Command::Stop { job, attempt, .. } => {
            let done = Work(0);
            engine.handle(now, Event::Stopped { job, attempt, done });
            None
        }
        Command::Resize { .. } | Command::Reject { .. } => None,
    }
}

/// Decides and reports commands as done until the engine has no more of them.
pub(crate) fn settle(engine: &mut Engine, started: &mut Vec<RunningJob>) {
    while let Some(command) = engine.poll() {
        let now = engine.now();
        started.extend(acknowledge(engine, now, &command));
    }
}
