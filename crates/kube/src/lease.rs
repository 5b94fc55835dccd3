//! One leader among replicas: whoever holds a lease, as long as it is renewed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dovetail_kubeapi::{Client, Error, Lease, LeaseSpec, Meta, micro_time, now_micros};
use serde_json::json;

/// How a lease is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who we are.
    pub identity: String,
    /// How long it is good for after it was renewed.
    pub duration: Duration,
    /// A leader that cannot renew it for so long stops acting. Shorter than the duration.
    pub deadline: Duration,
    /// How often it is looked at.
    pub period: Duration,
}

impl LeaseSettings {
    /// Of this name, with the spans that are usual. Who we are is the name of the host and a number that nobody else has.
    pub fn new(namespace: &str, name: &str, host: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: format!("{host}_{:016x}", rand::random::<u64>()),
            duration: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            period: Duration::from_secs(2),
        }
    }

    fn path(&self) -> String {
        format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}",
            self.namespace, self.name
        )
    }
}

/// Whether we lead right now. Whoever acts asks before each act.
#[derive(Debug, Clone)]
pub struct Leadership {
    began: Instant,
    /// Milliseconds after `began` until which we lead.
    until: Arc<AtomicU64>,
}

impl Leadership {
    /// Nobody leads.
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            until: Arc::new(AtomicU64::new(0)),
        }
    }

    /// For ever: there is nobody else.
    pub fn alone() -> Self {
        let leadership = Self::new();
        leadership.until.store(u64::MAX, Ordering::Relaxed);
        leadership
    }

    /// Whether we lead.
    pub fn holds(&self) -> bool {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        now < self.until.load(Ordering::Relaxed)
    }

    fn lead_until(&self, at: Instant) {
        let until = at.saturating_duration_since(self.began).as_millis();
        self.until
            .store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn resign(&self) {
        self.until.store(0, Ordering::Relaxed);
    }
}

impl Default for Leadership {
    fn default() -> Self {
        Self::new()
    }
}

/// Waits for the lease, and keeps it.
#[derive(Debug)]
pub struct Elector {
    client: Client,
    settings: LeaseSettings,
    leadership: Leadership,
    /// What was seen last, and since when by our own clock. Clocks of others are not trusted.
    seen: Option<(LeaseSpec, Instant)>,
}

impl Elector {
    /// Nothing was asked yet.
    pub fn new(client: Client, settings: LeaseSettings) -> Self {
        Self {
            client,
            settings,
            leadership: Leadership::new(),
            seen: None,
        }
    }

    /// To be asked before each act.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Waits until we lead.
    pub async fn win(&mut self) {
        loop {
            match self.try_once().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!("lease {}: {error}", self.settings.name),
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// Keeps the lease until it is lost; why it was.
    pub async fn keep(&mut self) -> String {
        loop {
            tokio::time::sleep(self.settings.period).await;
            match self.try_once().await {
                Ok(true) => {}
                Ok(false) => {
                    self.leadership.resign();
                    return "somebody else holds the lease".to_owned();
                }
                Err(error) => {
                    tracing::warn!("lease {}: {error}", self.settings.name);
                    if !self.leadership.holds() {
                        return format!("the lease could not be renewed: {error}");
                    }
                }
            }
        }
    }

    /// Gives the lease back, so that nobody has to wait for its end.
    pub async fn release(&mut self) {
        if !self.leadership.holds() {
            return;
        }
        self.leadership.resign();
        let patch = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
        let done: Result<Lease, Error> = self
            .client
            .patch(&self.settings.path(), dovetail_kubeapi::Patch::Merge, &patch)
            .await;
        if let Err(error) = done {
            tracing::warn!("lease {}: {error}", self.settings.name);
        }
    }

    /// Until the lease may be ours, if nobody renews it; at most a period.
    fn pause(&self) -> Duration {
        let Some((spec, since)) = &self.seen else {
            return self.settings.period;
        };
        let over = *since + length(spec) + Duration::from_millis(20);
        let left = over.saturating_duration_since(Instant::now());
        left.clamp(Duration::from_millis(50), self.settings.period)
    }

    /// Takes the lease or renews it, if that is possible. Whether it is ours.
    async fn try_once(&mut self) -> Result<bool, Error> {
        let path = self.settings.path();
        let began = Instant::now();
        let mut lease: Lease = match self.client.get(&path).await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => return self.make(began).await,
            Err(error) => return Err(error),
        };
        let holder = lease.spec.holder_identity.clone().unwrap_or_default();
        let ours = holder == self.settings.identity;
        if !ours && !holder.is_empty() && !self.has_run_out(&lease.spec) {
            return Ok(false);
        }
        let now = micro_time(now_micros());
        if !ours {
            lease.spec.acquire_time = Some(now.clone());
            lease.spec.lease_transitions = Some(lease.spec.lease_transitions.unwrap_or(0) + 1);
        }
        lease.spec.holder_identity = Some(self.settings.identity.clone());
        lease.spec.lease_duration_seconds = i64::try_from(self.settings.duration.as_secs().max(1)).ok();
        lease.spec.renew_time = Some(now);
        // The version of what was read is in it: of two who try, one is refused.
        match self.client.replace::<Lease>(&path, &lease).await {
            Ok(_) => {
                self.leadership.lead_until(began + self.settings.deadline);
                Ok(true)
            }
            Err(error) if error.is_conflict() => {
                self.seen = None;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn make(&mut self, began: Instant) -> Result<bool, Error> {
        let now = micro_time(now_micros());
        let lease = Lease {
            metadata: Meta {
                name: self.settings.name.clone(),
                namespace: self.settings.namespace.clone(),
                ..Meta::default()
            },
            spec: LeaseSpec {
                holder_identity: Some(self.settings.identity.clone()),
                lease_duration_seconds: i64::try_from(self.settings.duration.as_secs().max(1)).ok(),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
            },
        };
        let folder = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            self.settings.namespace
        );
        match self.client.create::<Lease>(&folder, &lease).await {
            Ok(_) => {
                self.leadership.lead_until(began + self.settings.deadline);
                Ok(true)
            }
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the lease of somebody else was not renewed for as long as it is good for, as we have seen it.
    fn has_run_out(&mut self, spec: &LeaseSpec) -> bool {
        match &self.seen {
            Some((known, since)) if known == spec => since.elapsed() >= length(spec),
            _ => {
                self.seen = Some((spec.clone(), Instant::now()));
                false
            }
        }
    }
}

fn length(spec: &LeaseSpec) -> Duration {
    Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or(15)).unwrap_or(15))
}
