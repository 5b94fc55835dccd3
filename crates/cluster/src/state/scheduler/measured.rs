//! What was measured while jobs ran, between the state and the engine.

use dovetail_learning::LearnedProfile;
use dovetail_model::JobKey;
use dovetail_model::sharing::MeasuredSlowdown;

use super::Scheduler;

impl Scheduler {
    /// Returns the integral of the number of unfinished jobs over the life of a job that the engine has.
    pub(in crate::state) fn alive(&self, job: JobKey) -> Option<i128> {
        let before = self.engine.job(job)?.job_time_before;
        Some(self.engine.load().job_time - before)
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
