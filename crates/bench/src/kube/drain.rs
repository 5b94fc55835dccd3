//! How fast a scheduler binds pods that are queued when it starts.

use std::time::{Duration, Instant};

use dovetail_kubelab::Component;
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::contender::{Contender, SchedulerProcess, bind_all};
use super::observer::{Observer, Pod};
use super::testbed::Testbed;
use crate::BenchError;
use crate::error::StepResult;
use crate::measurement::median;

/// Pods of a gang.
const GANG_SIZE: usize = 50;
/// Time for the servers to finish their work on created pods, which should not be measured.
const SETTLE: Duration = Duration::from_secs(2);
/// No event for this long means that all have been written.
const LAST_EVENT: Duration = Duration::from_secs(3);

/// All runs of one contender.
#[derive(Debug, Serialize)]
pub(super) struct DrainRuns {
    pub(super) contender: Contender,
    pub(super) nodes: usize,
    pub(super) pods: usize,
    runs: Vec<DrainRun>,
}

/// One run. CPU time is from the start of the contender to its last binding.
#[derive(Debug, Serialize)]
pub(super) struct DrainRun {
    pods: usize,
    /// From its start to the first bound pod.
    first_bound_s: f64,
    /// From the first bound pod to the last.
    bind_s: f64,
    /// From the first bound pod to the last event, if there is an event per pod.
    events_s: f64,
    scheduler_cpu_s: f64,
    api_server_cpu_s: f64,
    etcd_cpu_s: f64,
}

impl DrainRun {
    /// Returns pods per second, from the first bound pod to the last.
    pub(super) fn bind_rate(&self) -> f64 {
        (self.pods - 1) as f64 / self.bind_s
    }

    /// Returns pods per second until all events are written as well: writing them after the bindings is not faster.
    fn event_rate(&self) -> f64 {
        (self.pods - 1) as f64 / self.events_s.max(self.bind_s)
    }
}

/// CPU milliseconds per pod.
pub(super) struct CpuPerPod {
    pub(super) scheduler: f64,
    pub(super) api_server: f64,
    pub(super) etcd: f64,
}

impl DrainRuns {
    pub(super) fn new(contender: Contender, nodes: usize, pods: usize) -> Self {
        Self {
            contender,
            nodes,
            pods,
            runs: Vec::new(),
        }
    }

    pub(super) fn runs(&self) -> &[DrainRun] {
        &self.runs
    }

    fn median(&self, value: impl Fn(&DrainRun) -> f64) -> f64 {
        median(self.runs.iter().map(value).collect())
    }

    /// Returns the median of pods per second.
    pub(super) fn bind_rate(&self) -> f64 {
        self.median(DrainRun::bind_rate)
    }

    /// Returns the median of pods per second, events included.
    pub(super) fn event_rate(&self) -> f64 {
        self.median(DrainRun::event_rate)
    }

    pub(super) fn first_bound_s(&self) -> f64 {
        self.median(|run| run.first_bound_s)
    }

    pub(super) fn cpu_ms(&self) -> CpuPerPod {
        let per_pod = |seconds: fn(&DrainRun) -> f64| self.median(seconds) * 1000.0 / self.pods as f64;
        CpuPerPod {
            scheduler: per_pod(|run| run.scheduler_cpu_s),
            api_server: per_pod(|run| run.api_server_cpu_s),
            etcd: per_pod(|run| run.etcd_cpu_s),
        }
    }

    /// Creates the pods, starts the contender, and waits until all pods are bound.
    pub(super) fn run(&mut self, runtime: &Runtime) -> Result<(), BenchError> {
        let testbed = Testbed::new(self.contender, self.nodes)?;
        let gang_size = (self.contender == Contender::Gangs).then_some(GANG_SIZE);
        runtime.block_on(testbed.create_pods(self.pods, gang_size))?;
        std::thread::sleep(SETTLE);
        let (mut observer, pods) = runtime.block_on(Observer::start(&testbed.client))?;
        let cpu = |component| testbed.lab.cpu(component);
        let (api_server, etcd) = (cpu(Component::ApiServer), cpu(Component::Etcd));
        let start = Instant::now();
        let scheduler = RunningContender::start(self.contender, &testbed, runtime, pods)?;
        runtime.block_on(observer.wait_for_bound(1))?;
        let first = observer.bound_times().next().unwrap_or(start);
        runtime.block_on(observer.wait_for_bound(self.pods))?;
        let last = observer.bound_times().max().unwrap_or(first);
        let last_event = match self.contender.has_event_per_pod() {
            true => runtime.block_on(last_event(&testbed, self.pods))?,
            false => last,
        };
        self.runs.push(DrainRun {
            pods: self.pods,
            first_bound_s: (first - start).as_secs_f64(),
            bind_s: (last - first).as_secs_f64(),
            events_s: last_event.saturating_duration_since(first).as_secs_f64(),
            scheduler_cpu_s: scheduler.cpu(&testbed).as_secs_f64(),
            api_server_cpu_s: (cpu(Component::ApiServer) - api_server).as_secs_f64(),
            etcd_cpu_s: (cpu(Component::Etcd) - etcd).as_secs_f64(),
        });
        scheduler.finish(runtime)
    }
}

/// A contender that binds pods.
enum RunningContender {
    Dovetail(SchedulerProcess),
    /// With the CPU time that kube-scheduler had used before.
    KubeScheduler(Duration),
    Binder(JoinHandle<()>),
}

impl RunningContender {
    fn start(
        contender: Contender,
        testbed: &Testbed,
        runtime: &Runtime,
        pods: Vec<Pod>,
    ) -> Result<Self, BenchError> {
        match contender {
            Contender::KubeScheduler => {
                let before = testbed.lab.cpu(Component::Scheduler);
                testbed.lab.launch(Component::Scheduler)?;
                Ok(Self::KubeScheduler(before))
            }
            Contender::Binder | Contender::BinderEvents => {
                let client = testbed.client.clone();
                let with_events = contender.has_event_per_pod();
                let binding = async move { bind_all(&client, pods, with_events).await };
                Ok(Self::Binder(runtime.spawn(binding)))
            }
            Contender::Dovetail | Contender::Gangs | Contender::DovetailEvents => {
                let settings = format!("events: {}\n", contender.events_setting());
                SchedulerProcess::start(testbed, "dovetail", &settings, true).map(Self::Dovetail)
            }
        }
    }

    /// Returns its CPU time. That of the binder is unknown, because it is part of this process.
    fn cpu(&self, testbed: &Testbed) -> Duration {
        match self {
            Self::Dovetail(process) => process.cpu(),
            Self::KubeScheduler(before) => testbed.lab.cpu(Component::Scheduler) - *before,
            Self::Binder(_) => Duration::ZERO,
        }
    }

    fn finish(self, runtime: &Runtime) -> Result<(), BenchError> {
        match self {
            Self::Binder(binding) => runtime.block_on(binding).step("bind pods"),
            Self::Dovetail(_) | Self::KubeScheduler(_) => Ok(()),
        }
    }
}

/// Returns when the last event was written. Some schedulers write fewer than expected, so it stops when no more arrive.
async fn last_event(testbed: &Testbed, expected: usize) -> Result<Instant, BenchError> {
    let (mut events, mut last) = (0, Instant::now());
    while events < expected && last.elapsed() < LAST_EVENT {
        let now = testbed.count_events().await?;
        if now > events {
            (events, last) = (now, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(last)
}
