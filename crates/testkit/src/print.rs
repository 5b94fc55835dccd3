//! Printing stories and traces.

use std::fmt;
use std::sync::{Arc, LazyLock};

use dovetail_engine::{Clock, Explanation};
use dovetail_model::{Allocation, ClusterSpec, GpuSet, NodeSpec, Scaling, Sensitivity, StopReason, Time};
use dovetail_workload::SensitivityTable;

use crate::scenario::{Scenario, StoryEvent, StoryJob};

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cluster {}", cluster(&self.cluster))?;
        write!(f, "policy {}", self.policy.preset)?;
        let over = &self.policy.overrides;
        for (kind, part) in [
            ("admission", &over.admission),
            ("order", &over.order),
            ("discipline", &over.discipline),
            ("sizing", &over.sizing),
            ("grouping", &over.grouping),
            ("placement", &over.placement),
            ("tenancy", &over.tenancy),
        ] {
            if let Some(part) = part {
                write!(f, " {kind}={part}")?;
            }
        }
        writeln!(f)?;
        if let Clock::Rounds { period, .. } = self.clock {
            writeln!(f, "rounds {}s", seconds(period))?;
        }
        for (key, delay) in [
            ("start-delay", self.behaviour.start_delay),
            ("stop-delay", self.behaviour.stop_delay),
        ] {
            if delay > Time::ZERO {
                writeln!(f, "{key} {}s", seconds(delay))?;
            }
        }
        if let Some(seed) = self.behaviour.chaos {
            writeln!(f, "chaos {seed}")?;
        }
        if self.behaviour.profiles_change {
            writeln!(f, "profiles change")?;
        }
        for (at, event) in &self.events {
            write!(f, "{} ", seconds(*at))?;
            match event {
                StoryEvent::Submit(job) => {
                    writeln!(f, "submit {}", self.job_text(&self.jobs[job.0 as usize]))
                }
                StoryEvent::Cancel(job) => writeln!(f, "cancel {}", self.jobs[job.0 as usize].name()),
                StoryEvent::Fail(job) => writeln!(f, "fail {}", self.jobs[job.0 as usize].name()),
                StoryEvent::Explain(job) => writeln!(f, "explain {}", self.jobs[job.0 as usize].name()),
                StoryEvent::NodeDown(node) => writeln!(f, "node-down {node}"),
                StoryEvent::NodeUp(node) => writeln!(f, "node-up {node}"),
                StoryEvent::Drain(node) => writeln!(f, "drain {node}"),
                StoryEvent::Resume(node) => writeln!(f, "resume {node}"),
            }?;
        }
        Ok(())
    }
}

impl Scenario {
    fn job_text(&self, story: &StoryJob) -> String {
        let job = &story.job;
        let mut words = format!(
            "{} gpus={} work={}s",
            job.label,
            job.gpus,
            seconds(Time(job.work.0 as i64))
        );
        let mut add = |is_set: bool, key: &str, value: String| {
            if is_set {
                words += &format!(" {key}={value}");
            }
        };
        add(job.tenant.0 > 0, "tenant", self.names.tenants[job.tenant].clone());
        add(job.user.0 > 0, "user", self.names.users[job.user].clone());
        add(job.priority != 0, "priority", job.priority.to_string());
        add(job.min_gpus != job.gpus, "min", job.min_gpus.to_string());
        add(job.max_gpus != job.gpus, "max", job.max_gpus.to_string());
        if let Some(kind) = job.gpu_type {
            add(true, "type", self.cluster.gpu_types[kind].clone());
        }
        add(job.cpu_milli_per_gpu > 0, "cpu", cores(job.cpu_milli_per_gpu));
        add(
            job.memory_mib_per_gpu > 0,
            "mem",
            (job.memory_mib_per_gpu / 1024).to_string(),
        );
        add(job.gpu_memory_mib > 0, "gpumem", job.gpu_memory_mib.to_string());
        if let Some(curve) = &job.sensitivity {
            add(true, "curve", model_of(curve));
        }
        match story.expected {
            None => add(true, "expect", "none".to_owned()),
            Some(w) => add(w != job.work, "expect", format!("{}s", seconds(Time(w.0 as i64)))),
        }
        if let Some(stages) = story.stages {
            let [data, gpu, network, _] = stages.times_us.map(|t| t / 1000);
            add(true, "stages", format!("{data}/{gpu}/{network}"));
        }
        if let Some(cost) = story.restart_cost {
            add(true, "restart", format!("{}s", seconds(cost)));
        }
        if let Scaling::Amdahl { parallel_ppm } = &job.scaling {
            add(true, "amdahl", (f64::from(*parallel_ppm) / 1e6).to_string());
        }
        words
    }
}

/// Sensitivities by the names of their models.
static CURVES: LazyLock<SensitivityTable> =
    LazyLock::new(|| SensitivityTable::builtin("synergy-3").expect("the table is built in"));

/// Returns the sensitivity of a model.
pub(crate) fn curve_of(model: &str) -> Option<Arc<Sensitivity>> {
    let row = CURVES.rows.iter().find(|row| row.model == model)?;
    Some(Arc::clone(&row.sensitivity))
}

/// Returns the model of a sensitivity.
fn model_of(curve: &Sensitivity) -> String {
    let same = CURVES.rows.iter().find(|row| *row.sensitivity == *curve);
    same.map_or_else(|| "unknown".to_owned(), |row| row.model.clone())
}

fn cluster(cluster: &ClusterSpec) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut zone = None;
    let mut nodes = cluster.nodes.values().peekable();
    while let Some(first) = nodes.next() {
        let mut count = 1;
        while nodes
            .next_if(|n| {
                NodeSpec {
                    name: first.name.clone(),
                    ..(*n).clone()
                } == *first
            })
            .is_some()
        {
            count += 1;
        }
        if zone.replace(first.zone).is_some_and(|z| z != first.zone) {
            words.push("|".to_owned());
        }
        let mut word = format!("{count}x{}", first.gpus);
        let plain = NodeSpec::plain("", first.gpus);
        if first.gpu_type.0 > 0 {
            word += &format!(",type={}", cluster.gpu_types[first.gpu_type]);
        }
        if first.cpu_milli != plain.cpu_milli {
            word += &format!(",cpu={}", cores(first.cpu_milli));
        }
        if first.memory_mib != plain.memory_mib {
            word += &format!(",mem={}", first.memory_mib / 1024);
        }
        if first.gpu_memory_mib > 0 {
            word += &format!(",gpumem={}", first.gpu_memory_mib);
        }
        words.push(word);
    }
    words.join(" ")
}

/// Formats a time in seconds, without trailing zeros.
pub(crate) fn seconds(time: Time) -> String {
    let text = format!("{}.{:06}", time.0 / 1_000_000, time.0 % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn cores(milli: u32) -> String {
    (f64::from(milli) / 1000.0).to_string()
}

/// Formats an allocation as `0:[0-3] 1:[0,2]`.
pub(crate) fn place(allocation: &Allocation) -> String {
    let share = |s: &dovetail_model::NodeShare| format!("{}:[{}]", s.node, slots(&s.gpus));
    allocation.shares.iter().map(share).collect::<Vec<_>>().join(" ")
}

fn slots(set: &GpuSet) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for slot in set.iter() {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == slot => *last = slot,
            _ => runs.push((slot, slot)),
        }
    }
    let run = |(from, to): &(u32, u32)| {
        if from == to {
            from.to_string()
        } else {
            format!("{from}-{to}")
        }
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

/// Formats the reason for which a job was stopped.
pub(crate) fn stop(reason: StopReason) -> String {
    match reason {
        StopReason::Preempted => "preempted".to_owned(),
        StopReason::Moved => "moved".to_owned(),
        StopReason::Resized => "resized".to_owned(),
        StopReason::NodeLost(node) => format!("node-lost {node}"),
        StopReason::Cancelled => "cancelled".to_owned(),
    }
}

/// Formats an explanation.
pub(crate) fn explanation(explanation: &Explanation) -> String {
    match explanation {
        Explanation::Unknown => "unknown".to_owned(),
        Explanation::Running { since, gpus, nodes } => {
            format!("runs since {} on {gpus} GPUs, {nodes} nodes", seconds(*since))
        }
        Explanation::Stopping => "stops".to_owned(),
        Explanation::Waiting { since, reasons, .. } => {
            let why: Vec<String> = reasons.iter().map(ToString::to_string).collect();
            format!("waits since {}: {}", seconds(*since), why.join("; "))
        }
    }
}
