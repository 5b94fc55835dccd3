//! Who is next. Each file states the paper or rule and the ordering key.

mod aged;
mod fifo;
mod gittins;
mod las;
mod sjf;
mod srsf;
mod srsf_muri;
mod srtf;
mod synergy;
mod themis;
mod tiresias;

use dovetail_engine::{Job, Line, Order};
use dovetail_model::Time;

pub use aged::Aged;
pub use fifo::Fifo;
pub use gittins::Gittins;
pub use las::Las;
pub use sjf::Sjf;
pub use srsf::Srsf;
pub use srsf_muri::SrsfMuri;
pub use srtf::Srtf;
pub use synergy::{SynergyFacts, SynergyKey, SynergyOrder};
pub use themis::{Themis, rho};
pub use tiresias::Tiresias;

use crate::registry::Entry;

/// All of them.
pub const ALL: &[Entry<dyn Order>] = &[
    fifo::ENTRY,
    sjf::ENTRY,
    srtf::ENTRY,
    srsf::ENTRY,
    las::ENTRY,
    tiresias::ENTRY,
    gittins::ENTRY,
    themis::ENTRY,
];

/// Remaining work × `weight`, which falls while the job runs. A job of unknown size goes last.
pub(crate) fn remaining_line(job: &Job, now: Time, weight: u32) -> Line {
    let Some(left) = job.remaining(now) else {
        return Line::fixed(i128::from(job.spec.submit.0)).in_band(1);
    };
    // In millionths, so that the slope, a rate in millionths, is exact.
    let value = i128::from(left.0) * i128::from(weight) * 1_000_000;
    let slope = i64::from(job.shrinking().0) * i64::from(weight);
    Line::moving(now, value, -slope)
}
