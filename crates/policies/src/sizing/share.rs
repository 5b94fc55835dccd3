//! What the sizings that give CPU and memory by need have in common.

use std::collections::BTreeMap;

use dovetail_engine::{Ask, Cluster, Job};
use dovetail_model::{JobSpec, Rate, Share};

use crate::error::PolicyError;
use crate::knobs::{Knob, Knobs};

/// The ask of a job with this share beside each GPU.
pub(super) fn ask_for(job: &Job, share: Share) -> Ask {
    Ask {
        cpu_milli_per_gpu: share.cpu_milli,
        memory_mib_per_gpu: share.memory_mib,
        ..Ask::of(&job.spec)
    }
}

/// What a job without a measured curve has beside each GPU: what it asks for, or its proportional share where it does not
/// say.
pub(super) fn said_or(spec: &JobSpec, proportional: Share) -> Share {
    let or = |said: u64, fair: u64| if said == 0 { fair } else { said };
    Share::new(
        or(
            u64::from(spec.cpu_milli_per_gpu),
            u64::from(proportional.cpu_milli),
        ) as u32,
        or(spec.memory_mib_per_gpu, proportional.memory_mib),
    )
}

/// The least beside each GPU with which the job is as fast as with this proportional share.
pub(super) fn floor(spec: &JobSpec, proportional: Share) -> Share {
    match &spec.sensitivity {
        Some(sensitivity) => sensitivity.trimmed(proportional),
        None => said_or(spec, proportional),
    }
}

/// Floors that were looked for before, by curve and proportional share.
#[derive(Debug, Clone, Default)]
pub(super) struct Floors {
    known: BTreeMap<(u64, Share), Share>,
}

/// Floors that are remembered, at most: of so many curves on nodes of one kind, and few clusters have more.
const FLOORS: usize = 4096;

impl Floors {
    /// The same as [`floor`].
    pub(super) fn of(&mut self, spec: &JobSpec, proportional: Share) -> Share {
        let Some(sensitivity) = &spec.sensitivity else {
            return floor(spec, proportional);
        };
        if self.known.len() >= FLOORS {
            self.known.clear();
        }
        let key = (sensitivity.fingerprint(), proportional);
        let found = self.known.entry(key);
        *found.or_insert_with(|| sensitivity.trimmed(proportional))
    }
}

/// What makes the job fastest, as far as it fits on a node: no more than all of one for all its GPUs together, and a
/// job that is wider than a node has its proportional share.
pub(super) fn ideal(spec: &JobSpec, cluster: &Cluster) -> Share {
    let fair = cluster.least_share();
    let Some(sensitivity) = &spec.sensitivity else {
        return said_or(spec, fair);
    };
    let widest = cluster.widest_for(spec);
    if spec.gpus > widest {
        return floor(spec, fair);
    }
    let whole = fair.times(widest).over(spec.gpus);
    sensitivity.trimmed(sensitivity.ideal().at_most(whole))
}

/// Which jobs start first.
pub(super) const ENOUGH: Knob = Knob {
    name: "enough",
    default: "100",
    what: "where a discipline passes over, jobs that find CPU and memory for so many percent of their top speed start \
           first, and the others on the GPUs that are left then; 0: all in line",
};

/// The value of [`ENOUGH`].
pub(super) fn percent(knobs: &Knobs) -> Result<u32, PolicyError> {
    let percent = knobs.get(ENOUGH.name, "a percentage, 0 to 100")?;
    if percent > 100 {
        return Err(knobs.invalid(ENOUGH.name, "a percentage, 0 to 100"));
    }
    Ok(percent)
}

/// The least beside each GPU with which the job has so many percent of the speed it can have on a node; nothing where its
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
    let wanted = Rate((u64::from(sensitivity.rate(most).0) * u64::from(percent) / 100) as u32);
    (sensitivity.rate(fair) < wanted).then(|| sensitivity.least_for(wanted, most))
}
