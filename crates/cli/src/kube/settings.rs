//! The settings file of `dovetail kube scheduler`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use dovetail_cluster::PolicyText;
use dovetail_console::{Failure, OrFailure};
use dovetail_kube::{Events, LeaseSettings, SchedulerSettings, Settings, WorkloadSettings};

use dovetail_kubeweb::PageSettings;
use dovetail_server::{host_name, parse_positive_span};
use serde::Deserialize;

use super::args::SchedulerArgs;

/// `kube.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    scheduler_name: Option<String>,
    gpu_resources: Option<Vec<String>>,
    device_classes: Option<Vec<String>>,
    policy: Option<String>,
    parts: BTreeMap<String, String>,
    events: Option<Events>,
    at_once: Option<usize>,
    lost_after: Option<String>,
    missing_timeout: Option<String>,
    http: Option<SocketAddr>,
    lease: LeaseFile,
    page: PageFile,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PageFile {
    listen: Option<SocketAddr>,
    namespace: Option<String>,
    image: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LeaseFile {
    namespace: Option<String>,
    name: Option<String>,
    duration: Option<String>,
    deadline: Option<String>,
    period: Option<String>,
}

/// The settings of the scheduler.
pub(super) struct KubeSettings {
    pub(super) scheduler: SchedulerSettings,
    /// Leader election; `None` for a single replica.
    pub(super) lease: Option<LeaseSettings>,
    pub(super) http: Option<SocketAddr>,
    /// The page; `None` without one.
    pub(super) page: Option<PageSettings>,
}

impl KubeSettings {
    /// Combines flags, file and defaults, in this order of precedence.
    pub(super) fn read(args: &SchedulerArgs, namespace: &str) -> Result<Self, Failure> {
        let file = match &args.config {
            None => File::default(),
            Some(path) => read(path)?,
        };
        let (defaults, reconciler) = (SchedulerSettings::default(), Settings::default());
        let duration = |text: &Option<String>, key: &str, default: Duration| match text {
            Some(text) => parse_positive_span(text, key)
                .map(|span| Duration::from_secs_f64(span.as_secs_f64()))
                .or_request(),
            None => Ok(default),
        };
        let mut scheduler = SchedulerSettings {
            reconciler: Settings {
                scheduler_name: file.scheduler_name.unwrap_or(reconciler.scheduler_name),
                gpu_resources: file.gpu_resources.unwrap_or(reconciler.gpu_resources),
                device_classes: file.device_classes.unwrap_or(reconciler.device_classes),
            },
            policy: PolicyText {
                policy: args
                    .policy
                    .clone()
                    .or(file.policy)
                    .unwrap_or(defaults.policy.policy),
                parts: file.parts,
            },
            at_once: file.at_once.unwrap_or(defaults.at_once),
            events: file.events.unwrap_or(defaults.events),
            lost_after: duration(&file.lost_after, "lost_after", defaults.lost_after)?,
            missing_timeout: duration(&file.missing_timeout, "missing_timeout", defaults.missing_timeout)?,
            ..SchedulerSettings::default()
        };
        let host = host_name().unwrap_or_else(|| "dovetail".to_owned());
        let home = file.lease.namespace.unwrap_or_else(|| namespace.to_owned());
        let page = args.page.or(file.page.listen).map(|listen| PageSettings {
            listen,
            home: home.clone(),
            workloads: WorkloadSettings {
                namespace: args
                    .page_namespace
                    .clone()
                    .or(file.page.namespace)
                    .unwrap_or_else(|| namespace.to_owned()),
                image: file.page.image,
                scheduler_name: scheduler.reconciler.scheduler_name.clone(),
                gpu_resource: scheduler.reconciler.gpu_resources.first().cloned(),
            },
        });
        scheduler.finished_in = page.as_ref().map(|page| page.workloads.namespace.clone());
        let name = file.lease.name.unwrap_or_else(|| "dovetail-scheduler".to_owned());
        let mut lease = LeaseSettings::new(&home, &name, &host);
        lease.duration = duration(&file.lease.duration, "lease.duration", lease.duration)?;
        lease.deadline = duration(&file.lease.deadline, "lease.deadline", lease.duration * 2 / 3)?;
        lease.period = duration(
            &file.lease.period,
            "lease.period",
            lease.period.min(lease.deadline / 3),
        )?;
        if lease.deadline >= lease.duration || lease.period >= lease.deadline {
            return Err(Failure::request(
                "lease: expected period < deadline < duration, so that a disconnected leader stops in time",
            ));
        }
        Ok(Self {
            scheduler,
            lease: (!args.alone).then_some(lease),
            http: args.http.or(file.http),
            page,
        })
    }
}

fn read(path: &Path) -> Result<File, Failure> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{}", path.display()))
        .or_request()?;
    serde_saphyr::from_str(&text).map_err(|e| {
        let first = e.to_string().lines().next().unwrap_or_default().to_owned();
        Failure::request(format!("{}: {first}", path.display()))
    })
}
