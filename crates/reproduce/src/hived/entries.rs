//! The entries of a timeline, from the events, commands and explanations of a run.

use dovetail_console::Names;
use dovetail_engine::Explanation;
use dovetail_model::{Change, Command, Event, JobKey, NodeId, Reason, StopReason, Time};
use dovetail_sim::Journal;
use dovetail_workload::{PaiJob, TraceJob, Workload};

use super::submissions::Submission;

/// The kind of an entry. Entries of the same time are sorted in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventKind {
    Ends,
    Submitted,
    Rejected,
    Stopped,
    Starts,
    Waits,
}

impl EventKind {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Ends => "ends",
            Self::Submitted => "is submitted",
            Self::Rejected => "is rejected",
            Self::Stopped => "is stopped",
            Self::Starts => "starts",
            Self::Waits => "waits",
        }
    }
}

/// An event of a job.
pub(super) struct Entry {
    pub(super) at: Time,
    pub(super) kind: EventKind,
    pub(super) job: JobKey,
    /// Where, or why.
    pub(super) detail: String,
    /// Nodes that the job starts on.
    pub(super) nodes: Vec<NodeId>,
}

impl Entry {
    fn new(at: Time, kind: EventKind, job: JobKey, detail: impl Into<String>) -> Self {
        Self {
            at,
            kind,
            job,
            detail: detail.into(),
            nodes: Vec::new(),
        }
    }

    pub(super) fn text(&self) -> String {
        let event = self.kind.text();
        match (self.detail.as_str(), self.kind) {
            ("", _) => event.to_owned(),
            (detail, EventKind::Waits | EventKind::Rejected) => format!("{event}: {detail}"),
            (detail, _) => format!("{event} {detail}"),
        }
    }
}

/// Returns the entries of a run, by time.
pub(super) fn entries(
    journal: &Journal,
    workload: &Workload,
    submissions: &[Submission],
    names: &Names<'_>,
) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for (at, event) in &journal.events {
        match event {
            Event::Submitted(spec) => {
                let job = &workload.jobs[spec.id.0 as usize];
                let detail = request(job, workload, submissions);
                entries.push(Entry::new(*at, EventKind::Submitted, spec.id, detail));
            }
            Event::Exited { job, .. } => entries.push(Entry::new(*at, EventKind::Ends, *job, "")),
            _ => {}
        }
    }
    entries.extend(
        journal
            .commands
            .iter()
            .filter_map(|(at, command)| command_entry(*at, command, names)),
    );
    for (at, job, explanation) in &journal.explanations {
        if let Explanation::Waiting { reasons, .. } = explanation {
            let texts: Vec<String> = significant_reasons(reasons).map(|r| names.reason(r)).collect();
            entries.push(Entry::new(*at, EventKind::Waits, *job, texts.join("; ")));
        }
    }
    entries.sort_by_key(|entry| (entry.at, entry.kind, entry.job));
    entries
}

fn command_entry(at: Time, command: &Command, names: &Names<'_>) -> Option<Entry> {
    match command {
        Command::Launch {
            job,
            attempt,
            allocation,
            ..
        } => {
            let nodes: Vec<NodeId> = allocation.shares.iter().map(|share| share.node).collect();
            let node_names: Vec<&str> = nodes.iter().map(|node| names.node(*node)).collect();
            let attempt = match attempt.0 {
                0 | 1 => String::new(),
                n => format!(", attempt {n}"),
            };
            let detail = format!("on {}{attempt}", node_names.join(" and "));
            let entry = Entry::new(at, EventKind::Starts, *job, detail);
            Some(Entry { nodes, ..entry })
        }
        Command::Stop { job, reason, .. } => {
            let detail = match reason {
                StopReason::Preempted => "to free its GPUs",
                _ => "to be placed elsewhere",
            };
            Some(Entry::new(at, EventKind::Stopped, *job, detail))
        }
        Command::Reject { job, reason } => {
            Some(Entry::new(at, EventKind::Rejected, *job, names.reason(reason)))
        }
        Command::Resize { .. } => None,
    }
}

/// Drops reasons that repeat others in a timeline: the jobs that could end are named as holders, and the cells of a tenant
/// are more specific than a sum.
fn significant_reasons(reasons: &[Reason]) -> impl Iterator<Item = &Reason> {
    let lists_owned = reasons.iter().any(|r| matches!(r, Reason::CellsOwned { .. }));
    let is_repetition = move |reason: &Reason| match reason {
        Reason::CellsInUse { .. } => lists_owned,
        Reason::WouldStart(Change::JobsEnd(_)) => true,
        _ => false,
    };
    reasons.iter().filter(move |reason| !is_repetition(reason))
}

/// Describes the request of a submitted job.
fn request(job: &TraceJob, workload: &Workload, submissions: &[Submission]) -> String {
    let class = submissions
        .iter()
        .map(|submission| &submission.job)
        .find(|j| j.priority == job.priority)
        .map_or("test", PaiJob::class);
    let gpus = if job.gpus == 1 {
        "1 GPU".to_owned()
    } else {
        format!("{} GPUs together", job.gpus)
    };
    format!("to {} as {class}: {gpus}", workload.names.tenants[job.tenant])
}
