//! HiveD (OSDI'20): cells have no sharing anomaly, and the lab that teaches it.

mod anomaly;
mod clusters;
mod entries;
mod lab6;
mod submissions;
mod timeline;

pub(crate) use anomaly::sharing_anomaly;
pub(crate) use lab6::{gang, incremental, opportunistic, preemption, vc_safety};
