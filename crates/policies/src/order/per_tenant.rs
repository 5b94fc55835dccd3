//! An order for each tenant. Key: of the places that the cluster's order gives to a tenant's jobs, the tenant's own order
//! says which job stands on which.
//!
//! The tenant whose order is another one only swaps its own jobs: the sequence of tenants in line is the same as without
//! it, so nobody gains or loses by what another tenant chooses. Inside a tenant the line is as if it were alone. Jobs
//! that borrow swap places only among each other.

use std::collections::BTreeMap;

use dovetail_engine::{Cluster, Crowd, Job, Knowledge, Line, Order, Part};
use dovetail_model::{JobId, TenantId, Time};
use serde_json::{Value, json};

use crate::registry::{self, Kind};

/// The cluster's order, and those of some tenants.
#[derive(Debug, Clone)]
pub struct PerTenant {
    base: Box<dyn Order>,
    own: BTreeMap<TenantId, Box<dyn Order>>,
    /// Where the jobs of those tenants stand; made before every decision.
    places: BTreeMap<JobId, Line>,
}

/// A job with its place by the cluster's order and by its tenant's.
struct Candidate {
    job: JobId,
    base: Line,
    own: Line,
}

impl PerTenant {
    /// `base` for all, but inside these tenants the orders of these words, such as `las` or `tiresias:limits=3600`.
    ///
    /// # Errors
    /// When a name is none, or an order cannot be one among others.
    pub fn new(base: Box<dyn Order>, own: &[(TenantId, String)]) -> Result<Self, String> {
        let fits = |order: &dyn Order| match order.looks_at_crowd() {
            false => Ok(()),
            true => Err(format!(
                "{} looks at all jobs at once, and so cannot be one order among several; fifo, sjf, srtf, srsf, las, \
                 tiresias and gittins can",
                order.name()
            )),
        };
        fits(&*base)?;
        let mut orders = BTreeMap::new();
        for (tenant, text) in own {
            let (order, _) =
                registry::build(Kind::Order, registry::ORDERS, text).map_err(|e| e.to_string())?;
            fits(&*order)?;
            orders.insert(*tenant, order);
        }
        Ok(Self {
            base,
            own: orders,
            places: BTreeMap::new(),
        })
    }
}

/// When the second of two lines overtakes the first; none if it never does.
fn overtakes(first: &Line, second: &Line, now: Time) -> Option<Time> {
    let closing = i128::from(first.slope()) - i128::from(second.slope());
    if first.band != second.band || closing <= 0 {
        return None;
    }
    let gap = second.value(now) - first.value(now);
    let after = gap / closing + 1;
    Some(now.saturating_add(Time(i64::try_from(after).unwrap_or(i64::MAX))))
}

fn sorted(all: &[Candidate], line: impl Fn(&Candidate) -> Line, now: Time) -> Vec<(Line, JobId)> {
    let mut lines: Vec<(Line, JobId)> = all.iter().map(|c| (line(c), c.job)).collect();
    lines.sort_by_key(|(line, job)| (line.band, line.value(now), *job));
    lines
}

/// The first moment at which two neighbours change places.
fn next_change(sorted: &[(Line, JobId)], now: Time) -> Option<Time> {
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

    fn save(&self) -> Value {
        let own: BTreeMap<u32, Value> = self.own.iter().map(|(t, o)| (t.0, o.save())).collect();
        match self.base.save().is_null() && own.values().all(Value::is_null) {
            true => Value::Null,
            false => json!({"base": self.base.save(), "own": own}),
        }
    }

    fn load(&mut self, saved: &Value) -> Result<(), String> {
        self.base.load(&saved["base"])?;
        for (tenant, order) in &mut self.own {
            order.load(&saved["own"][tenant.0.to_string()])?;
        }
        Ok(())
    }
}

impl Order for PerTenant {
    fn line(&self, job: &Job, now: Time) -> Line {
        let place = self.places.get(&job.spec.id);
        place.copied().unwrap_or_else(|| self.base.line(job, now))
    }

    fn line_among(&self, job: &Job, _crowd: &Crowd, now: Time) -> Line {
        self.line(job, now)
    }

    fn looks_at_crowd(&self) -> bool {
        true
    }

    fn see(&mut self, jobs: &mut dyn Iterator<Item = &Job>, _cluster: &Cluster, now: Time) {
        self.places.clear();
        let mut groups: BTreeMap<(TenantId, bool), Vec<Candidate>> = BTreeMap::new();
        for job in jobs {
            if let Some(order) = self.own.get(&job.spec.tenant) {
                let group = groups
                    .entry((job.spec.tenant, job.spec.priority < 0))
                    .or_default();
                group.push(Candidate {
                    job: job.spec.id,
                    base: self.base.line(job, now),
                    own: order.line(job, now),
                });
            }
        }
        for group in groups.values() {
            let places = sorted(group, |c| c.base, now);
            let line = sorted(group, |c| c.own, now);
            let change = earlier(next_change(&places, now), next_change(&line, now));
            for ((place, _), (own, job)) in places.iter().zip(&line) {
                let until = earlier(change, earlier(own.until, place.until));
                let mut drawn = Line::fixed(place.value(now)).in_band(place.band).until(until);
                (drawn.fresh_start, drawn.remember) = (own.fresh_start, own.remember);
                self.places.insert(*job, drawn);
            }
        }
    }

    fn knowledge(&self) -> Knowledge {
        let own = self.own.values().map(|order| order.knowledge());
        own.fold(self.base.knowledge(), Knowledge::max)
    }

    fn turn(&self, gpus: u32) -> Option<Time> {
        let own = self.own.values().filter_map(|order| order.turn(gpus));
        own.chain(self.base.turn(gpus)).min()
    }

    fn finished(&mut self, job: &Job, now: Time) -> bool {
        let own = self.own.get_mut(&job.spec.tenant);
        let learned = own.is_some_and(|order| order.finished(job, now));
        self.base.finished(job, now) || learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_change_places_when_their_keys_meet() {
        let now = Time(100);
        let (still, rising) = (Line::fixed(50), Line::moving(now, 40, 2));
        // 40 + 2 t passes 50 after more than five.
        assert_eq!(overtakes(&rising, &still, now), Some(Time(106)));
        assert_eq!(overtakes(&still, &rising, now), None);
        assert_eq!(overtakes(&rising.in_band(1), &still, now), None);
    }

    #[test]
    fn orders_that_look_at_everybody_are_not_taken() {
        let fifo = || registry::build(Kind::Order, registry::ORDERS, "fifo").unwrap().0;
        let say = |text: &str| PerTenant::new(fifo(), &[(TenantId(1), text.to_owned())]).map(|_| ());
        assert!(say("las").is_ok() && say("tiresias:limits=3600").is_ok());
        assert!(say("drf").unwrap_err().contains("looks at all jobs"));
        assert!(say("lass").unwrap_err().contains("las"));
    }
}
