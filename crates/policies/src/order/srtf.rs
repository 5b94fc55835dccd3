//! Shortest remaining time first. Key: run time left at full speed.

use dovetail_engine::{Job, Need, NeedSet, Part, QueueKey, QueueOrder};
use dovetail_model::Time;

use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn QueueOrder> = Entry {
    name: "srtf",
    what: "shortest remaining time first",
    source: "Schrage 1968; baseline of Muri, Synergy and Blox",
    key: "run time left",
    companions: &[(Kind::Discipline, "preempt")],
    knobs: &[Knob {
        name: "by",
        default: "progress",
        what: "what is subtracted from the run time: progress, the work done; holding, the time GPUs were held (Blox)",
    }],
    build: |knobs| {
        let by_holding = match knobs.text("by") {
            "progress" => false,
            "holding" => true,
            _ => return Err(knobs.invalid("by", "progress or holding")),
        };
        Ok(Box::new(Srtf {
            by_holding,
            name: knobs.name(),
        }))
    },
};

/// Shortest remaining time first.
#[derive(Debug, Clone)]
struct Srtf {
    by_holding: bool,
    name: String,
}

impl Part for Srtf {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn needs(&self) -> NeedSet {
        NeedSet::from(Need::RemainingTime).and_if(!self.by_holding, Need::Rate)
    }
}

impl QueueOrder for Srtf {
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        match (self.by_holding, job.spec.expected) {
            (true, Some(work)) => {
                let left = i128::from(work.0) - i128::from(job.attained(now).0);
                QueueKey::moving(now, left, -i64::from(job.holds_gpus()))
            }
            _ => super::remaining_work(job, now, 1),
        }
    }
}
