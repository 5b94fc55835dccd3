//! Synergy's experiments (OSDI'22): published factors, numbers of its simulator, ours with its time model, and ours with
//! our own time model.

mod replay;
mod runs;
mod sweep;
mod tune;

pub(crate) use replay::{dynamic_trace, static_trace};
pub(crate) use sweep::{cpu_ratio, load, split};
pub(crate) use tune::tune;

/// The policies of Synergy.
const POLICIES: [&str; 6] = ["fifo", "srtf", "las", "ftf", "drf", "tetris"];
/// The sizings of Synergy, in the order of the tables.
const SIZINGS: [&str; 3] = ["proportional", "greedy", "tune"];
/// A JCT longer by more than this factor counts as behind.
const BEHIND_FACTOR: f64 = 1.001;

/// Returns whether a JCT is longer than the best by more than a thousandth.
fn is_behind(jct: f64, best: f64) -> bool {
    jct > best * BEHIND_FACTOR
}

/// Returns by how much a JCT is longer than another, in percent.
fn percent_longer(jct: f64, other: f64) -> f64 {
    (jct / other - 1.0) * 100.0
}
