//! HiveD (OSDI'20): that cells have no sharing anomaly, and the lab that teaches it.

mod anomaly;
mod lab6;
mod story;
mod study;

pub(super) use anomaly::sharing_anomaly;
pub(super) use lab6::{gang, incremental, opportunistic, preemption, vc_safety};
