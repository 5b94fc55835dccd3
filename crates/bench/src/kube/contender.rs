//! The schedulers that are compared.

use std::fmt;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dovetail_kubeapi::{Binding, Client, Event, Meta, now_micros};
use dovetail_kubelab::cpu_of;
use serde::Serialize;

use super::observer::Pod;
use super::testbed::{GPUS_PER_NODE, Testbed};
use crate::BenchError;
use crate::error::StepResult;

/// The program that binds the pods in a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// A binder that assigns pods to nodes in order, without decisions.
    Binder,
    /// This scheduler, without events.
    Dovetail,
    /// This scheduler, with the pods in gangs of 50.
    Gangs,
    /// The binder with an event per pod.
    BinderEvents,
    /// This scheduler with an event per pod.
    DovetailEvents,
    /// kube-scheduler, which writes an event per pod.
    KubeScheduler,
}

impl Contender {
    /// All contenders, in the order they are measured.
    pub const ALL: [Self; 6] = [
        Self::Binder,
        Self::Dovetail,
        Self::Gangs,
        Self::BinderEvents,
        Self::DovetailEvents,
        Self::KubeScheduler,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Binder | Self::BinderEvents => "bare binder",
            Self::Dovetail | Self::DovetailEvents => "dovetail",
            Self::Gangs => "dovetail, gangs of 50",
            Self::KubeScheduler => "kube-scheduler",
        }
    }

    /// Returns how many events it writes.
    pub(super) fn events(self) -> &'static str {
        match self {
            Self::Binder | Self::Dovetail => "none",
            Self::Gangs => "one per gang",
            Self::BinderEvents | Self::DovetailEvents | Self::KubeScheduler => "one per pod",
        }
    }

    pub(super) fn is_binder(self) -> bool {
        matches!(self, Self::Binder | Self::BinderEvents)
    }

    pub(super) fn has_event_per_pod(self) -> bool {
        matches!(
            self,
            Self::BinderEvents | Self::DovetailEvents | Self::KubeScheduler
        )
    }

    /// Returns the `events` setting of this scheduler.
    pub(super) fn events_setting(self) -> &'static str {
        match self {
            Self::DovetailEvents => "pods",
            Self::Gangs => "gangs",
            _ => "none",
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, events: {}", self.name(), self.events())
    }
}

/// This program as a scheduler, in a process of its own. It is killed when the value is dropped.
#[derive(Debug)]
pub(super) struct SchedulerProcess(Child);

impl SchedulerProcess {
    /// Starts it with these settings (YAML), without a lease if it is `alone`. `name` distinguishes its files.
    pub(super) fn start(
        testbed: &Testbed,
        name: &str,
        settings: &str,
        alone: bool,
    ) -> Result<Self, BenchError> {
        let step = "start `dovetail kube scheduler`";
        let folder = testbed.lab.folder();
        let config = folder.join(format!("{name}.yaml"));
        fs::write(&config, settings).step(step)?;
        let log = File::create(folder.join(format!("{name}.log"))).step(step)?;
        let mut command = Command::new(std::env::current_exe().step(step)?);
        command.args(["kube", "scheduler", "--kubeconfig"]);
        command.arg(testbed.kubeconfig()?).arg("--config").arg(config);
        if alone {
            command.arg("--alone");
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .step(step)?;
        Ok(Self(child))
    }

    /// Returns its CPU time so far.
    pub(super) fn cpu(&self) -> Duration {
        cpu_of(self.0.id())
    }
}

impl Drop for SchedulerProcess {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Concurrent requests, as many as the scheduler makes.
const CONCURRENT_REQUESTS: usize = 32;

/// Binds pods to nodes in order. A pod that cannot be bound is noticed by the observer, which waits for all of them.
pub(super) async fn bind_all(client: &Client, pods: Vec<Pod>, with_events: bool) {
    let (next, pods) = (Arc::new(AtomicUsize::new(0)), Arc::new(pods));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CONCURRENT_REQUESTS {
        let (client, next, pods) = (client.clone(), Arc::clone(&next), Arc::clone(&pods));
        tasks.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(pod) = pods.get(index) else { return };
                let node = Testbed::node_name(index / GPUS_PER_NODE);
                let binding = Binding::new(identity(&pod.metadata), &node);
                let _ = client.bind(&binding).await;
                if with_events {
                    let _ = write_event(&client, &pod.metadata, &node).await;
                }
            }
        });
    }
    tasks.join_all().await;
}

async fn write_event(client: &Client, pod: &Meta, node: &str) -> Result<(), dovetail_kubeapi::Error> {
    let message = format!("bound to {node}");
    let event = Event::about_pod(pod, "Normal", "Scheduled", &message, "binder", now_micros());
    client.post(&event.path(), &event).await
}

/// Returns the metadata that identify a pod.
fn identity(meta: &Meta) -> Meta {
    Meta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        ..Meta::default()
    }
}
