//! Pods that wait when a scheduler comes: how fast it binds them.

use std::time::{Duration, Instant};

use dovetail_kubelab::Part;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::field::Field;
use super::median;
use super::observer::Observer;
use super::rival::{Ours, Rival, bind_all};
use crate::failure::{Blame, Failure};

/// All runs of one rival.
#[derive(Debug, Serialize)]
pub(super) struct Drained {
    pub(super) rival: Rival,
    pub(super) nodes: usize,
    pub(super) pods: usize,
    pub(super) runs: Vec<Run>,
}

/// One run.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    pods: usize,
    /// From its start to the first pod that was bound.
    first_s: f64,
    /// From the first to the last.
    seconds: f64,
    /// From the first to the last event, where there is one for each pod.
    told_s: f64,
    /// CPU time from its start to the last.
    scheduler_s: f64,
    server_s: f64,
    store_s: f64,
}

impl Run {
    /// Pods a second, from the first to the last.
    pub(super) fn rate(&self) -> f64 {
        (self.pods - 1) as f64 / self.seconds
    }

    /// The same until all events are written, too: who writes them after the bindings is not faster for it.
    fn told_rate(&self) -> f64 {
        (self.pods - 1) as f64 / self.told_s.max(self.seconds)
    }
}

impl Drained {
    pub(super) fn of(rival: Rival, nodes: usize, pods: usize) -> Self {
        Self {
            rival,
            nodes,
            pods,
            runs: Vec::new(),
        }
    }

    fn middle(&self, of: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(of).collect())
    }

    pub(super) fn rate(&self) -> f64 {
        self.middle(Run::rate)
    }

    pub(super) fn told_rate(&self) -> f64 {
        self.middle(Run::told_rate)
    }

    pub(super) fn first_s(&self) -> f64 {
        self.middle(|run| run.first_s)
    }

    /// CPU milliseconds per pod: of the scheduler, the API server and etcd.
    pub(super) fn cpu_ms(&self) -> (f64, f64, f64) {
        let per_pod = |of: fn(&Run) -> f64| self.middle(of) * 1000.0 / self.pods as f64;
        (
            per_pod(|run| run.scheduler_s),
            per_pod(|run| run.server_s),
            per_pod(|run| run.store_s),
        )
    }
}

/// Makes the pods, starts the rival, and waits until all are bound.
pub(super) fn once(runtime: &Runtime, rival: Rival, nodes: usize, pods: usize) -> Result<Run, Failure> {
    let field = Field::new(rival, nodes)?;
    let gang = (rival == Rival::Gangs).then_some(50);
    runtime.block_on(field.create_pods(pods, gang))?;
    // What the servers still have to do for the pods is not to be counted.
    std::thread::sleep(Duration::from_secs(2));
    let (mut observer, all) = runtime.block_on(Observer::start(&field.client))?;
    let before = (field.lab.cpu(Part::ApiServer), field.lab.cpu(Part::Etcd));
    let begin = Instant::now();
    let mut ours = None;
    let mut binding = None;
    let upstream_before = match rival {
        Rival::KubeScheduler => {
            let before = field.lab.cpu(Part::Scheduler);
            field.lab.launch(Part::Scheduler).or_work()?;
            before
        }
        Rival::Binder | Rival::BinderEvents => {
            let client = field.client.clone();
            let tells = rival == Rival::BinderEvents;
            binding = Some(runtime.spawn(async move { bind_all(&client, all, tells).await }));
            Duration::ZERO
        }
        Rival::Dovetail | Rival::Gangs | Rival::DovetailEvents => {
            let settings = format!("events: {}\n", rival.setting());
            ours = Some(Ours::start(&field, "dovetail", &settings, true)?);
            Duration::ZERO
        }
    };
    runtime.block_on(observer.until_bound(1))?;
    let first = observed(&observer).next().unwrap_or(begin);
    runtime.block_on(observer.until_bound(pods))?;
    let last = observed(&observer).max().unwrap_or(first);
    let told = match rival.tells() {
        true => runtime.block_on(events_written(&field, pods))?,
        false => last,
    };
    let scheduler = match (&ours, rival) {
        (Some(ours), _) => ours.cpu(),
        (None, Rival::KubeScheduler) => field.lab.cpu(Part::Scheduler) - upstream_before,
        (None, _) => Duration::ZERO,
    };
    let spent = |part, before: Duration| (field.lab.cpu(part) - before).as_secs_f64();
    let run = Run {
        pods,
        first_s: (first - begin).as_secs_f64(),
        seconds: (last - first).as_secs_f64(),
        told_s: told.saturating_duration_since(first).as_secs_f64(),
        scheduler_s: scheduler.as_secs_f64(),
        server_s: spent(Part::ApiServer, before.0),
        store_s: spent(Part::Etcd, before.1),
    };
    if let Some(binding) = binding {
        runtime.block_on(binding).or_work()?;
    }
    Ok(run)
}

/// When the last event was written. Some write fewer than they should, so it is over when no more come.
async fn events_written(field: &Field, expected: usize) -> Result<Instant, Failure> {
    let (mut count, mut at) = (0, Instant::now());
    while count < expected && at.elapsed() < Duration::from_secs(3) {
        let now = field.count_events().await?;
        if now > count {
            (count, at) = (now, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(at)
}

fn observed(observer: &Observer) -> impl Iterator<Item = Instant> {
    observer.pods.values().filter_map(|times| times.bound)
}
