//! An order for each tenant. Key: one of the positions that the cluster's order gives to the tenant's jobs; the tenant's
//! own order decides which job gets which of them.
//!
//! A tenant with its own order only exchanges the positions of its own jobs. The sequence of tenants in the queue is the
//! same as without it, so no tenant gains or loses by what another one chooses, and the jobs of one tenant are ordered as
//! if it were alone. Opportunistic jobs exchange positions only among one another.

use std::collections::BTreeMap;

use dovetail_engine::{
    Cluster, ClusterLoad, Job, Knowledge, LoadError, Need, NeedSet, Part, QueueKey, QueueOrder,
};
use dovetail_model::{JobKey, JobSpec, TenantId, Time};
use serde_json::{Value, json};

use crate::error::PolicyError;
use crate::registry::{self, Kind};

/// The order of the cluster, and those of some tenants.
#[derive(Debug, Clone)]
pub struct PerTenant {
    base: Box<dyn QueueOrder>,
    own: BTreeMap<TenantId, Box<dyn QueueOrder>>,
    /// Sort keys of the jobs of those tenants; computed before every decision.
    keys: BTreeMap<JobKey, QueueKey>,
}

/// A job with its key by the cluster's order and by its tenant's.
struct TenantJob {
    job: JobKey,
    base: QueueKey,
    own: QueueKey,
}

impl PerTenant {
    /// Orders jobs by `base`, and the jobs of each of these tenants by an order of their own, such as `las` or
    /// `tiresias:limits=3600`.
    ///
    /// # Errors
    /// Names an order that does not exist, or that compares all jobs and so cannot order those of one tenant.
    pub fn new(base: Box<dyn QueueOrder>, own: &[(TenantId, String)]) -> Result<Self, PolicyError> {
        check_depends_on_job_alone(&*base)?;
        let mut orders = BTreeMap::new();
        for (tenant, text) in own {
            let order = registry::build(Kind::Order, registry::ORDERS, text)?;
            check_depends_on_job_alone(&*order)?;
            orders.insert(*tenant, order);
        }
        Ok(Self {
            base,
            own: orders,
            keys: BTreeMap::new(),
        })
    }
}

fn check_depends_on_job_alone(order: &dyn QueueOrder) -> Result<(), PolicyError> {
    if !order.depends_on_all_jobs() {
        return Ok(());
    }
    let accepted = registry::ORDERS.iter().map(|entry| entry.name).filter(|name| {
        let order = registry::build(Kind::Order, registry::ORDERS, name);
        order.is_ok_and(|order| !order.depends_on_all_jobs())
    });
    Err(PolicyError::NotPerTenant {
        order: order.name(),
        accepted: accepted.collect(),
    })
}

/// Returns when the second of two keys overtakes the first; `None` if it never does.
fn overtakes(first: &QueueKey, second: &QueueKey, now: Time) -> Option<Time> {
    let closing = i128::from(first.slope()) - i128::from(second.slope());
    if first.band != second.band || closing <= 0 {
        return None;
    }
    let gap = second.value(now) - first.value(now);
    let after = gap / closing + 1;
    Some(now.saturating_add(Time(i64::try_from(after).unwrap_or(i64::MAX))))
}

fn sorted(all: &[TenantJob], key: impl Fn(&TenantJob) -> QueueKey, now: Time) -> Vec<(QueueKey, JobKey)> {
    let mut keys: Vec<(QueueKey, JobKey)> = all.iter().map(|c| (key(c), c.job)).collect();
    keys.sort_by_key(|(key, job)| (key.band, key.value(now), *job));
    keys
}

/// Returns the first moment at which two neighbours exchange positions.
fn next_change(sorted: &[(QueueKey, JobKey)], now: Time) -> Option<Time> {
    let pairs = sorted.windows(2).filter_map(|w| overtakes(&w[0].0, &w[1].0, now));
    pairs.min()
}

fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    a.into_iter().chain(b).min()
}

impl Part for PerTenant {
    fn name(&self) -> String {
        let own: Vec<String> = self
            .own
            .iter()
            .map(|(t, o)| format!("{}={}", t.0, o.name()))
            .collect();
        format!("per-tenant({}; {})", self.base.name(), own.join(", "))
    }

    fn needs(&self) -> NeedSet {
        let own = self.own.values().map(|order| order.needs());
        own.fold(self.base.needs(), NeedSet::union)
    }

    fn needs_for(&self, job: &JobSpec) -> NeedSet {
        let own = self.own.get(&job.tenant).map(|order| order.needs());
        self.base.needs().union(own.unwrap_or_default())
    }

    fn name_with_need(&self, need: Need) -> String {
        let mut orders = std::iter::once(&self.base).chain(self.own.values());
        let order = orders.find(|order| order.needs().contains(need));
        order.unwrap_or(&self.base).name()
    }

    fn hints(&self) -> NeedSet {
        let own = self.own.values().map(|order| order.hints());
        own.fold(self.base.hints(), NeedSet::union)
    }

    fn knowledge(&self) -> Knowledge {
        let own = self.own.values().map(|order| order.knowledge());
        own.fold(self.base.knowledge(), Knowledge::max)
    }

    fn save(&self) -> Value {
        let own: BTreeMap<u32, Value> = self.own.iter().map(|(t, o)| (t.0, o.save())).collect();
        match self.base.save().is_null() && own.values().all(Value::is_null) {
            true => Value::Null,
            false => json!({"base": self.base.save(), "own": own}),
        }
    }

    /// What the order of the cluster has learned has its name; what the order of a tenant has learned has the number of the
    /// tenant before it.
    fn learned(&self) -> BTreeMap<String, Value> {
        let mut learned = self.base.learned();
        for (tenant, order) in &self.own {
            let own = order.learned().into_iter();
            learned.extend(own.map(|(name, saved)| (format!("{}={name}", tenant.0), saved)));
        }
        learned
    }

    fn adopt(&mut self, learned: &BTreeMap<String, Value>) {
        self.base.adopt(learned);
        for (tenant, order) in &mut self.own {
            let prefix = format!("{}=", tenant.0);
            let own = learned.iter().filter_map(|(name, saved)| {
                let name = name.strip_prefix(&prefix)?;
                Some((name.to_owned(), saved.clone()))
            });
            order.adopt(&own.collect());
        }
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        self.base.load(&saved["base"])?;
        for (tenant, order) in &mut self.own {
            order.load(&saved["own"][tenant.0.to_string()])?;
        }
        Ok(())
    }
}

impl QueueOrder for PerTenant {
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        let key = self.keys.get(&job.spec.id);
        key.copied().unwrap_or_else(|| self.base.key(job, now))
    }

    fn key_under_load(&self, job: &Job, _load: &ClusterLoad, now: Time) -> QueueKey {
        self.key(job, now)
    }

    fn depends_on_all_jobs(&self) -> bool {
        true
    }

    fn observes_between_decisions(&self) -> bool {
        true
    }

    fn observe(&mut self, jobs: &mut dyn Iterator<Item = &Job>, _cluster: &Cluster, now: Time) {
        self.keys.clear();
        let mut groups: BTreeMap<(TenantId, bool), Vec<TenantJob>> = BTreeMap::new();
        for job in jobs {
            if let Some(order) = self.own.get(&job.spec.tenant) {
                let group = groups
                    .entry((job.spec.tenant, job.spec.priority < 0))
                    .or_default();
                group.push(TenantJob {
                    job: job.spec.id,
                    base: self.base.key(job, now),
                    own: order.key(job, now),
                });
            }
        }
        for group in groups.values() {
            let positions = sorted(group, |job| job.base, now);
            let by_own_order = sorted(group, |job| job.own, now);
            let change = earlier(next_change(&positions, now), next_change(&by_own_order, now));
            for ((position, _), (own, job)) in positions.iter().zip(&by_own_order) {
                let until = earlier(change, earlier(own.until, position.until));
                let key = QueueKey::fixed(position.value(now)).in_band(position.band);
                let mut key = key.until(until);
                (key.fresh_start, key.note) = (own.fresh_start, own.note);
                self.keys.insert(*job, key);
            }
        }
    }

    fn time_slice(&self, gpus: u32) -> Option<Time> {
        let own = self.own.values().filter_map(|order| order.time_slice(gpus));
        own.chain(self.base.time_slice(gpus)).min()
    }

    fn job_finished(&mut self, job: &Job, now: Time) -> bool {
        let own = self.own.get_mut(&job.spec.tenant);
        let learned = own.is_some_and(|order| order.job_finished(job, now));
        self.base.job_finished(job, now) || learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_exchange_positions_when_their_keys_meet() {
        let now = Time(100);
        let (still, increasing) = (QueueKey::fixed(50), QueueKey::moving(now, 40, 2));
        // 40 + 2 t exceeds 50 when t is above five.
        assert_eq!(overtakes(&increasing, &still, now), Some(Time(106)));
        assert_eq!(overtakes(&still, &increasing, now), None);
        assert_eq!(overtakes(&increasing.in_band(1), &still, now), None);
    }

    #[test]
    fn rejects_orders_that_compare_all_jobs() {
        let fifo = || registry::build(Kind::Order, registry::ORDERS, "fifo").unwrap();
        let own = |text: &str| PerTenant::new(fifo(), &[(TenantId(1), text.to_owned())]).map(|_| ());
        assert!(own("las").is_ok() && own("tiresias:limits=3600").is_ok());
        assert_eq!(
            own("drf").unwrap_err().to_string(),
            "order `drf` compares all jobs of the cluster and cannot order those of one virtual cluster: \
             expected `fifo`, `sjf`, `srtf`, `srsf`, `las`, `tiresias` or `gittins`"
        );
        assert!(own("lass").unwrap_err().to_string().contains("`las`"));
    }
}
