//! Policies with their time slices scaled to the run.

use dovetail_policies::{Overrides, PolicyError, build, find_preset};

use crate::calibration::Profiles;
use crate::plan::Plan;

/// First limit of Tiresias' queues, in GPU-seconds.
const LIMIT_S: f64 = 3250.0;
/// Second limit divided by the first one.
const NEXT_LIMIT: f64 = 7200.0 / LIMIT_S;
/// Shortest time slice of a job on all GPUs, in starts: a shorter one would be spent on starts.
const STARTS_PER_SLICE: f64 = 10.0;

/// A policy of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunPolicy {
    /// Name of the preset.
    pub(crate) name: String,
    /// The preset with its knobs, as it is applied.
    pub(crate) text: String,
}

/// Checks that a policy exists.
pub(crate) fn check(text: &str) -> Result<(), PolicyError> {
    find_preset(text.split(':').next().unwrap_or_default())?;
    build(text, &Overrides::default()).map(drop)
}

impl RunPolicy {
    /// Creates a policy. The service after which jobs change their queue is scaled as the run times are, unless the knob is stated.
    pub(crate) fn new(text: &str, plan: &Plan, profiles: &Profiles, gpus: u32) -> Self {
        let start_s = crate::calibration::start_s(profiles);
        let slice = (LIMIT_S * plan.scale).max(STARTS_PER_SLICE * start_s * f64::from(gpus));
        let knob = match text {
            "tiresias" => format!(":limits={slice:.1}/{:.1}", slice * NEXT_LIMIT),
            "muri-l" => format!(":limits={slice:.1}*3"),
            "las" => format!(":quantum={slice:.1}s"),
            _ => String::new(),
        };
        let name = text.split(':').next().unwrap_or_default();
        Self {
            name: name.to_owned(),
            text: format!("{text}{knob}"),
        }
    }

    /// Returns the name of the policy in the paper.
    pub(crate) fn series(&self) -> Option<&'static str> {
        series(&self.name)
    }

    /// Returns the preset that the paper compares this one with.
    pub(crate) fn base(&self) -> Option<&'static str> {
        match self.name.as_str() {
            "srtf" | "srsf" => Some("muri-s"),
            "tiresias" | "themis" | "las" => Some("muri-l"),
            _ => None,
        }
    }
}

/// Returns the name of a preset in the paper.
pub(crate) fn series(preset: &str) -> Option<&'static str> {
    match preset {
        "srtf" => Some("SRTF"),
        "srsf" => Some("SRSF"),
        "muri-s" => Some("Muri-S"),
        "tiresias" => Some("Tiresias"),
        "themis" => Some("Themis"),
        "muri-l" => Some("Muri-L"),
        _ => None,
    }
}
