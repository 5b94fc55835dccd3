//! Shortest remaining time first. Key: run time left at full speed.

use dovetail_engine::{Job, Knowledge, Line, Order, Part};
use dovetail_model::Time;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Order> = Entry {
    name: "srtf",
    what: "shortest remaining time first",
    source: "Schrage 1968; baseline of Muri, Synergy and Blox",
    key: "run time left",
    knowledge: Knowledge::Estimate,
    knobs: &[Knob {
        name: "by",
        default: "progress",
        what: "progress: what is left is the run time less the work done; holding: less the time GPUs were held (Blox)",
    }],
    build: |knobs| {
        let by_holding = match knobs.text("by") {
            "progress" => false,
            "holding" => true,
            _ => return Err(knobs.bad("by", "progress or holding")),
        };
        Ok(Box::new(Srtf {
            by_holding,
            name: knobs.name(),
        }))
    },
};

/// Shortest remaining time first.
#[derive(Debug, Clone)]
pub struct Srtf {
    by_holding: bool,
    name: String,
}

impl Part for Srtf {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Order for Srtf {
    fn line(&self, job: &Job, now: Time) -> Line {
        match (self.by_holding, job.spec.expected) {
            (true, Some(work)) => {
                let left = i128::from(work.0) - i128::from(job.attained(now).0);
                Line::moving(now, left, -i64::from(job.is_up()))
            }
            _ => super::remaining_line(job, now, 1),
        }
    }

    fn knowledge(&self) -> Knowledge {
        Knowledge::Estimate
    }
}
