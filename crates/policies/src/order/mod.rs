//! Which job is next. Each file states the paper or rule, and the sort key.

mod aged;
mod per_tenant;
mod srsf_muri;
mod synergy;

use dovetail_engine::{Cluster, Job, QueueKey, QueueOrder};
use dovetail_model::Time;

pub use aged::Aged;
pub use per_tenant::PerTenant;
pub use srsf_muri::SrsfMuri;
pub use synergy::{SynergyFacts, SynergyKey, SynergyOrder};

use crate::registry::Entry;

/// Declares the module of each order and lists their entries.
macro_rules! orders {
    ($($name:ident),+ $(,)?) => {
        $(mod $name;)+

        /// All orders that users can choose.
        pub const ALL: &[Entry<dyn QueueOrder>] = &[$($name::ENTRY),+];
    };
}

// One line for each order. `cargo fmt` does not see modules that a macro declares; `make fmt` does.
orders! {
    fifo,
    sjf,
    srtf,
    srsf,
    las,
    tiresias,
    gittins,
    themis,
    ftf,
    drf,
    tetris,
}

/// GPUs, CPU and memory of all nodes that have ever joined.
fn totals(cluster: &Cluster) -> [u64; 3] {
    let mut totals = [0; 3];
    for (_, node) in cluster.nodes() {
        totals[0] += u64::from(node.spec.gpus);
        totals[1] += u64::from(node.spec.cpu_milli);
        totals[2] += node.spec.memory_mib;
    }
    totals
}

/// GPUs, CPU and memory that a job would use with the share that makes it fastest.
fn demand(job: &Job) -> [u64; 3] {
    let preferred = job.spec.preferred_share().times(job.spec.gpus);
    [
        u64::from(job.spec.gpus),
        u64::from(preferred.cpu_milli),
        preferred.memory_mib,
    ]
}

/// Remaining work × `weight`, which decreases while the job runs. A job of unknown length comes last.
pub(crate) fn remaining_work(job: &Job, now: Time, weight: u32) -> QueueKey {
    let Some(left) = job.remaining(now) else {
        return QueueKey::fixed(i128::from(job.spec.submit.0)).in_band(1);
    };
    // In millionths, so that the slope, a rate in millionths, is exact.
    let value = i128::from(left.0) * i128::from(weight) * 1_000_000;
    let slope = i64::from(job.shrinking().0) * i64::from(weight);
    QueueKey::moving(now, value, -slope)
}
