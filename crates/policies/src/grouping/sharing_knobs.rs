//! Knobs that both Muri groupings have.

use dovetail_model::stages::{MOST_SHARERS, Ordering};

use crate::error::PolicyError;
use crate::knobs::{Knob, Knobs};

pub(super) const SIZE: Knob = Knob {
    name: "size",
    default: "4",
    what: "most jobs that share GPUs; 2, 3 or 4",
};

pub(super) const AUTOPACK: Knob = Knob {
    name: "autopack",
    default: "true",
    what: "true: split groups that are slower than their jobs one after the other",
};

pub(super) const MATCHING: Knob = Knob {
    name: "matching",
    default: "true",
    what: "false: neighbours in the queue share (ablation)",
};

pub(super) const ORDERING: Knob = Knob {
    name: "ordering",
    default: "best",
    what: "order of the stages: best or worst (ablation)",
};

pub(super) fn size(knobs: &Knobs) -> Result<usize, PolicyError> {
    match knobs.get("size", "2, 3 or 4")? {
        size @ 2..=MOST_SHARERS => Ok(size),
        _ => Err(knobs.invalid("size", "2, 3 or 4")),
    }
}

pub(super) fn ordering(knobs: &Knobs) -> Result<Ordering, PolicyError> {
    match knobs.text("ordering") {
        "best" => Ok(Ordering::Best),
        "worst" => Ok(Ordering::Worst),
        _ => Err(knobs.invalid("ordering", "best or worst")),
    }
}
