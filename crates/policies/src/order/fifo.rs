//! First in, first out. Key: time of submission.

use dovetail_engine::{Job, Part, QueueKey, QueueOrder};
use dovetail_model::Time;

use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn QueueOrder> = Entry {
    name: "fifo",
    what: "first in, first out",
    source: "rule",
    key: "time of submission",
    companions: &[(Kind::Discipline, "strict")],
    knobs: &[Knob {
        name: "priority",
        default: "false",
        what: "true: jobs of higher priority first, then submission; class: only whether the priority is negative counts",
    }],
    build: |knobs| {
        let priority = match knobs.text("priority") {
            "false" => Priority::Ignored,
            "true" => Priority::First,
            "class" => Priority::Class,
            _ => return Err(knobs.invalid("priority", "true, false or class")),
        };
        Ok(Box::new(Fifo {
            priority,
            name: knobs.name(),
        }))
    },
};

/// How the priority of a job affects its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Priority {
    Ignored,
    First,
    Class,
}

/// First in, first out.
#[derive(Debug, Clone)]
struct Fifo {
    priority: Priority,
    name: String,
}

impl Part for Fifo {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl QueueOrder for Fifo {
    fn key(&self, job: &Job, _now: Time) -> QueueKey {
        let band = match self.priority {
            Priority::Ignored => 0,
            Priority::First => job.spec.priority.saturating_neg(),
            Priority::Class => i32::from(job.spec.priority < 0),
        };
        QueueKey::fixed(i128::from(job.spec.submit.0)).in_band(band)
    }
}
