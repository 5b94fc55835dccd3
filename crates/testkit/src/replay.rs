//! Recorded calls of an engine, and their replay.

use dovetail_engine::Engine;
use dovetail_model::{Command, Event, Time};

/// One call of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// `handle` with an event.
    Handle(Time, Event),
    /// `poll`, and the command it returned.
    Poll(Option<Command>),
}

/// A call that returned another command than the recorded one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("call {call}: expected {expected:?}, found {found:?}")]
pub struct ReplayError {
    /// Index of the call.
    pub call: usize,
    /// The recorded command.
    pub expected: Option<Command>,
    /// The command that was returned instead.
    pub found: Option<Command>,
}

/// Repeats recorded calls with another engine.
///
/// # Errors
/// Describes the first call with another result.
pub fn replay(engine: &mut Engine, calls: &[Call]) -> Result<(), Box<ReplayError>> {
    for (call, recorded) in calls.iter().enumerate() {
        match recorded {
            Call::Handle(now, event) => engine.handle(*now, event.clone()),
            Call::Poll(expected) => {
                let found = engine.poll();
                if found != *expected {
                    return Err(Box::new(ReplayError {
                        call,
                        expected: expected.clone(),
                        found,
                    }));
                }
            }
        }
    }
    Ok(())
}
