//! First in, first out. Key: time of submission.

use dovetail_engine::{Job, Knowledge, Line, Order, Part};
use dovetail_model::Time;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Order> = Entry {
    name: "fifo",
    what: "first in, first out",
    source: "rule",
    key: "time of submission",
    knowledge: Knowledge::None,
    knobs: &[Knob {
        name: "priority",
        default: "false",
        what: "true: larger job priority first, then submission",
    }],
    build: |knobs| {
        let priority = knobs.get("priority", "true or false")?;
        Ok(Box::new(Fifo {
            priority,
            name: knobs.name(),
        }))
    },
};

/// First in, first out.
#[derive(Debug, Clone)]
pub struct Fifo {
    priority: bool,
    name: String,
}

impl Part for Fifo {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Order for Fifo {
    fn line(&self, job: &Job, _now: Time) -> Line {
        let band = if self.priority {
            job.spec.priority.saturating_neg()
        } else {
            0
        };
        Line::fixed(i128::from(job.spec.submit.0)).in_band(band)
    }
}
