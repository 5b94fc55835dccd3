//! A job as it is submitted: what it asks for, and what is known about it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::group_factors::ProfileKey;
use crate::ids::{GpuTypeId, JobKey, ModelId, NodeConstraintId, TenantId, UserId};
use crate::sensitivity::{Sensitivity, Share};
use crate::stages::Stages;
use crate::units::{Rate, Time, Work};

/// Measured speeds at some numbers of GPUs, sorted by that number. Speeds are relative to one another only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, u64)>", into = "Vec<(u32, u64)>")]
pub struct SpeedTable(Vec<(u32, u64)>);

/// Why a list of speeds is not a speed table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpeedTableError {
    /// There is no speed.
    #[error("expected at least one number of GPUs with its speed")]
    Empty,
    /// There are too many speeds.
    #[error("{0} speeds exceed the limit of {max}", max = SpeedTable::MAX_POINTS)]
    TooMany(usize),
    /// A number of GPUs is zero.
    #[error("a number of GPUs must be at least 1")]
    NoGpus,
    /// A speed is zero, or too large to compute with.
    #[error("the speed on {0} GPUs must be above 0 and at most 1000000")]
    Speed(u32),
    /// A number of GPUs is given twice.
    #[error("the speed on {0} GPUs is given twice")]
    Twice(u32),
}

impl SpeedTable {
    /// The most points of a table.
    pub const MAX_POINTS: usize = 64;
    /// The largest speed, in millionths.
    const MAX_SPEED: u64 = 1_000_000_000_000;

    /// Makes a table of numbers of GPUs and speeds in millionths of any unit.
    ///
    /// # Errors
    /// If the list is empty or too long, or an entry is zero, too large or given twice.
    pub fn new(mut points: Vec<(u32, u64)>) -> Result<Self, SpeedTableError> {
        if points.is_empty() {
            return Err(SpeedTableError::Empty);
        }
        if points.len() > Self::MAX_POINTS {
            return Err(SpeedTableError::TooMany(points.len()));
        }
        points.sort_unstable();
        for (gpus, speed) in &points {
            if *gpus == 0 {
                return Err(SpeedTableError::NoGpus);
            }
            if !(1..=Self::MAX_SPEED).contains(speed) {
                return Err(SpeedTableError::Speed(*gpus));
            }
        }
        match points.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(SpeedTableError::Twice(pair[0].0)),
            None => Ok(Self(points)),
        }
    }

    /// Returns the numbers of GPUs with their speeds in millionths.
    pub fn points(&self) -> &[(u32, u64)] {
        &self.0
    }

    /// Returns the speed on `gpus` GPUs: interpolated between points, proportional below the first and constant above the
    /// last.
    fn speed(&self, gpus: u32) -> f64 {
        let at = self.0.partition_point(|(known, _)| *known < gpus);
        match (at.checked_sub(1).map(|i| self.0[i]), self.0.get(at)) {
            (_, Some((known, speed))) if *known == gpus => *speed as f64,
            (None, Some((known, speed))) => *speed as f64 * f64::from(gpus) / f64::from(*known),
            (Some((below, slow)), Some((above, fast))) => {
                let share = f64::from(gpus - below) / f64::from(above - below);
                slow as f64 + share * (*fast as f64 - slow as f64)
            }
            (Some((_, last)), None) => last as f64,
            (None, None) => 1.0,
        }
    }
}

impl TryFrom<Vec<(u32, u64)>> for SpeedTable {
    type Error = SpeedTableError;

    fn try_from(points: Vec<(u32, u64)>) -> Result<Self, SpeedTableError> {
        Self::new(points)
    }
}

impl From<SpeedTable> for Vec<(u32, u64)> {
    fn from(table: SpeedTable) -> Self {
        table.0
    }
}

/// Speed as a function of the number of GPUs, relative to the speed on the GPUs asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Scaling {
    /// Speed is proportional to the number of GPUs.
    #[default]
    Linear,
    /// Amdahl's law.
    Amdahl {
        /// The part of an iteration that runs in parallel, in millionths.
        parallel_ppm: u32,
    },
    /// Speeds were measured.
    Measured(Arc<SpeedTable>),
}

impl Scaling {
    /// Returns the speed on `gpus` GPUs relative to the speed on `asked`.
    pub fn rate(&self, gpus: u32, asked: u32) -> Rate {
        if gpus == asked || asked == 0 {
            return Rate::FULL;
        }
        match self {
            Self::Linear => Rate::from_factor(f64::from(gpus) / f64::from(asked)),
            Self::Amdahl { parallel_ppm } => {
                let parallel = f64::from(*parallel_ppm) / 1e6;
                let speed = |n: u32| 1.0 / (1.0 - parallel + parallel / f64::from(n.max(1)));
                Rate::from_factor(speed(gpus) / speed(asked))
            }
            Self::Measured(table) => Rate::from_factor(table.speed(gpus) / table.speed(asked)),
        }
    }
}

/// How a job behaves when it runs, as far as it is known. It can become known, or change, while the job is queued or runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobProfile {
    /// Work that the scheduler assumes in total.
    pub expected: Option<Work>,
    /// The model, if it has a profile.
    pub model: Option<ModelId>,
    /// Stages of an iteration.
    pub stages: Option<Stages>,
    /// Speed as a function of CPU and memory.
    pub sensitivity: Option<Arc<Sensitivity>>,
    /// Speed as a function of the number of GPUs.
    pub scaling: Scaling,
    /// What a restart costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_cost: Option<Time>,
}

/// What a scheduler knows about a job. What is true but unknown, such as the real run time, is not in here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its key, dense in order of submission.
    pub id: JobKey,
    /// Place among jobs with equal sort keys: smaller is served first. Unlike `id` it stays the same if the job leaves the
    /// engine and returns.
    #[serde(default)]
    pub place: u32,
    /// The tenant to which its use is charged.
    pub tenant: TenantId,
    /// The user who submitted it.
    pub user: UserId,
    /// Priority; larger is more urgent.
    pub priority: i32,
    /// GPUs of the gang, all of which it needs at once.
    pub gpus: u32,
    /// GPUs of one task, which must be on one node; what is left of the gang after whole tasks is one more task.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub gpus_per_task: u32,
    /// The fewest GPUs on which an elastic job runs.
    pub min_gpus: u32,
    /// The most GPUs on which an elastic job runs.
    pub max_gpus: u32,
    /// Required GPU type.
    pub gpu_type: Option<GpuTypeId>,
    /// Nodes the job is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "fence")]
    pub constraint: Option<NodeConstraintId>,
    /// Whether it runs only on what other jobs leave: it is behind all other jobs of its class, whatever the order says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", alias = "spare")]
    pub best_effort: bool,
    /// CPU per GPU, in milli-cores.
    pub cpu_milli_per_gpu: u32,
    /// Memory per GPU, in MiB.
    pub memory_mib_per_gpu: u64,
    /// Memory used on each GPU, in MiB; zero if unknown.
    #[serde(default)]
    pub gpu_memory_mib: u64,
    /// The model, if it has a profile.
    pub model: Option<ModelId>,
    /// Stands for the profile of jobs like it, if periods of groups are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_key: Option<ProfileKey>,
    /// Stages of an iteration, if they were measured.
    pub stages: Option<Stages>,
    /// Speed as a function of CPU and memory, if it was measured. Jobs of one model share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Arc<Sensitivity>>,
    /// Speed as a function of the number of GPUs.
    pub scaling: Scaling,
    /// What it costs to stop it and to start it again from its last checkpoint, if that is known: the time from the stop to
    /// the first new step, without the wait for GPUs, and the time of the steps that are done again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_cost: Option<Time>,
    /// When it was submitted.
    pub submit: Time,
    /// Work that the scheduler assumes: the truth, an estimate or nothing, depending on the knowledge of the run.
    pub expected: Option<Work>,
    /// When it should have ended.
    pub deadline: Option<Time>,
}

fn one() -> u32 {
    1
}

fn is_one(gpus: &u32) -> bool {
    *gpus == 1
}

impl JobSpec {
    /// Returns a job of `gpus` GPUs that is submitted at the epoch and about which nothing else is known.
    pub fn new(id: JobKey, gpus: u32) -> Self {
        Self {
            id,
            place: id.0,
            tenant: TenantId(0),
            user: UserId(0),
            priority: 0,
            gpus,
            gpus_per_task: 1,
            min_gpus: gpus,
            max_gpus: gpus,
            gpu_type: None,
            constraint: None,
            best_effort: false,
            cpu_milli_per_gpu: 0,
            memory_mib_per_gpu: 0,
            gpu_memory_mib: 0,
            model: None,
            profile_key: None,
            stages: None,
            sensitivity: None,
            scaling: Scaling::Linear,
            restart_cost: None,
            submit: Time::ZERO,
            expected: None,
            deadline: None,
        }
    }

    /// Returns how it behaves when it runs, as far as that is known.
    pub fn profile(&self) -> JobProfile {
        JobProfile {
            expected: self.expected,
            model: self.model,
            stages: self.stages,
            sensitivity: self.sensitivity.clone(),
            scaling: self.scaling.clone(),
            restart_cost: self.restart_cost,
        }
    }

    /// Replaces what is known about how it behaves when it runs.
    pub fn set_profile(&mut self, profile: JobProfile) {
        let JobProfile {
            expected,
            model,
            stages,
            sensitivity,
            scaling,
            restart_cost,
        } = profile;
        (self.expected, self.model, self.stages) = (expected, model, stages);
        (self.sensitivity, self.scaling, self.restart_cost) = (sensitivity, scaling, restart_cost);
    }

    /// Returns the CPU and memory per GPU with which it is fastest; what it asks for if that was not measured.
    pub fn preferred_share(&self) -> Share {
        match &self.sensitivity {
            Some(sensitivity) => sensitivity.ideal(),
            None => Share::new(self.cpu_milli_per_gpu, self.memory_mib_per_gpu),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_by_amdahls_law_is_monotone_and_bounded() {
        let scaling = Scaling::Amdahl {
            parallel_ppm: 900_000,
        };
        let rates: Vec<u32> = (1..=64).map(|g| scaling.rate(g, 1).0).collect();
        assert!(rates.windows(2).all(|w| w[0] < w[1]));
        assert!(rates[63] < 10_000_000);
        assert_eq!(scaling.rate(4, 4), Rate::FULL);
    }

    #[test]
    fn measured_speeds_are_interpolated() {
        let table = SpeedTable::new(vec![(4, 3_400_000), (1, 1_000_000), (2, 1_900_000)]).unwrap();
        let scaling = Scaling::Measured(Arc::new(table));
        let factor = |gpus| f64::from(scaling.rate(gpus, 2).0) / 1e6;
        assert!((factor(1) - 1.0 / 1.9).abs() < 1e-5);
        assert!((factor(3) - 2.65 / 1.9).abs() < 1e-5);
        assert!(
            (factor(8) - 3.4 / 1.9).abs() < 1e-5,
            "constant above the last point"
        );
        let text = serde_json::to_string(&scaling).unwrap();
        assert_eq!(serde_json::from_str::<Scaling>(&text).unwrap(), scaling);
    }

    #[test]
    fn a_speed_table_needs_distinct_positive_points() {
        assert_eq!(SpeedTable::new(vec![]), Err(SpeedTableError::Empty));
        assert_eq!(SpeedTable::new(vec![(0, 1)]), Err(SpeedTableError::NoGpus));
        assert_eq!(SpeedTable::new(vec![(2, 0)]), Err(SpeedTableError::Speed(2)));
        assert_eq!(
            SpeedTable::new(vec![(2, 5), (2, 6)]),
            Err(SpeedTableError::Twice(2))
        );
        let many = (1..=65).map(|n| (n, 1)).collect();
        assert_eq!(SpeedTable::new(many), Err(SpeedTableError::TooMany(65)));
    }
}
