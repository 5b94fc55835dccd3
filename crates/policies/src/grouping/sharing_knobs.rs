//! Knobs that both of Muri's groupings have.

use dovetail_model::stages::{MOST_SHARERS, Ordering};

use crate::knobs::{Knob, Knobs, PolicyError};

pub(super) const SIZE: Knob = Knob {
    name: "size",
    default: "4",
    what: "jobs that share GPUs at most; 2, 3 or 4",
};

pub(super) const AUTOPACK: Knob = Knob {
    name: "autopack",
    default: "true",
    what: "take groups apart that are slower than their jobs in turn",
};

pub(super) const MATCHING: Knob = Knob {
    name: "matching",
    default: "true",
    what: "false: neighbours in line share (ablation)",
};

pub(super) const ORDERING: Knob = Knob {
    name: "ordering",
    default: "best",
    what: "best, or worst (ablation)",
};

pub(super) fn size(knobs: &Knobs) -> Result<usize, PolicyError> {
    match knobs.get("size", "2, 3 or 4")? {
        size @ 2..=MOST_SHARERS => Ok(size),
        _ => Err(knobs.bad("size", "2, 3 or 4")),
    }
}

pub(super) fn ordering(knobs: &Knobs) -> Result<Ordering, PolicyError> {
    match knobs.text("ordering") {
        "best" => Ok(Ordering::Best),
        "worst" => Ok(Ordering::Worst),
        _ => Err(knobs.bad("ordering", "best or worst")),
    }
}
