//! Bodies of the cluster as a whole.

use std::collections::BTreeMap;

use dovetail_cluster::{DataWarning, MissingData, Need, OperatorAction};
use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An overview of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterView {
    /// Time of the server.
    #[schemars(with = "i64")]
    pub now: Time,
    /// Policy, as a name with parameters.
    pub policy: String,
    /// Parts that replace those of the preset, by kind.
    pub parts: BTreeMap<String, String>,
    /// When decisions are made: `events`, or the length of a round.
    pub clock: String,
    /// Whether scheduling is paused.
    pub paused: bool,
    /// Number of nodes that are not lost.
    pub nodes: u32,
    /// Number of GPUs on nodes that are not lost.
    pub gpus: u32,
    /// Number of GPUs that jobs hold.
    pub used_gpus: u32,
    /// Number of unfinished jobs, by state.
    pub jobs: BTreeMap<String, u64>,
    /// Error of writing the journal; none if it can be written.
    pub journal_error: Option<String>,
    /// Name of the runtime that runs jobs.
    #[serde(default)]
    pub runtime: String,
    /// Data that the policy needs and that queued jobs, or the runtime, do not provide.
    #[serde(default)]
    pub warnings: Vec<PolicyWarning>,
    /// Number of the last event.
    pub last_event: u64,
    /// Release of the server.
    pub version: String,
}

/// Data that the policy needs and that are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyWarning {
    /// The part of the policy that needs the data.
    pub part: String,
    /// What it needs, such as `remaining-time`.
    pub need: String,
    /// Number of queued jobs without it; none if the runtime does not provide it for any job.
    pub lacking: Option<u32>,
    /// Number of queued jobs that it concerns.
    pub queued: Option<u32>,
    /// The warning as a sentence.
    pub text: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl PolicyWarning {
    /// Returns a warning for people.
    pub fn new(warning: &DataWarning) -> Self {
        let (lacking, queued) = match warning.missing {
            MissingData::Jobs { lacking, queued } => (Some(lacking), Some(queued)),
            MissingData::Runtime { .. } => (None, None),
        };
        let help = match warning.need.need {
            Need::RemainingTime => Some("submit with `--expected`".to_owned()),
            _ => None,
        };
        Self {
            part: warning.need.part.clone(),
            need: warning.need.need.code().to_owned(),
            lacking,
            queued,
            text: warning.to_string(),
            help,
        }
    }
}

impl std::fmt::Display for PolicyWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "warning: {}", self.text)?;
        match &self.help {
            Some(help) => write!(f, "\nhelp: {help}"),
            None => Ok(()),
        }
    }
}

/// A known policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyView {
    /// Name of the policy.
    pub name: String,
    /// Description in one sentence.
    pub what: String,
    /// Paper that it is from.
    pub paper: String,
    /// Key that sorts the queue.
    pub key: String,
    /// Data and mechanisms it needs, such as `remaining-time`.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Why this cluster refuses it; none if it can be used.
    #[serde(default)]
    pub refused: Option<String>,
}

/// A change by an operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// The change.
    pub operate: OperatorAction,
}
