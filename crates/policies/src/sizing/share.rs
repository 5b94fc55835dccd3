//! Shares of CPU and memory, common to the sizings that give them by need.

use std::collections::BTreeMap;

use dovetail_engine::{Ask, Cluster, Job};
use dovetail_model::{JobSpec, Rate, Share};

use crate::error::PolicyError;
use crate::knobs::{Knob, Knobs};

/// The request of a job with this share per GPU.
pub(super) fn ask_for(job: &Job, share: Share) -> Ask {
    Ask {
        cpu_milli_per_gpu: share.cpu_milli,
        memory_mib_per_gpu: share.memory_mib,
        ..Ask::of(&job.spec)
    }
}

/// The share per GPU of a job without a measured curve: what it asks for, or the proportional share of what it leaves open.
pub(super) fn asked_or(spec: &JobSpec, proportional: Share) -> Share {
    let or = |asked: u64, fair: u64| if asked == 0 { fair } else { asked };
    Share::new(
        or(
            u64::from(spec.cpu_milli_per_gpu),
            u64::from(proportional.cpu_milli),
        ) as u32,
        or(spec.memory_mib_per_gpu, proportional.memory_mib),
    )
}

/// The smallest share per GPU with which the job is as fast as with this proportional share.
pub(super) fn floor(spec: &JobSpec, proportional: Share) -> Share {
    match &spec.sensitivity {
        Some(sensitivity) => sensitivity.trimmed(proportional),
        None => asked_or(spec, proportional),
    }
}

/// Cache of floors, by curve and proportional share.
#[derive(Debug, Clone, Default)]
pub(super) struct Floors {
    known: BTreeMap<(u64, Share), Share>,
}

/// Floors that are cached before the cache is cleared. On nodes of one kind there is one per curve; few clusters have more.
const MAX_FLOORS: usize = 4096;

impl Floors {
    /// Returns [`floor`], from the cache if it is known.
    pub(super) fn of(&mut self, spec: &JobSpec, proportional: Share) -> Share {
        let Some(sensitivity) = &spec.sensitivity else {
            return floor(spec, proportional);
        };
        if self.known.len() >= MAX_FLOORS {
            self.known.clear();
        }
        let key = (sensitivity.fingerprint(), proportional);
        let found = self.known.entry(key);
        *found.or_insert_with(|| sensitivity.trimmed(proportional))
    }
}

/// The share per GPU that makes the job fastest within one node. A job that is wider than a node has its floor.
pub(super) fn ideal(spec: &JobSpec, cluster: &Cluster) -> Share {
    let fair = cluster.least_share();
    let Some(sensitivity) = &spec.sensitivity else {
        return asked_or(spec, fair);
    };
    let widest = cluster.widest_for(spec);
    if spec.gpus > widest {
        return floor(spec, fair);
    }
    let whole = fair.times(widest).over(spec.gpus);
    sensitivity.trimmed(sensitivity.ideal().at_most(whole))
}

/// The knob that decides which jobs start first.
pub(super) const ENOUGH: Knob = Knob {
    name: "enough",
    default: "100",
    what: "under a discipline that passes over jobs, those with CPU and memory for this percentage of their top speed \
           start first, the others on the GPUs that are left; 0: all in queue order",
};

/// The value of [`ENOUGH`].
pub(super) fn percent(knobs: &Knobs) -> Result<u32, PolicyError> {
    let percent = knobs.get(ENOUGH.name, "a percentage, 0 to 100")?;
    if percent > 100 {
        return Err(knobs.invalid(ENOUGH.name, "a percentage, 0 to 100"));
    }
    Ok(percent)
}

/// The smallest share per GPU with which the job has this percentage of its top speed on a node; `None` if its
/// proportional share is enough for that.
pub(super) fn enough(spec: &JobSpec, cluster: &Cluster, percent: u32) -> Option<Share> {
    let sensitivity = spec.sensitivity.as_ref()?;
    let fair = cluster.least_share();
    if fair.covers(sensitivity.ideal()) {
        return None;
    }
    let whole = fair
        .times(cluster.widest_for(spec))
        .over(spec.gpus)
        .at_least(fair);
    let most = sensitivity.ideal().at_most(whole);
    let target = Rate((u64::from(sensitivity.rate(most).0) * u64::from(percent) / 100) as u32);
    (sensitivity.rate(fair) < target).then(|| sensitivity.least_for(target, most))
}
