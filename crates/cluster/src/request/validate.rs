//! Checks of a job request that need no knowledge of the cluster.

use dovetail_model::Time;

use super::behaviour;
use super::error::RequestError;
use super::{JobRequest, Retries};
use crate::amounts::Cpus;

/// Longest time span a job may name: ten years.
pub(super) const MAX_SPAN: Time = Time::from_secs(315_576_000);
/// Longest grace period: a day.
const MAX_GRACE: Time = Time::from_secs(86_400);
/// Largest number of GPUs of a job.
pub(super) const MAX_GPUS: u32 = 1_000_000;
/// Largest amount of CPU for one GPU or instance.
pub(super) const MAX_CPUS: Cpus = Cpus::from_milli(100_000_000);

impl JobRequest {
    /// Checks the request without knowledge of the cluster.
    ///
    /// # Errors
    /// Names the field and what is expected.
    pub fn validate(&self) -> Result<(), RequestError> {
        self.validate_work()?;
        self.validate_size()?;
        if self.tenant.is_empty() {
            return Err(RequestError::EmptyTenant);
        }
        self.validate_times()?;
        behaviour::validate(self)?;
        let is_invalid = |name: &&String| name.is_empty() || name.contains('=') || name.contains('\0');
        if let Some(name) = self.env.keys().find(is_invalid) {
            return Err(RequestError::Variable { name: name.clone() });
        }
        if let Some(notify) = &self.notify {
            notify.validate()?;
        }
        let has_zero_byte = |s: &String| s.contains('\0');
        let mut texts = self
            .command
            .iter()
            .chain(self.env.values())
            .chain([&self.workdir]);
        match texts.any(has_zero_byte) {
            true => Err(RequestError::ZeroByte),
            false => Ok(()),
        }
    }

    /// Checks that there is a command or valid roles.
    fn validate_work(&self) -> Result<(), RequestError> {
        if self.roles.is_empty() {
            return match self.command.first().is_none_or(String::is_empty) {
                true => Err(RequestError::MissingCommand),
                false => Ok(()),
            };
        }
        self.validate_roles()?;
        let mut sized = self.clone();
        if self.gang {
            sized.size_by_roles()?;
        }
        if (sized.gpus, sized.gpus_per_task) != (self.gpus, self.gpus_per_task) {
            return Err(RequestError::SizeDiffers {
                roles: sized.gpus,
                gpus: self.gpus,
            });
        }
        match self.min_gpus.is_some() || self.max_gpus.is_some() {
            true => Err(RequestError::ElasticRoles),
            false => Ok(()),
        }
    }

    fn validate_size(&self) -> Result<(), RequestError> {
        if !(1..=MAX_GPUS).contains(&self.gpus) {
            return Err(RequestError::OutOfRange {
                field: "gpus",
                min: 1,
                max: u64::from(MAX_GPUS),
            });
        }
        if !(1..=self.gpus).contains(&self.gpus_per_task) {
            return Err(RequestError::GpusPerTask { gpus: self.gpus });
        }
        let min = ("min_gpus", self.min_gpus.unwrap_or(self.gpus));
        let max = ("max_gpus", self.max_gpus.unwrap_or(self.gpus));
        if min.1 == 0 {
            return Err(RequestError::MinGpus);
        }
        // The two limits first, so that a message about them does not name a third field.
        let both_set = self.min_gpus.is_some() && self.max_gpus.is_some();
        let pairs = [(min, max), (min, ("gpus", self.gpus)), (("gpus", self.gpus), max)];
        for (i, ((smaller, small), (larger, large))) in pairs.into_iter().enumerate() {
            if small > large && (i > 0 || both_set) {
                return Err(RequestError::Sizes {
                    smaller,
                    small,
                    larger,
                    large,
                });
            }
        }
        match (Cpus::ZERO..=MAX_CPUS).contains(&self.cpus_per_gpu) {
            true => Ok(()),
            false => Err(RequestError::OutOfRange {
                field: "cpus_per_gpu",
                min: 0,
                max: u64::from(MAX_CPUS.whole()),
            }),
        }
    }

    pub(super) fn validate_times(&self) -> Result<(), RequestError> {
        let spans = [("time_limit_s", self.time_limit), ("expected_s", self.expected)];
        for (field, span) in spans {
            if span.is_some_and(|s| !(s > Time::ZERO && s <= MAX_SPAN)) {
                return Err(RequestError::Span { field });
            }
        }
        match (Time::ZERO..=MAX_GRACE).contains(&self.grace) {
            true => Ok(()),
            false => Err(RequestError::Grace),
        }
    }

    /// Returns what the scheduler has to know about a job whose workload another controller creates: that controller
    /// handles its roles, retries and secrets.
    #[must_use]
    pub fn with_external_workload(mut self) -> Self {
        if let Some(first) = self.roles.first() {
            self.command = first.command.clone();
        }
        self.roles.clear();
        self.secrets.clear();
        (self.gang, self.time_limit) = (true, None);
        self.retries = Retries {
            user: 0,
            platform: 0,
            node: u32::MAX,
        };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(min_gpus: Option<u32>, gpus: u32, max_gpus: Option<u32>) -> String {
        let request = JobRequest {
            command: vec!["true".to_owned()],
            min_gpus,
            gpus,
            max_gpus,
            ..JobRequest::default()
        };
        request
            .validate()
            .map_or_else(|e| e.to_string(), |()| String::new())
    }

    #[test]
    fn messages_about_sizes_name_the_fields_that_contradict_each_other() {
        assert_eq!(message(Some(1), 2, Some(4)), "");
        assert_eq!(
            message(Some(8), 4, Some(4)),
            "`min_gpus` (8) must not exceed `max_gpus` (4)"
        );
        assert_eq!(
            message(Some(8), 4, None),
            "`min_gpus` (8) must not exceed `gpus` (4)"
        );
        assert_eq!(
            message(None, 4, Some(2)),
            "`gpus` (4) must not exceed `max_gpus` (2)"
        );
        assert_eq!(message(Some(0), 4, None), "min_gpus: must be at least 1");
        assert_eq!(message(None, 0, None), "gpus: must be from 1 to 1000000");
    }
}
