//! What was measured while jobs ran, between the state and the engine.

use dovetail_learning::LearnedProfile;
use dovetail_model::sharing::MeasuredSlowdown;
use dovetail_model::{GroupFactors, JobKey, ProfileKey};

use super::Scheduler;
use crate::state::learning::Learning;

/// Change of the period of a group, in per cent, up to which the engine is not told: a new plan restarts jobs.
const FACTOR_TOLERANCE_PERCENT: u64 = 5;

impl Scheduler {
    /// Returns the integral of the number of unfinished jobs over the life of a job that the engine has.
    pub(in crate::state) fn alive(&self, job: JobKey) -> Option<i128> {
        let before = self.engine.job(job)?.job_time_before;
        Some(self.engine.load().job_time - before)
    }

    /// Lets the engine use measured periods of groups where the runtime measures them, and a model of contention elsewhere.
    pub(in crate::state) fn set_group_factors(&mut self, learning: &Learning) {
        if !self.runtime.stage_gates.is_available() {
            return self.engine.set_group_factors(None);
        }
        self.engine.set_group_factors(Some(GroupFactors::default()));
        for (models, ppm) in learning.groups().iter() {
            self.set_group_factor(models, Some(ppm));
        }
    }

    /// Tells the engine how many times longer than planned a period of a group is, in millionths, if that is news; nothing of
    /// a group that is forgotten.
    pub(in crate::state) fn set_group_factor(&mut self, models: &[String], ppm: Option<u32>) {
        let Some(factors) = self.engine.group_factors() else {
            return;
        };
        let members: Vec<ProfileKey> = models.iter().map(|model| ProfileKey::of(model)).collect();
        let told = factors.ppm(&members);
        let is_news =
            |ppm: u32| u64::from(told.abs_diff(ppm)) * 100 > u64::from(told) * FACTOR_TOLERANCE_PERCENT;
        if ppm.is_none_or(is_news) {
            self.engine.set_group_factor(members, ppm);
        }
    }

    /// Tells the engine how much a model is slowed down beside others, as measured; nothing of a forgotten profile.
    pub(in crate::state) fn set_slowdowns(&mut self, key: &str, profile: Option<&LearnedProfile>) {
        let Some(of) = self.names.model(key) else {
            return;
        };
        let mut rows = Vec::new();
        for (other, gpus, factor) in profile.into_iter().flat_map(LearnedProfile::slowdowns) {
            if let Some(beside) = self.names.model(other) {
                let ppm = (factor * 1e6).min(f64::from(u32::MAX)) as u32;
                rows.push(MeasuredSlowdown {
                    of,
                    beside,
                    gpus,
                    plain_ppm: ppm,
                    mps_ppm: ppm,
                });
            }
        }
        self.engine.replace_slowdowns(of, rows);
    }
}
