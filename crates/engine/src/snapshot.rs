//! The saved form of an engine.

use std::collections::VecDeque;

use dovetail_model::Command;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::Progress;
use crate::state::State;

/// Everything that is needed to continue an engine later, or elsewhere, exactly as before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    pub(crate) state: State,
    #[serde(alias = "books")]
    pub(crate) progress: Progress,
    pub(crate) commands: VecDeque<Command>,
    /// What each part of the policy saved.
    pub(crate) parts: [Value; 7],
}
