//! Who binds pods.

use std::fmt;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use dovetail_kubeapi::{Binding, Client, Event, Meta, now_micros};
use dovetail_kubelab::cpu_of;
use serde::Serialize;

use super::field::Field;
use super::observer::Seen;
use crate::failure::{Blame, Failure};

/// Someone who binds pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Rival {
    /// Binds pods one after the other to nodes, and decides nothing.
    Binder,
    /// This scheduler, without events.
    Dovetail,
    /// The same, the pods in gangs of fifty.
    Gangs,
    /// The binder with an event for each pod.
    BinderEvents,
    /// This scheduler with an event for each pod.
    DovetailEvents,
    /// kube-scheduler, which writes an event for each pod.
    KubeScheduler,
}

impl Rival {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Binder | Self::BinderEvents => "bare binder",
            Self::Dovetail | Self::DovetailEvents => "dovetail",
            Self::Gangs => "dovetail, gangs of 50",
            Self::KubeScheduler => "kube-scheduler",
        }
    }

    /// How many events it writes.
    pub(super) fn events(self) -> &'static str {
        match self {
            Self::Binder | Self::Dovetail => "none",
            Self::Gangs => "one a gang",
            Self::BinderEvents | Self::DovetailEvents | Self::KubeScheduler => "one a pod",
        }
    }

    pub(super) fn is_binder(self) -> bool {
        matches!(self, Self::Binder | Self::BinderEvents)
    }

    /// Whether it writes an event for each pod.
    pub(super) fn tells(self) -> bool {
        self.events() == "one a pod"
    }

    /// What this scheduler is told about events.
    pub(super) fn setting(self) -> &'static str {
        match self {
            Self::DovetailEvents => "pods",
            Self::Gangs => "gangs",
            _ => "none",
        }
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, events: {}", self.name(), self.events())
    }
}

/// This very program as a scheduler, in a process of its own.
#[derive(Debug)]
pub(super) struct Ours(Child);

impl Ours {
    /// With these settings beside the usual ones, as YAML.
    pub(super) fn start(field: &Field, name: &str, settings: &str, alone: bool) -> Result<Self, Failure> {
        let folder = field.lab.folder();
        let config = folder.join(format!("{name}.yaml"));
        let log = folder.join(format!("{name}.log"));
        fs::write(&config, settings)
            .with_context(|| config.display().to_string())
            .or_work()?;
        let log = File::create(&log)
            .with_context(|| log.display().to_string())
            .or_work()?;
        let mut command = Command::new(std::env::current_exe().or_work()?);
        command.args(["kube", "scheduler", "--kubeconfig"]);
        command.arg(field.kubeconfig()?).arg("--config").arg(config);
        if alone {
            command.arg("--alone");
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .or_work()?;
        Ok(Self(child))
    }

    /// CPU time so far.
    pub(super) fn cpu(&self) -> Duration {
        cpu_of(self.0.id())
    }

    /// Ends it as a crash would.
    pub(super) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.end();
    }
}

/// Requests at the same time, as many as the scheduler makes.
const AT_ONCE: usize = 32;

/// Binds each pod to the node that is next by its number.
pub(super) async fn bind_all(client: &Client, pods: Vec<Seen>, with_events: bool) {
    let (next, pods) = (Arc::new(AtomicUsize::new(0)), Arc::new(pods));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (client, next, pods) = (client.clone(), Arc::clone(&next), Arc::clone(&pods));
        tasks.spawn(async move {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(pod) = pods.get(at) else { return };
                // Whoever waits for all of them sees when one is missing.
                let _ = client
                    .bind(&Binding::new(named(&pod.metadata), &Field::node(at / 8)))
                    .await;
                if with_events {
                    let message = format!("bound to {}", Field::node(at / 8));
                    let event = Event::about_pod(
                        &pod.metadata,
                        "Normal",
                        "Scheduled",
                        &message,
                        "binder",
                        now_micros(),
                    );
                    let _ = client.post(&event.path(), &event).await;
                }
            }
        });
    }
    tasks.join_all().await;
}

fn named(meta: &Meta) -> Meta {
    Meta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        ..Meta::default()
    }
}
