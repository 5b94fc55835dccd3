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

/// Repeats recorded calls with another engine.
///
/// # Errors
/// Describes the first call with another result.
pub fn replay(engine: &mut Engine, calls: &[Call]) -> Result<(), String> {
    for (i, call) in calls.iter().enumerate() {
        match call {
            Call::Handle(now, event) => engine.handle(*now, event.clone()),
            Call::Poll(expected) => {
                let found = engine.poll();
                if found != *expected {
                    return Err(format!("call {i}: expected {expected:?}, found {found:?}"));
                }
            }
        }
    }
    Ok(())
}
