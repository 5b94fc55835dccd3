//! Jobs as text for people.

use dovetail_cluster::JobId;
use dovetail_cluster::state::{JobExplanation, NodeSlots};
use dovetail_forecast::Eta;
use dovetail_model::Time;
use dovetail_web::views::{AttemptView, EstimateView, ExplanationView, JobView, RoleView};

use crate::live::show::{clock, now, span};

/// Returns the nodes and GPU slots of a placement: `node-a:0,1 node-b:0`.
pub fn placement_text(placement: &[NodeSlots]) -> String {
    let one = |s: &NodeSlots| {
        let slots: Vec<String> = s.gpus.iter().map(ToString::to_string).collect();
        format!("{}:{}", s.node, slots.join(","))
    };
    placement.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Returns the steps of a job, such as `120/1000`.
pub fn steps_text(job: &JobView) -> String {
    match job.steps {
        None => String::new(),
        Some(s) if s.total == 0 => s.step.to_string(),
        Some(s) => format!("{}/{}", s.step, s.total),
    }
}

/// Returns how long a job has run, or waited if it has not started.
pub fn age_text(job: &JobView, now: Time) -> String {
    let end = job.ended.unwrap_or(now);
    match (job.started, job.state.as_str()) {
        (Some(started), "running" | "stopping" | "starting") => span(end.since(started)),
        (Some(started), _) if job.has_ended() => span(end.since(started)),
        _ => span(end.since(job.submitted)),
    }
}

/// Returns the reasons of an explanation in one line, after a heading such as `queued`.
pub fn explanation_text(explanation: &JobExplanation, heading: &str) -> String {
    let mut parts = explanation.reasons.clone();
    if parts.is_empty() && !explanation.sentence.is_empty() {
        parts.push(explanation.sentence.clone());
    }
    parts.extend(ahead_text(explanation.ahead));
    match parts.is_empty() {
        true => heading.to_owned(),
        false => format!("{heading}: {}", parts.join("; ")),
    }
}

/// Returns the number of jobs ahead of a job in the queue as text, if there are any.
pub fn ahead_text(ahead: u32) -> Option<String> {
    match ahead {
        0 => None,
        1 => Some("1 job ahead of it in the queue".to_owned()),
        n => Some(format!("{n} jobs ahead of it in the queue")),
    }
}

/// Number of jobs ahead that are named.
const NAMED_AHEAD: usize = 5;

/// Returns the text of `dovetail job explain`: reasons, jobs ahead, expected start, and changes with which it would start
/// now.
pub fn explain_details(id: JobId, view: &ExplanationView) -> String {
    let explanation = &view.explanation;
    let mut lines = vec![format!("Job {id}: {}.", explanation.sentence)];
    let mut add = |text: String| lines.push(format!("  - {text}"));
    explanation.reasons.iter().cloned().for_each(&mut add);
    if let Some(ahead) = ahead_text(explanation.ahead) {
        let ids = view.jobs_ahead.iter().map(|job| job.id.to_string());
        let named: Vec<String> = ids.take(NAMED_AHEAD).collect();
        let more = match explanation.ahead as usize > named.len() {
            true => ", ...",
            false => "",
        };
        add(match named.is_empty() {
            true => ahead,
            false => format!("{ahead}: {}{more}", named.join(", ")),
        });
    }
    match &view.eta {
        Some(eta) => add(eta_text(eta)),
        None if explanation.sentence.starts_with("queued") => {
            add(format!("no expected start: {}", view.no_eta_reason));
        }
        None => {}
    }
    view.alternatives
        .iter()
        .for_each(|alternative| add(alternative.sentence.clone()));
    lines.join("\n")
}

/// Returns when a job is expected to start.
fn eta_text(eta: &Eta) -> String {
    let seconds = |s: f64| span(Time::from_secs_f64(s.max(0.0)));
    format!(
        "expected to start in {} (90 % interval: {} to {}, {} to {} UTC); based on {} simulations with {}",
        seconds(eta.p50_s),
        seconds(eta.p5_s),
        seconds(eta.p95_s),
        clock(eta.p5),
        clock(eta.p95),
        eta.samples,
        eta.based_on
    )
}

/// Returns the instances of a role, by state.
fn role_text(role: &RoleView) -> String {
    let of = |state: &str| {
        let listed = role.instances.iter().filter(|i| i.state == state);
        let listed: Vec<String> = listed
            .map(|i| match (i.node.as_str(), i.exit_code) {
                ("", _) => i.index.to_string(),
                (node, None | Some(0)) => format!("{} on {node}", i.index),
                (node, Some(code)) => format!("{} on {node} (exit {code})", i.index),
            })
            .collect();
        match listed.len() {
            0 => None,
            1..=4 => Some(format!("{state}: {}", listed.join(", "))),
            count => Some(format!("{state}: {count} instances")),
        }
    };
    let states = ["waiting", "starting", "running", "succeeded", "failed", "stopped"];
    states.into_iter().filter_map(of).collect::<Vec<_>>().join("; ")
}

/// Lines of a heading and a text each; empty texts are left out.
#[derive(Default)]
struct Lines(Vec<(String, String)>);

impl Lines {
    fn add(&mut self, heading: &str, text: String) {
        if !text.is_empty() {
            self.0.push((heading.to_owned(), text));
        }
    }

    fn text(&self) -> String {
        let width = self.0.iter().map(|(heading, _)| heading.len()).max().unwrap_or(0);
        let line = |(heading, text): &(String, String)| format!("{heading:<width$}  {text}");
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the expected run time of a job, and where it comes from.
fn estimate_text(estimate: &EstimateView) -> String {
    let seconds = |seconds: f64| span(Time((seconds * 1e6) as i64));
    let source = match (estimate.source.as_str(), estimate.low_s, estimate.high_s) {
        ("user", ..) => "stated by its user".to_owned(),
        ("steps", ..) => "from its steps".to_owned(),
        ("profile", ..) => "from the profile of its model".to_owned(),
        (_, Some(low), Some(high)) => format!(
            "predicted from {} similar jobs: {} to {}",
            estimate.similar_jobs.unwrap_or(0),
            seconds(low),
            seconds(high)
        ),
        (source, ..) => source.to_owned(),
    };
    format!("about {} ({source})", seconds(estimate.expected_s))
}

/// Returns the GPUs that a job holds, and those that it requests if these are others.
fn gpus_text(job: &JobView) -> String {
    match job.held_gpus() {
        held if held == job.gpus => held.to_string(),
        held => format!("{held} (requested: {})", job.gpus),
    }
}

/// Returns the text of `dovetail job show`.
pub fn details(job: &JobView, explanation: &JobExplanation) -> String {
    let now = now();
    let mut lines = Lines::default();
    lines.add("Job", format!("{} {}", job.id, job.name));
    add_state(&mut lines, job, explanation, now);
    lines.add("User", format!("{} (virtual cluster {})", job.user, job.tenant));
    lines.add("GPUs", gpus_text(job));
    lines.add("Where", placement_text(&job.placement));
    add_progress(&mut lines, job, now);
    lines.add(
        "Run time",
        job.estimate.as_ref().map(estimate_text).unwrap_or_default(),
    );
    lines.add("GPU-hours", format!("{:.3}", job.gpu_seconds / 3600.0));
    let labels: Vec<String> = job.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    lines.add("Labels", labels.join(" "));
    for role in &job.roles {
        lines.add(&format!("Role {}", role.name), role_text(role));
    }
    if let Some(request) = &job.request {
        lines.add("Command", request.command.join(" "));
        lines.add("In", request.workdir.clone());
    }
    for attempt in &job.attempts {
        add_attempt(&mut lines, attempt, now);
    }
    lines.text()
}

fn add_state(lines: &mut Lines, job: &JobView, explanation: &JobExplanation, now: Time) {
    lines.add(
        "State",
        match (job.detail.is_empty(), span(now.since(job.since))) {
            (false, _) => format!("{} ({})", job.state_text(), job.detail),
            (true, ago) if job.has_ended() => format!("{} {ago} ago", job.state_text()),
            (true, age) => format!("{} for {age}", job.state_text()),
        },
    );
    if job.state == "queued" {
        lines.add("Pending", explanation_text(explanation, "queued"));
    }
}

fn add_progress(lines: &mut Lines, job: &JobView, now: Time) {
    let age = span(now.since(job.submitted));
    lines.add("Submitted", format!("{} UTC, {age} ago", clock(job.submitted)));
    if let Some(started) = job.started {
        lines.add("Waited", span(started.since(job.submitted)));
    }
    if let Some(steps) = job.steps {
        let time = steps.step_time.as_secs_f64();
        let steps = format!(
            "{} ({time:.3} s each, checkpoint at {})",
            steps_text(job),
            steps.checkpoint
        );
        lines.add("Step", steps);
    }
}

/// Describes the CPU and memory of an attempt; empty if they are not limited.
fn limits_text(attempt: &AttemptView) -> String {
    let cpu_milli: u64 = attempt.cpu_milli.iter().map(|milli| u64::from(*milli)).sum();
    let memory_mib: u64 = attempt.memory_mib.iter().sum();
    let mut limits = Vec::new();
    if cpu_milli > 0 {
        limits.push(format!("{} CPUs", cpu_milli as f64 / 1e3));
    }
    if memory_mib > 0 {
        limits.push(format!("{memory_mib} MiB of memory"));
    }
    if attempt.cpu_trial.is_some() {
        limits.push("a trial of a few seconds, to measure its speed".to_owned());
    }
    limits.join(", ")
}

/// Describes how the GPUs of an attempt are shared; empty if they are not.
fn sharing_text(attempt: &AttemptView) -> String {
    if attempt.sharing.is_empty() {
        return String::new();
    }
    let group = attempt.gates.as_ref().and_then(|gates| gates.group.as_ref());
    let members = group.map_or(&[][..], |group| &group.members);
    let named = |id: &JobId| match members.iter().find(|member| member.job == *id) {
        Some(member) if !member.name.is_empty() => format!("job {id} ({})", member.name),
        _ => format!("job {id}"),
    };
    let jobs: Vec<String> = attempt.shared_with.iter().map(named).collect();
    let with = match jobs.is_empty() {
        true => String::new(),
        false => format!(" with {}", jobs.join(", ")),
    };
    let ms = |time: Time| time.0 as f64 / 1e3;
    let period = attempt.gates.as_ref().map_or_else(String::new, |gates| {
        let planned = ms(gates.planned_period);
        match gates.measured_period {
            Some(measured) => format!(
                " (a step of each in {:.1} ms, planned {planned:.1} ms)",
                ms(measured)
            ),
            None => format!(" (a step of each in {planned:.1} ms, as planned)"),
        }
    });
    format!(", GPUs shared by {}{with}{period}", attempt.sharing)
}

/// Compares the group of an attempt with its jobs one after the other; empty unless stage gates are in force.
fn efficiency_text(attempt: &AttemptView) -> String {
    let group = attempt.gates.as_ref().and_then(|gates| gates.group.as_ref());
    let Some(group) = group else {
        return String::new();
    };
    let measured = match group.measured_efficiency {
        Some(measured) => format!("{measured:.3} (planned {:.3})", group.planned_efficiency),
        None => format!("{:.3} as planned", group.planned_efficiency),
    };
    format!(
        "{measured}; one after the other {:.3}, a step of each in {:.1} ms",
        group.in_turn_efficiency,
        group.in_turn_period.0 as f64 / 1e3
    )
}

fn add_attempt(lines: &mut Lines, attempt: &AttemptView, now: Time) {
    let end = attempt.end.clone().unwrap_or_else(|| "running".to_owned());
    let took = attempt.until.unwrap_or(now).since(attempt.since);
    let shared = sharing_text(attempt);
    lines.add(
        &format!("Attempt {}", attempt.attempt),
        format!(
            "{} UTC on {} for {}{shared}: {end}",
            clock(attempt.since),
            placement_text(&attempt.placement),
            span(took)
        ),
    );
    lines.add("  efficiency", efficiency_text(attempt));
    lines.add("  limits", limits_text(attempt));
    for remark in &attempt.remarks {
        lines.add("  note", remark.clone());
    }
    let last_line = attempt.last_output.trim_end().lines().last();
    lines.add("  last output", last_line.unwrap_or_default().to_owned());
}
