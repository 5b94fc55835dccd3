//! Amounts as integers with a unit. Cores and seconds are decimal numbers in files and JSON only.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount of CPU, in milli-cores. Read and written as a number of cores, such as `1.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Cpus {
    milli: i64,
}

impl Cpus {
    /// No CPU.
    pub const ZERO: Cpus = Cpus { milli: 0 };

    /// Converts from milli-cores.
    pub const fn from_milli(milli: i64) -> Self {
        Self { milli }
    }

    /// Converts from whole cores.
    pub fn from_whole(cores: u32) -> Self {
        Self::from_milli(i64::from(cores) * 1000)
    }

    /// Converts from cores, rounded down to a milli-core. NaN becomes a negative amount, so that validation refuses it.
    pub fn from_cores(cores: f64) -> Self {
        match cores.is_nan() {
            true => Self::from_milli(i64::MIN),
            false => Self::from_milli((cores * 1000.0) as i64),
        }
    }

    /// Returns the amount in milli-cores; zero for a negative amount.
    pub fn milli(self) -> u32 {
        u32::try_from(self.milli.max(0)).unwrap_or(u32::MAX)
    }

    /// Returns the amount in whole cores, rounded up.
    pub fn whole(self) -> u32 {
        self.milli().div_ceil(1000)
    }

    /// Returns the amount multiplied by `count`.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        Self::from_milli(self.milli.saturating_mul(i64::from(count)))
    }

    /// Returns the amount in cores.
    pub fn as_cores(self) -> f64 {
        self.milli as f64 / 1000.0
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_cores())
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_cores())
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self::from_cores)
    }
}

/// Time spans that are read and written as a number of seconds.
pub(crate) mod seconds {
    use dovetail_model::Time;
    use serde::{Deserialize, Deserializer, Serializer};

    /// NaN becomes a negative span, so that validation refuses it.
    fn from_seconds(seconds: f64) -> Time {
        match seconds.is_nan() {
            true => Time(-1),
            false => Time::from_secs_f64(seconds),
        }
    }

    pub(crate) fn serialize<S: Serializer>(span: &Time, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(span.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        f64::deserialize(deserializer).map(from_seconds)
    }

    /// Optional time spans.
    pub(crate) mod optional {
        use super::{Deserialize, Deserializer, Serializer, Time, from_seconds};

        pub(crate) fn serialize<S: Serializer>(
            span: &Option<Time>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match span {
                Some(span) => serializer.serialize_some(&span.as_secs_f64()),
                None => serializer.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Time>, D::Error> {
            let seconds = Option::<f64>::deserialize(deserializer)?;
            Ok(seconds.map(from_seconds))
        }
    }
}

#[cfg(test)]
mod tests {
    use dovetail_model::Time;

    use super::*;
    use crate::JobRequest;

    #[test]
    fn amounts_are_decimal_numbers_in_json() {
        let read: JobRequest =
            serde_json::from_str(r#"{"cpus_per_gpu": 1.5, "time_limit_s": 90, "grace_s": 0.25}"#).unwrap();
        assert_eq!(
            (read.cpus_per_gpu, read.cpus_per_gpu.milli()),
            (Cpus::from_milli(1500), 1500)
        );
        assert_eq!(
            (read.time_limit, read.expected),
            (Some(Time::from_secs(90)), None)
        );
        assert_eq!(read.grace, Time(250_000));
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(
            (
                &written["cpus_per_gpu"],
                &written["time_limit_s"],
                &written["grace_s"],
                &written["expected_s"]
            ),
            (&1.5.into(), &90.0.into(), &0.25.into(), &serde_json::Value::Null)
        );
        assert_eq!(serde_json::to_string(&Cpus::ZERO).unwrap(), "0.0");
    }

    #[test]
    fn negative_amounts_and_nan_are_refused() {
        let refused = |change: fn(&mut JobRequest)| {
            let mut request = JobRequest {
                command: vec!["true".to_owned()],
                ..JobRequest::default()
            };
            request.validate().unwrap();
            change(&mut request);
            request.validate().unwrap_err().to_string()
        };
        assert!(refused(|r| r.cpus_per_gpu = Cpus::from_cores(f64::NAN)).starts_with("cpus_per_gpu: "));
        assert!(refused(|r| r.cpus_per_gpu = Cpus::from_cores(-0.5)).starts_with("cpus_per_gpu: "));
        assert!(refused(|r| r.time_limit = Some(Time::ZERO)).starts_with("time_limit_s: "));
        assert!(refused(|r| r.grace = Time(-1)).starts_with("grace_s: "));
    }
}
