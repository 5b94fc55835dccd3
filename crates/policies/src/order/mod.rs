//! Who is next. Each file states the paper or rule and the ordering key.

mod aged;
mod drf;
mod fifo;
mod ftf;
mod gittins;
mod las;
mod per_tenant;
mod sjf;
mod srsf;
mod srsf_muri;
mod srtf;
mod synergy;
mod tetris;
mod themis;
mod tiresias;

use dovetail_engine::{Cluster, Job, Line, Order};
use dovetail_model::Time;

pub use aged::Aged;
pub use drf::Drf;
pub use fifo::Fifo;
pub use ftf::Ftf;
pub use gittins::Gittins;
pub use las::Las;
pub use per_tenant::PerTenant;
pub use sjf::Sjf;
pub use srsf::Srsf;
pub use srsf_muri::SrsfMuri;
pub use srtf::Srtf;
pub use synergy::{SynergyFacts, SynergyKey, SynergyOrder};
pub use tetris::Tetris;
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
    ftf::ENTRY,
    drf::ENTRY,
    tetris::ENTRY,
];

/// GPUs, CPU and memory of all nodes that ever joined.
fn totals(cluster: &Cluster) -> [u64; 3] {
    let mut has = [0; 3];
    for (_, node) in cluster.nodes() {
        has[0] += u64::from(node.spec.gpus);
        has[1] += u64::from(node.spec.cpu_milli);
        has[2] += node.spec.memory_mib;
    }
    has
}

/// GPUs, CPU and memory that a job would use if it had what makes it fastest.
fn demand(job: &Job) -> [u64; 3] {
    let wish = job.spec.wish().times(job.spec.gpus);
    [
        u64::from(job.spec.gpus),
        u64::from(wish.cpu_milli),
        wish.memory_mib,
    ]
}

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
