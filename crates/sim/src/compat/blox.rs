//! Blox: rounds, progress in whole rounds, its placement and its discipline.

use dovetail_engine::{Clock, Knowledge, Policy};
use dovetail_model::{Rate, Time};
use dovetail_policies::order::Aged;
use dovetail_policies::{Overrides, PolicyError, build};
use dovetail_workload::Workload;

use crate::config::{Compat, SimConfig, SimError};

/// Blox's policies, under its names in lower case.
pub const BLOX_POLICIES: &[&str] = &["fifo", "las", "srtf", "tiresias", "optimus"];

/// Progress of Blox's Optimus by offered load in jobs per hour.
const OPTIMUS_SPEED: &[(u32, f64)] = &[(1, 5.0), (2, 3.0), (3, 1.4), (4, 1.2), (5, 1.1)];

/// A job that has waited this long (1000 hours) moves to the front of the queue.
const AGEING_S: i64 = 3_600_000;

/// Builds the parts of a Blox policy, and configures the run to count as Blox does: rounds of 300 s unless the clock
/// already has rounds, whole rounds of progress, no restart cost. In Blox, Tiresias is plain LAS, and Optimus is SRTF
/// at a speed that depends on the offered load: `jobs_per_hour`, or else that of the workload.
///
/// # Errors
/// If Blox has no such policy; the error lists the ones it has.
pub fn blox(
    policy: &str,
    overrides: &Overrides,
    workload: &Workload,
    jobs_per_hour: Option<f64>,
    config: &mut SimConfig,
) -> Result<(Policy, Knowledge), BloxError> {
    let order = match policy {
        "fifo" => "fifo",
        "las" | "tiresias" => "las:dims=1,quantum=0",
        "srtf" | "optimus" => "srtf:by=holding",
        _ => {
            return Err(BloxError::UnknownPolicy {
                policy: policy.to_owned(),
            });
        }
    };
    let speed = if policy == "optimus" {
        let load = jobs_per_hour.unwrap_or_else(|| rate_per_hour(workload)).round() as u32;
        let known = OPTIMUS_SPEED.iter().find(|(l, _)| *l == load.max(1));
        Rate::from_factor(known.map_or(1.0, |(_, speed)| *speed))
    } else {
        Rate::FULL
    };
    config.compat = Compat::Blox { speed };
    config.restart_cost = Time::ZERO;
    if config.clock == Clock::Events {
        config.clock = Clock::rounds(Time::from_secs(300));
    }
    let or = |over: &Option<String>, part: &str| Some(over.clone().unwrap_or_else(|| part.to_owned()));
    let parts = Overrides {
        admission: or(&overrides.admission, "accept-all"),
        order: or(&overrides.order, order),
        discipline: or(&overrides.discipline, "blox"),
        placement: or(&overrides.placement, "blox-scatter"),
        ..overrides.clone()
    };
    let (mut policy_built, needs) = build("fifo", &parts)?;
    policy_built.order = Box::new(Aged::new(policy_built.order, Time::from_secs(AGEING_S)));
    policy_built.name = format!("{policy} (blox)");
    Ok((policy_built, needs))
}

/// Why a Blox run cannot be configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BloxError {
    /// Blox has no such policy.
    #[error("--compat blox has no policy `{policy}`; it has fifo, las, srtf, tiresias and optimus")]
    UnknownPolicy {
        /// The policy.
        policy: String,
    },
    /// A part is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl From<BloxError> for SimError {
    fn from(error: BloxError) -> Self {
        SimError::Unsupported(error.to_string())
    }
}

/// Returns the arrivals per hour over the span of the workload.
fn rate_per_hour(workload: &Workload) -> f64 {
    let (Some(first), Some(last)) = (workload.jobs.first(), workload.jobs.last()) else {
        return 0.0;
    };
    let hours = (last.submit - first.submit).as_secs_f64() / 3600.0;
    if hours > 0.0 {
        (workload.jobs.len() - 1) as f64 / hours
    } else {
        0.0
    }
}
