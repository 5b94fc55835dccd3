//! A job as it is submitted: what it asks for and what is known of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{FenceId, GpuTypeId, JobId, ModelId, TenantId, UserId};
use crate::sensitivity::{Sensitivity, Share};
use crate::stages::Stages;
use crate::units::{Rate, Time, Work};

/// How speed grows with GPUs, relative to the speed on the GPUs asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Scaling {
    /// Twice the GPUs, twice the speed.
    #[default]
    Linear,
    /// Amdahl's law: this share of an iteration, in millionths, runs in parallel.
    Amdahl {
        /// The parallel share, in millionths.
        parallel_ppm: u32,
    },
}

impl Scaling {
    /// The speed on `gpus` GPUs relative to the speed on `asked`.
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

/// What a scheduler is told about a job. What is true but unknown, such as the real run time, is not in here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its id, dense in order of submission.
    pub id: JobId,
    /// The tenant that pays.
    pub tenant: TenantId,
    /// The person who submitted it.
    pub user: UserId,
    /// Larger is more urgent.
    pub priority: i32,
    /// The gang: so many GPUs at once, or nothing.
    pub gpus: u32,
    /// GPUs that have to be on one node: the gang comes in bundles of so many, and what is left over is one more.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub gpus_per_task: u32,
    /// The share of each GPU, in milli-GPU.
    pub gpu_milli: u32,
    /// Elastic jobs run on as few as this.
    pub min_gpus: u32,
    /// Elastic jobs run on as many as this.
    pub max_gpus: u32,
    /// Only this kind of GPU.
    pub gpu_type: Option<GpuTypeId>,
    /// Only on these nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceId>,
    /// Only on what others leave: it stands behind every job of its kind of tenant that is not spare, whatever the order says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spare: bool,
    /// CPU wanted for each GPU, in milli-cores.
    pub cpu_milli_per_gpu: u32,
    /// Memory wanted for each GPU, in MiB.
    pub memory_mib_per_gpu: u64,
    /// Memory it fills on each of its GPUs, in MiB; zero where that is not known.
    #[serde(default)]
    pub gpu_memory_mib: u64,
    /// The model, where its profile is known.
    pub model: Option<ModelId>,
    /// Stages of an iteration, where they were measured.
    pub stages: Option<Stages>,
    /// How fast it runs with how much CPU and memory, where that was measured. One for all jobs of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Arc<Sensitivity>>,
    /// How speed grows with GPUs.
    pub scaling: Scaling,
    /// When it was submitted.
    pub submit: Time,
    /// The work the scheduler may count on: the truth, an estimate, or nothing, as the run's knowledge says.
    pub expected: Option<Work>,
    /// When it should be done.
    pub deadline: Option<Time>,
}

/// Most jobs can be cut anywhere.
fn one() -> u32 {
    1
}

fn is_one(gpus: &u32) -> bool {
    *gpus == 1
}

impl JobSpec {
    /// CPU and memory beside each GPU that would make it fastest; what it asks for where it was not measured.
    pub fn wish(&self) -> Share {
        match &self.sensitivity {
            Some(sensitivity) => sensitivity.ideal(),
            None => Share::new(self.cpu_milli_per_gpu, self.memory_mib_per_gpu),
        }
    }

    /// A job of one GPU that is submitted at the epoch and of which nothing else is known.
    pub fn new(id: JobId, gpus: u32) -> Self {
        Self {
            id,
            tenant: TenantId(0),
            user: UserId(0),
            priority: 0,
            gpus,
            gpus_per_task: 1,
            gpu_milli: 1000,
            min_gpus: gpus,
            max_gpus: gpus,
            gpu_type: None,
            fence: None,
            spare: false,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amdahl_is_monotone_and_bounded() {
        let scaling = Scaling::Amdahl {
            parallel_ppm: 900_000,
        };
        let rates: Vec<u32> = (1..=64).map(|g| scaling.rate(g, 1).0).collect();
        assert!(rates.windows(2).all(|w| w[0] < w[1]));
        assert!(rates[63] < 10_000_000);
        assert_eq!(scaling.rate(4, 4), Rate::FULL);
    }
}
