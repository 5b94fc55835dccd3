//! Metrics for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use dovetail_cluster::state::{ClusterState, NodeState};

use crate::Api;
use crate::job_list::is_queued;
use crate::notify::Counts;
use crate::views::state_of;

/// The text format of Prometheus.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    /// Adds a metric with its values, each with its labels.
    fn add(&mut self, name: &str, kind: &str, help: &str, values: impl IntoIterator<Item = (String, f64)>) {
        let _ = writeln!(
            self.0,
            "# HELP dovetail_{name} {help}\n# TYPE dovetail_{name} {kind}"
        );
        for (labels, value) in values {
            let _ = writeln!(self.0, "dovetail_{name}{labels} {value}");
        }
    }

    /// Adds a gauge without labels.
    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.add(name, "gauge", help, [(String::new(), value)]);
    }

    /// Adds a counter without labels.
    fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.add(name, "counter", help, [(String::new(), value)]);
    }
}

/// Returns one label, with its value escaped.
fn label(key: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{{{key}=\"{value}\"}}")
}

fn job_metrics(text: &mut Exposition, state: &ClusterState) {
    let (mut by_state, mut by_vc): (BTreeMap<&str, u64>, BTreeMap<&str, u64>) = Default::default();
    for job in state.unfinished_jobs() {
        *by_state.entry(state_of(job).0).or_default() += 1;
        let held = job
            .attempt()
            .filter(|_| job.state.holds_gpus())
            .map_or(0, |a| a.allocation.gpus());
        *by_vc.entry(job.request.tenant.as_str()).or_default() += u64::from(held);
    }
    text.add(
        "jobs",
        "gauge",
        "Unfinished jobs, by state.",
        by_state
            .iter()
            .map(|(state, n)| (label("state", state), *n as f64)),
    );
    text.counter("jobs_total", "Jobs submitted.", (state.next_job() - 1) as f64);
    text.add(
        "vc_gpus",
        "gauge",
        "GPUs that jobs hold, by virtual cluster.",
        by_vc.iter().map(|(vc, n)| (label("vc", vc), *n as f64)),
    );
    let waits = state
        .unfinished_jobs()
        .filter(|job| is_queued(job))
        .map(|job| state.now().since(job.since));
    text.gauge(
        "longest_wait_seconds",
        "Time since the longest-waiting queued job was queued.",
        waits.max().unwrap_or_default().as_secs_f64(),
    );
}

fn node_metrics(text: &mut Exposition, state: &ClusterState) {
    let present = state.nodes().filter(|(_, n)| n.state != NodeState::Lost);
    let gpus: u32 = present.map(|(_, n)| n.spec.gpus).sum();
    text.gauge("gpus", "GPUs of nodes that are not lost.", f64::from(gpus));
    let count = |word: &str| {
        let is_in_state = |n: &NodeState| match n {
            NodeState::Up => word == "up",
            NodeState::Draining { .. } => word == "draining",
            NodeState::Lost => word == "lost",
        };
        state.nodes().filter(|(_, n)| is_in_state(&n.state)).count() as f64
    };
    text.add(
        "nodes",
        "gauge",
        "Nodes, by state.",
        ["up", "draining", "lost"].map(|state| (label("state", state), count(state))),
    );
}

fn scheduler_metrics(text: &mut Exposition, state: &ClusterState, has_journal_error: bool) {
    text.counter("events_total", "Events so far.", state.last_event() as f64);
    text.gauge(
        "paused",
        "Whether scheduling is paused.",
        f64::from(u8::from(state.is_paused())),
    );
    text.gauge(
        "journal_error",
        "Whether the journal cannot be written.",
        f64::from(u8::from(has_journal_error)),
    );
}

fn notification_metrics(text: &mut Exposition, counts: &Counts) {
    let values = [
        ("sent", &counts.sent),
        ("failed", &counts.failed),
        ("dropped", &counts.dropped),
    ];
    text.add(
        "notifications_total",
        "counter",
        "Notifications, by result: delivered, given up, or dropped because the queue was full.",
        values.map(|(result, n)| (label("result", result), n.load(Ordering::Relaxed) as f64)),
    );
}

pub(crate) async fn show(State(api): State<Api>) -> impl IntoResponse {
    let has_journal_error = api.handle.journal_error().is_some();
    let mut text = Exposition::default();
    api.handle.read(|state| {
        job_metrics(&mut text, state);
        node_metrics(&mut text, state);
        scheduler_metrics(&mut text, state, has_journal_error);
    });
    if let Some(notifier) = &api.config.notifier {
        notification_metrics(&mut text, &notifier.delivery.counts);
    }
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text.0,
    )
}
