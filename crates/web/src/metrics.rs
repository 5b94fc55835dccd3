//! Numbers for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use dovetail_control::book::{Book, NodeState};

use crate::Api;
use crate::views::state_word;

struct Text(String);

impl Text {
    /// A family of numbers.
    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        values: impl IntoIterator<Item = (String, f64)>,
    ) {
        let _ = writeln!(
            self.0,
            "# HELP dovetail_{name} {help}\n# TYPE dovetail_{name} {kind}"
        );
        for (labels, value) in values {
            let _ = writeln!(self.0, "dovetail_{name}{labels} {value}");
        }
    }
}

/// One label, with what would end it early taken out.
fn label(key: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{{{key}=\"{value}\"}}")
}

fn one(value: f64) -> [(String, f64); 1] {
    [(String::new(), value)]
}

fn text(book: &Book, trouble: bool) -> String {
    let mut text = Text(String::new());
    let (mut states, mut by_vc): (BTreeMap<&str, u64>, BTreeMap<&str, u64>) = Default::default();
    for job in book.jobs_live() {
        *states.entry(state_word(job)).or_default() += 1;
        let held = job
            .attempt()
            .filter(|_| job.state.is_up())
            .map_or(0, |a| a.allocation.gpus());
        *by_vc.entry(job.request.tenant.as_str()).or_default() += u64::from(held);
    }
    let there = || book.nodes().filter(|(_, n)| n.state != NodeState::Lost);
    let waits = book
        .jobs_live()
        .filter(|j| crate::job_list::is_in_line(j))
        .map(|j| book.now().since(j.since));
    let longest = waits.max().unwrap_or_default();
    text.family(
        "jobs",
        "gauge",
        "Jobs that are not over, by state.",
        states.iter().map(|(state, n)| (label("state", state), *n as f64)),
    );
    text.family(
        "jobs_total",
        "counter",
        "Jobs that ever came.",
        one((book.next_job() - 1) as f64),
    );
    text.family(
        "vc_gpus",
        "gauge",
        "GPUs held, by virtual cluster.",
        by_vc.iter().map(|(vc, n)| (label("vc", vc), *n as f64)),
    );
    let gpus: u32 = there().map(|(_, n)| n.spec.gpus).sum();
    text.family(
        "gpus",
        "gauge",
        "GPUs of nodes that are not lost.",
        one(f64::from(gpus)),
    );
    let nodes = |state: &str| {
        let is = |n: &NodeState| match n {
            NodeState::Up => state == "up",
            NodeState::Draining { .. } => state == "draining",
            NodeState::Lost => state == "lost",
        };
        book.nodes().filter(|(_, n)| is(&n.state)).count() as f64
    };
    text.family(
        "nodes",
        "gauge",
        "Nodes, by state.",
        ["up", "draining", "lost"].map(|state| (label("state", state), nodes(state))),
    );
    text.family(
        "longest_wait_seconds",
        "gauge",
        "How long the job has waited that waits longest.",
        one(longest.as_secs_f64()),
    );
    text.family(
        "events_total",
        "counter",
        "Events so far.",
        one(book.last_notice() as f64),
    );
    text.family(
        "paused",
        "gauge",
        "Whether nothing is decided for now.",
        one(f64::from(u8::from(book.is_paused()))),
    );
    text.family(
        "journal_trouble",
        "gauge",
        "Whether the journal cannot be written.",
        one(f64::from(u8::from(trouble))),
    );
    text.0
}

pub(crate) async fn show(State(api): State<Api>) -> impl IntoResponse {
    let trouble = api.nodes.trouble().is_some();
    let mut body = api.handle.read(|book| text(book, trouble));
    if let Some(notifier) = &api.config.notifier {
        let counts = &notifier.counts;
        let values = [
            ("sent", &counts.sent),
            ("failed", &counts.failed),
            ("dropped", &counts.dropped),
        ];
        let mut text = Text(body);
        text.family(
            "notifications_total",
            "counter",
            "What people were told of their jobs, could not be told, or were not because too much waited.",
            values.map(|(result, n)| (label("result", result), n.load(Ordering::Relaxed) as f64)),
        );
        body = text.0;
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], body)
}
