//! Holds jobs while the admitted ones ask for more than a multiple of the cluster.
//!
//! The demand is compared before the new job is added to it, so one job can exceed the limit, as in Blox.

use dovetail_engine::feasibility::{NodeScope, never_fits};
use dovetail_engine::parts::{Admission, Part, Verdict};
use dovetail_engine::{Cluster, Demand};
use dovetail_model::{JobSpec, Reason};

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Admission> = Entry {
    name: "load",
    what: "hold jobs, first come first served, while the admitted ones ask for more than factor × all GPUs",
    source: "Blox (EuroSys'24), loadBasedAccept",
    key: "demand of admitted jobs ≤ factor × GPUs",
    companions: &[],
    knobs: &[Knob {
        name: "factor",
        default: "1.2",
        what: "multiple of the cluster's GPUs; a number above 0",
    }],
    build: |knobs| {
        let factor = knobs.at_least("factor", 1e-6)?;
        Ok(Box::new(Load {
            factor,
            name: knobs.name(),
        }))
    },
};

/// Admission by total demand.
#[derive(Debug, Clone)]
struct Load {
    factor: f64,
    name: String,
}

impl Part for Load {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Admission for Load {
    fn admit(&self, job: &JobSpec, demand: &Demand, cluster: &Cluster) -> Verdict {
        if let Some(reason) = never_fits(job, cluster, NodeScope::Joined) {
            return Verdict::Reject(reason);
        }
        let limit = self.factor * f64::from(cluster.total_gpus(None));
        if demand.gpus as f64 <= limit {
            Verdict::Admit
        } else {
            Verdict::Hold(Reason::LoadLimit {
                demand: demand.gpus,
                limit: limit as u64,
            })
        }
    }
}
