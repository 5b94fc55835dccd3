//! Jobs that borrow GPUs.

use std::collections::BTreeMap;

use dovetail_engine::JobClass;
use dovetail_model::{Allocation, JobKey};

use crate::world::World;

/// Runs the world to its end. Returns the first opportunistic job that lost its GPUs although no guaranteed job got any at
/// that moment, it was not cancelled, and its nodes accept jobs.
pub fn find_needless_preemption(world: &mut World) -> Option<JobKey> {
    let mut before = Holders::of(world);
    while world.step() {
        let after = Holders::of(world);
        let is_unchanged = |(job, held)| before.guaranteed.get(job) == Some(held);
        if after.guaranteed.iter().all(is_unchanged) {
            let cluster = world.engine.cluster();
            let is_on_open_nodes = |held: &Allocation| held.shares.iter().all(|s| cluster.is_open(s.node));
            let lost = before.opportunistic.iter().find(|(job, held)| {
                let job = world.engine.job(**job);
                job.is_some_and(|j| j.allocation.is_none() && !j.cancelled) && is_on_open_nodes(held)
            });
            if let Some((job, _)) = lost {
                return Some(*job);
            }
        }
        before = after;
    }
    None
}

/// What the jobs of each class hold.
struct Holders {
    guaranteed: BTreeMap<JobKey, Allocation>,
    opportunistic: BTreeMap<JobKey, Allocation>,
}

impl Holders {
    fn of(world: &World) -> Self {
        let tenancy = &world.engine.policy().tenancy;
        let holders = world.engine.jobs().filter_map(|job| {
            let allocation = job.allocation.clone()?;
            Some((job.spec.id, allocation, tenancy.class(&job.spec)))
        });
        let (mut guaranteed, mut opportunistic) = (BTreeMap::new(), BTreeMap::new());
        for (job, allocation, class) in holders {
            match class {
                JobClass::Guaranteed => guaranteed.insert(job, allocation),
                JobClass::Opportunistic => opportunistic.insert(job, allocation),
            };
        }
        Self {
            guaranteed,
            opportunistic,
        }
    }
}
