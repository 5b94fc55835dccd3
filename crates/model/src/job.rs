//! A job as it is submitted: what it asks for, and what is known about it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{GpuTypeId, JobKey, ModelId, NodeConstraintId, TenantId, UserId};
use crate::sensitivity::{Sensitivity, Share};
use crate::stages::Stages;
use crate::units::{Rate, Time, Work};

/// Speed as a function of the number of GPUs, relative to the speed on the GPUs asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Scaling {
    /// Speed is proportional to the number of GPUs.
    #[default]
    Linear,
    /// Amdahl's law.
    Amdahl {
        /// The part of an iteration that runs in parallel, in millionths.
        parallel_ppm: u32,
    },
}

impl Scaling {
    /// Returns the speed on `gpus` GPUs relative to the speed on `asked`.
    pub fn rate(self, gpus: u32, asked: u32) -> Rate {
        if gpus == asked || asked == 0 {
            return Rate::FULL;
        }
        match self {
            Self::Linear => Rate::from_factor(f64::from(gpus) / f64::from(asked)),
            Self::Amdahl { parallel_ppm } => {
                let parallel = f64::from(parallel_ppm) / 1e6;
                let speed = |n: u32| 1.0 / (1.0 - parallel + parallel / f64::from(n.max(1)));
                Rate::from_factor(speed(gpus) / speed(asked))
            }
        }
    }
}

/// What a scheduler knows about a job. What is true but unknown, such as the real run time, is not in here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its key, dense in order of submission.
    pub id: JobKey,
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
    /// Stages of an iteration, if they were measured.
    pub stages: Option<Stages>,
    /// Speed as a function of CPU and memory, if it was measured. Jobs of one model share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Arc<Sensitivity>>,
    /// Speed as a function of the number of GPUs.
    pub scaling: Scaling,
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
            stages: None,
            sensitivity: None,
            scaling: Scaling::Linear,
            submit: Time::ZERO,
            expected: None,
            deadline: None,
        }
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
}
