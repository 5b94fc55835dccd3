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
        what: "true: larger job priority first, then submission; class: only whether it is below zero counts",
    }],
    build: |knobs| {
        let priority = match knobs.text("priority") {
            "false" => Priority::Ignored,
            "true" => Priority::First,
            "class" => Priority::Class,
            _ => return Err(knobs.bad("priority", "true, false or class")),
        };
        Ok(Box::new(Fifo {
            priority,
            name: knobs.name(),
        }))
    },
};

/// What the priority of a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Priority {
    Ignored,
    First,
    Class,
}

/// First in, first out.
#[derive(Debug, Clone)]
pub struct Fifo {
    priority: Priority,
    name: String,
}

impl Part for Fifo {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Order for Fifo {
    fn line(&self, job: &Job, _now: Time) -> Line {
        let band = match self.priority {
            Priority::Ignored => 0,
            Priority::First => job.spec.priority.saturating_neg(),
            Priority::Class => i32::from(job.spec.priority < 0),
        };
        Line::fixed(i128::from(job.spec.submit.0)).in_band(band)
    }
}
