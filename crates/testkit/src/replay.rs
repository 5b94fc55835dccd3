//! What was told to an engine and asked of it, to do it again.

use dovetail_engine::Engine;
use dovetail_model::{Command, Event, Time};

/// One call of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// `handle`.
    Tell(Time, Event),
    /// `poll`, and what it gave.
    Poll(Option<Command>),
}

/// Does it all again with another engine.
///
/// # Errors
/// Names the first call that gave something else.
pub fn replay(engine: &mut Engine, ops: &[Op]) -> Result<(), String> {
    for (i, op) in ops.iter().enumerate() {
        match op {
            Op::Tell(now, event) => engine.handle(*now, event.clone()),
            Op::Poll(expected) => {
                let given = engine.poll();
                if given != *expected {
                    return Err(format!("call {i}: {given:?} instead of {expected:?}"));
                }
            }
        }
    }
    Ok(())
}
