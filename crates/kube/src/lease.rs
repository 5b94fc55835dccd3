//! Leader election: the replica that holds a Lease leads as long as it renews it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dovetail_kubeapi::{Client, Error, Lease, LeaseSpec, Meta, micro_time, now_micros};
use serde_json::json;

/// Settings of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Identity of this replica.
    pub identity: String,
    /// How long the lease is valid after a renewal.
    pub duration: Duration,
    /// Time after which a leader that cannot renew the lease stops acting; shorter than the duration.
    pub deadline: Duration,
    /// Time between two renewals or tries.
    pub period: Duration,
}

impl LeaseSettings {
    /// Returns settings with the default times. The identity is the host name and a random number.
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

/// Whether this replica leads. It is checked before each request that changes something.
#[derive(Debug, Clone)]
pub struct Leadership {
    created: Instant,
    /// End of the leadership, in milliseconds after `created`.
    until: Arc<AtomicU64>,
}

impl Leadership {
    /// Creates a leadership that is not held.
    pub fn new() -> Self {
        Self {
            created: Instant::now(),
            until: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Creates a leadership that never ends, for a single replica.
    pub fn alone() -> Self {
        let leadership = Self::new();
        leadership.until.store(u64::MAX, Ordering::Relaxed);
        leadership
    }

    /// Checks whether this replica leads.
    pub fn holds(&self) -> bool {
        let now = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX);
        now < self.until.load(Ordering::Relaxed)
    }

    fn lead_until(&self, at: Instant) {
        let until = at.saturating_duration_since(self.created).as_millis();
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

/// Why the lease was lost.
#[derive(Debug, thiserror::Error)]
pub enum LeaseLoss {
    /// Another replica holds the lease.
    #[error("another replica holds the lease")]
    TakenOver,
    /// The lease could not be renewed before the deadline.
    #[error("cannot renew the lease: {0}")]
    NotRenewed(Error),
}

/// Acquires the lease and renews it.
#[derive(Debug)]
pub struct Elector {
    client: Client,
    settings: LeaseSettings,
    leadership: Leadership,
    /// The lease as last seen, and since when by the local clock: clocks of other replicas are not trusted.
    seen: Option<(LeaseSpec, Instant)>,
}

impl Elector {
    /// Creates an elector that has not tried yet.
    pub fn new(client: Client, settings: LeaseSettings) -> Self {
        Self {
            client,
            settings,
            leadership: Leadership::new(),
            seen: None,
        }
    }

    /// Returns the leadership to check before each request.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Waits until this replica leads.
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

    /// Renews the lease until it is lost, and returns why.
    pub async fn keep(&mut self) -> LeaseLoss {
        loop {
            tokio::time::sleep(self.settings.period).await;
            match self.try_once().await {
                Ok(true) => {}
                Ok(false) => {
                    self.leadership.resign();
                    return LeaseLoss::TakenOver;
                }
                Err(error) => {
                    tracing::warn!("lease {}: {error}", self.settings.name);
                    if !self.leadership.holds() {
                        return LeaseLoss::NotRenewed(error);
                    }
                }
            }
        }
    }

    /// Releases the lease, so that another replica need not wait until it expires.
    pub async fn release(&mut self) {
        if !self.leadership.holds() {
            return;
        }
        self.leadership.resign();
        let patch = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
        let result: Result<Lease, Error> = self
            .client
            .patch(&self.settings.path(), dovetail_kubeapi::Patch::Merge, &patch)
            .await;
        if let Err(error) = result {
            tracing::warn!("lease {}: {error}", self.settings.name);
        }
    }

    /// Returns the time until the lease expires if it is not renewed, at most a period.
    fn pause(&self) -> Duration {
        let Some((spec, since)) = &self.seen else {
            return self.settings.period;
        };
        let expires = *since + length(spec) + Duration::from_millis(20);
        let left = expires.saturating_duration_since(Instant::now());
        left.clamp(Duration::from_millis(50), self.settings.period)
    }

    /// Tries to acquire or renew the lease, and returns whether this replica holds it.
    async fn try_once(&mut self) -> Result<bool, Error> {
        let path = self.settings.path();
        let started = Instant::now();
        let mut lease: Lease = match self.client.get(&path).await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => return self.create(started).await,
            Err(error) => return Err(error),
        };
        let holder = lease.spec.holder_identity.clone().unwrap_or_default();
        let ours = holder == self.settings.identity;
        if !ours && !holder.is_empty() && !self.has_expired(&lease.spec) {
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
        // The resource version makes one of two concurrent tries a conflict.
        match self.client.replace::<Lease>(&path, &lease).await {
            Ok(_) => {
                self.leadership.lead_until(started + self.settings.deadline);
                Ok(true)
            }
            Err(error) if error.is_conflict() => {
                self.seen = None;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn create(&mut self, started: Instant) -> Result<bool, Error> {
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
        let path = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            self.settings.namespace
        );
        match self.client.create::<Lease>(&path, &lease).await {
            Ok(_) => {
                self.leadership.lead_until(started + self.settings.deadline);
                Ok(true)
            }
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Checks whether the lease of another replica was not renewed for its duration, by the local clock.
    fn has_expired(&mut self, spec: &LeaseSpec) -> bool {
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
