//! Bodies of events.

use dovetail_cluster::state::{ClusterEvent, ClusterState, EventKind, JobState};
use dovetail_cluster::{JobId, OperatorAction};
use dovetail_model::{NodeId, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An event of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    /// Number of the event, counting up without gaps.
    pub number: u64,
    /// Time of the event.
    #[schemars(with = "i64")]
    pub at: Time,
    /// Job that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Kind in a word, such as `starting` or `node-lost`.
    pub kind: String,
    /// Details in a sentence.
    pub text: String,
}

impl EventView {
    /// Renders an event.
    pub(crate) fn new(state: &ClusterState, event: &ClusterEvent) -> Self {
        let (kind, text) = kind_and_text(state, event);
        Self {
            number: event.number,
            at: event.at,
            job: event.job,
            kind: kind.to_owned(),
            text,
        }
    }
}

fn kind_and_text(state: &ClusterState, event: &ClusterEvent) -> (&'static str, String) {
    let name = |node: NodeId| {
        let record = state.node(node);
        record.map(|n| n.spec.name.clone()).unwrap_or_default()
    };
    match &event.kind {
        EventKind::Submitted => ("submitted", String::new()),
        EventKind::Held(_) => ("held", hold_reason(state, event)),
        EventKind::Queued => ("queued", String::new()),
        EventKind::Starting { nodes, gpus } => {
            let names: Vec<String> = nodes.iter().map(|n| name(*n)).collect();
            let unit = if *gpus == 1 { "GPU" } else { "GPUs" };
            ("starting", format!("{gpus} {unit} on {}", names.join(", ")))
        }
        EventKind::Running => ("running", String::new()),
        EventKind::Stopping(cause) => ("stopping", cause.sentence(state, event.at)),
        EventKind::Requeued(cause) => (
            "requeued",
            format!("{}: {}", cause.word(), cause.sentence(state, event.at)),
        ),
        EventKind::Ended(end) => (end.word(), end.sentence()),
        EventKind::NodeJoined { node } => ("node-joined", name(*node)),
        EventKind::NodeLost { node } => ("node-lost", name(*node)),
        EventKind::NodeDrained { node, by, reason } => {
            let reason = match reason.as_str() {
                "" => String::new(),
                reason => format!(": {reason}"),
            };
            ("node-drained", format!("{} drained by {by}{reason}", name(*node)))
        }
        EventKind::NodeResumed { node, by } => ("node-resumed", format!("{} resumed by {by}", name(*node))),
        EventKind::Operated { action, by } => ("operated", format!("{by}: {}", action_text(action))),
        EventKind::Refused(reason) => ("refused", reason.clone()),
    }
}

/// Returns what a job waits for that is held; empty if it is not held any more.
fn hold_reason(state: &ClusterState, event: &ClusterEvent) -> String {
    let held = event.job.and_then(|id| state.job(id));
    let held = held.filter(|job| matches!(job.state, JobState::Held(_)));
    let explanation = held.and_then(|job| state.explain(job.id));
    explanation.map(|e| e.sentence).unwrap_or_default()
}

fn action_text(action: &OperatorAction) -> String {
    match action {
        OperatorAction::Policy(text) => format!("policy changed to {}", text.policy),
        OperatorAction::Round(Some(period)) => {
            format!("clock changed to rounds of {} s", period.as_secs_f64())
        }
        OperatorAction::Round(None) => "clock changed to events".to_owned(),
        OperatorAction::Pause => "scheduling paused".to_owned(),
        OperatorAction::Resume => "scheduling resumed".to_owned(),
        OperatorAction::ForgetProfile(key) => format!("profile of model {key} deleted"),
        OperatorAction::VirtualClusters(clusters) => {
            format!("virtual clusters changed to {}", clusters.names().join(", "))
        }
    }
}
