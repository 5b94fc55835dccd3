//! What a user states about how a job behaves when it runs: stages of an iteration, speeds on other numbers of GPUs, the
//! deadline.

use std::collections::BTreeMap;

use dovetail_learning::UNNAMED;
use dovetail_model::{Scaling, SpeedTable, Stages, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::JobRequest;
use super::error::RequestError;
use crate::amounts::seconds;

/// Duration of the stages of one iteration of a job that runs alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StageTimes {
    /// Loading of data: storage and CPU, in seconds.
    #[serde(with = "seconds")]
    #[schemars(with = "f64")]
    pub data: Time,
    /// Computation on the GPU, in seconds.
    #[serde(with = "seconds")]
    #[schemars(with = "f64")]
    pub gpu: Time,
    /// Communication, in seconds.
    #[serde(with = "seconds")]
    #[schemars(with = "f64")]
    pub net: Time,
}

/// Longest iteration: an hour. Stages are 32-bit numbers of microseconds in the engine.
const MAX_ITERATION: Time = Time::from_secs(3600);

impl StageTimes {
    /// Checks that no stage is negative, and that the iteration is neither empty nor longer than an hour.
    pub fn is_valid(&self) -> bool {
        self.sum().is_some()
    }

    fn sum(&self) -> Option<Time> {
        let parts = [self.data, self.gpu, self.net];
        let is_valid = parts.iter().all(|t| (Time::ZERO..=MAX_ITERATION).contains(t));
        let sum = parts.iter().fold(Time::ZERO, |sum, t| sum.saturating_add(*t));
        (is_valid && (Time(1)..=MAX_ITERATION).contains(&sum)).then_some(sum)
    }

    /// Returns the stages as the engine reads them.
    pub(crate) fn stages(&self) -> Option<Stages> {
        let micros = |span: Time| u32::try_from(span.0).ok();
        Some(Stages::three(
            micros(self.data)?,
            micros(self.gpu)?,
            micros(self.net)?,
            micros(self.sum()?)?,
        ))
    }
}

/// Speeds by number of GPUs, relative to one another: `{1: 1.0, 2: 1.9, 4: 3.4}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Speeds {
    /// Speed in millionths, by number of GPUs.
    points: BTreeMap<u32, u64>,
}

impl Speeds {
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Checks that there is a speed, and that all speeds are positive.
    pub fn is_valid(&self) -> bool {
        !self.is_empty() && self.table().is_ok()
    }

    fn table(&self) -> Result<SpeedTable, dovetail_model::SpeedTableError> {
        SpeedTable::new(self.points.iter().map(|(gpus, speed)| (*gpus, *speed)).collect())
    }

    /// Returns the scaling as the engine reads it.
    pub(crate) fn scaling(&self) -> Scaling {
        match self.table() {
            Ok(table) if !self.is_empty() => Scaling::Measured(table.into()),
            _ => Scaling::Linear,
        }
    }
}

impl Serialize for Speeds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let points = self.points.iter();
        serializer.collect_map(points.map(|(gpus, speed)| (gpus, *speed as f64 / 1e6)))
    }
}

impl<'de> Deserialize<'de> for Speeds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let points = BTreeMap::<u32, f64>::deserialize(deserializer)?;
        // What is not a positive number becomes zero, which validation refuses.
        let millionths = |speed: f64| (speed * 1e6).round() as u64;
        Ok(Self {
            points: points
                .into_iter()
                .map(|(gpus, s)| (gpus, millionths(s)))
                .collect(),
        })
    }
}

/// When a job should have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    /// This many seconds after submission.
    #[serde(rename = "after_s", with = "seconds")]
    #[schemars(with = "f64")]
    After(Time),
    /// At this time, in microseconds since 1970.
    #[serde(rename = "at_us")]
    #[schemars(with = "i64")]
    At(Time),
}

impl Deadline {
    /// Returns the time of the deadline of a job submitted at this time.
    pub fn of(self, submitted: Time) -> Time {
        match self {
            Self::After(span) => submitted.saturating_add(span),
            Self::At(time) => time,
        }
    }
}

/// What a user states about how a job behaves when it runs; unknown where nothing is stated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Behaviour {
    /// Expected run time on the requested GPUs.
    pub expected: Option<Time>,
    /// Name of the model it trains.
    pub model: Option<String>,
    /// Number of steps in total.
    pub total_steps: Option<u64>,
    /// Stages of one iteration.
    pub stages: Option<StageTimes>,
    /// Speeds by number of GPUs.
    pub scaling: Speeds,
    /// When it should have ended.
    pub deadline: Option<Deadline>,
}

/// Most steps a job can state.
const MAX_STEPS: u64 = 1 << 53;
/// Longest name of a model, in bytes.
const MAX_MODEL: usize = 200;

/// Checks what the user states about how the job behaves.
pub(super) fn validate(request: &JobRequest) -> Result<(), RequestError> {
    if let Some(model) = &request.model
        && (!(1..=MAX_MODEL).contains(&model.len()) || model.starts_with(UNNAMED))
    {
        return Err(RequestError::Model { max: MAX_MODEL });
    }
    if request.stages.is_some_and(|stages| stages.sum().is_none()) {
        return Err(RequestError::Stages);
    }
    if request.total_steps.is_some_and(|n| !(1..=MAX_STEPS).contains(&n)) {
        return Err(RequestError::OutOfRange {
            field: "total_steps",
            min: 1,
            max: MAX_STEPS,
        });
    }
    if !request.scaling.is_empty() {
        request.scaling.table().map_err(RequestError::Scaling)?;
    }
    match request.deadline {
        Some(Deadline::After(span)) if !(span > Time::ZERO && span <= super::validate::MAX_SPAN) => {
            Err(RequestError::Span { field: "deadline" })
        }
        Some(Deadline::At(time)) if time <= Time::ZERO => Err(RequestError::DeadlineTime),
        _ => Ok(()),
    }
}
