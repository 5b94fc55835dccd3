//! Whole policies by name.
//!
//! Every order is a preset of its own name, with the discipline it declares as its companion. `COMBINED` adds presets
//! that combine more.

use std::sync::LazyLock;

use dovetail_engine::QueueOrder;
use dovetail_model::suggest::nearest;

use crate::error::PolicyError;
use crate::registry::{Entry, Kind, ORDERS};

/// A named policy: four of its parts; the others have their defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Name of the preset.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub what: &'static str,
    /// The order.
    pub order: &'static str,
    /// The discipline.
    pub discipline: &'static str,
    /// The sizing.
    pub sizing: &'static str,
    /// The grouping.
    pub grouping: &'static str,
}

impl Preset {
    /// The preset of an order's own name.
    fn of_order(order: &'static Entry<dyn QueueOrder>) -> Self {
        let discipline = order
            .companions
            .iter()
            .find(|(kind, _)| *kind == Kind::Discipline);
        Self {
            name: order.name,
            what: order.what,
            order: order.name,
            discipline: discipline.map_or("preempt", |(_, part)| part),
            sizing: "rigid",
            grouping: "none",
        }
    }
}

/// Presets that are more than an order with its discipline.
const COMBINED: &[Preset] = &[
    Preset {
        name: "fifo-backfill",
        what: "first in, first out, passing over jobs that do not fit",
        order: "fifo",
        discipline: "backfill",
        sizing: "rigid",
        grouping: "none",
    },
    Preset {
        name: "fifo-easy",
        what: "first in, first out with EASY backfill: GPUs are reserved for the head of the queue",
        order: "fifo",
        discipline: "easy",
        sizing: "rigid",
        grouping: "none",
    },
    Preset {
        name: "sjf-easy",
        what: "shortest job first with EASY backfill",
        order: "sjf",
        discipline: "easy",
        sizing: "rigid",
        grouping: "none",
    },
    Preset {
        name: "synergy",
        what: "shortest remaining time first; CPU and memory go to the jobs they speed up most",
        order: "srtf",
        discipline: "preempt",
        sizing: "tune",
        grouping: "none",
    },
    Preset {
        name: "optimus",
        what: "elastic: GPUs go to the jobs whose remaining time they shorten most",
        order: "srtf",
        discipline: "replan",
        sizing: "optimus",
        grouping: "none",
    },
    Preset {
        name: "elastic-fifo",
        what: "elastic: jobs shrink to start sooner and grow on idle GPUs, first in, first out",
        order: "fifo",
        discipline: "replan",
        sizing: "elastic",
        grouping: "none",
    },
    Preset {
        name: "muri-s",
        what: "jobs with complementary stages share GPUs; shortest remaining service first",
        order: "srsf",
        discipline: "replan",
        sizing: "rigid",
        grouping: "muri",
    },
    Preset {
        name: "muri-l",
        what: "jobs with complementary stages share GPUs; least attained service first, in growing queues",
        order: "tiresias:limits=3250*3",
        discipline: "replan",
        sizing: "rigid",
        grouping: "muri",
    },
    Preset {
        name: "antman",
        what: "guaranteed jobs first; opportunistic jobs use idle GPUs and what guaranteed jobs leave of theirs",
        order: "fifo:priority=class",
        discipline: "share",
        sizing: "rigid",
        grouping: "pair:by=antman",
    },
    Preset {
        name: "sjf-bsbf",
        what: "shortest job first, preemptive; a job without free GPUs shares where both jobs gain most",
        order: "sjf",
        discipline: "share:preempt=true",
        sizing: "rigid",
        grouping: "pair:by=bsbf",
    },
    Preset {
        name: "sjf-bsbf-no-preempt",
        what: "shortest job first; a job without free GPUs shares where both jobs gain most",
        order: "sjf",
        discipline: "share",
        sizing: "rigid",
        grouping: "pair:by=bsbf",
    },
    Preset {
        name: "sjf-ffs",
        what: "shortest job first, preemptive; a job without free GPUs shares the least loaded ones",
        order: "sjf",
        discipline: "share:preempt=true",
        sizing: "rigid",
        grouping: "pair:by=ffs",
    },
    Preset {
        name: "sjf-ffs-no-preempt",
        what: "shortest job first; a job without free GPUs shares the least loaded ones",
        order: "sjf",
        discipline: "share",
        sizing: "rigid",
        grouping: "pair:by=ffs",
    },
];

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let of_orders = ORDERS.iter().map(Preset::of_order);
    of_orders.chain(COMBINED.iter().copied()).collect()
});

/// Returns all presets.
pub fn presets() -> &'static [Preset] {
    &PRESETS
}

/// Returns the preset with this name.
///
/// # Errors
/// Names the nearest presets if there is no such one.
pub fn find(name: &str) -> Result<&'static Preset, PolicyError> {
    let preset = PRESETS.iter().find(|preset| preset.name == name);
    preset.ok_or_else(|| PolicyError::Unknown {
        kind: "policy",
        name: name.to_owned(),
        near: nearest(name, PRESETS.iter().map(|preset| preset.name))
            .into_iter()
            .map(str::to_owned)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_a_preset_of_its_own_name() {
        for order in ORDERS {
            let preset = find(order.name).unwrap();
            assert_eq!((preset.order, preset.grouping), (order.name, "none"));
        }
        assert_eq!(find("fifo").unwrap().discipline, "strict");
        assert_eq!(find("themis").unwrap().discipline, "auction");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = presets().iter().map(|preset| preset.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), presets().len());
    }
}
