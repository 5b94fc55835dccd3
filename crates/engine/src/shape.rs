//! Shapes: jobs that ask for the same have the same shape, and when one of them does not fit, none of them does.

use dovetail_model::ids::{Id, IdVec};
use dovetail_model::{GpuTypeId, JobSpec, NodeConstraintId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// What a job asks for, as far as it determines where the job fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Number of GPUs.
    pub gpus: u32,
    /// GPUs of one task, which must be on one node.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub gpus_per_task: u32,
    /// Required GPU type.
    pub gpu_type: Option<GpuTypeId>,
    /// Nodes the job is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<NodeConstraintId>,
    /// CPU per GPU, in milli-cores.
    pub cpu_milli_per_gpu: u32,
    /// Memory per GPU, in MiB.
    pub memory_mib_per_gpu: u64,
    /// Memory used on each GPU, in MiB.
    pub gpu_memory_mib: u64,
    /// Fingerprint of its sensitivity to CPU and memory; zero if that was not measured.
    pub curve: u64,
    /// The tenancy's shape key.
    pub tenancy_key: u64,
}

fn one() -> u32 {
    1
}

fn is_one(gpus: &u32) -> bool {
    *gpus == 1
}

impl Shape {
    /// Returns the shape of a job with this shape key of the tenancy.
    pub fn of(spec: &JobSpec, tenancy_key: u64) -> Self {
        Self {
            gpus: spec.gpus,
            gpus_per_task: spec.gpus_per_task,
            gpu_type: spec.gpu_type,
            constraint: spec.constraint,
            cpu_milli_per_gpu: spec.cpu_milli_per_gpu,
            memory_mib_per_gpu: spec.memory_mib_per_gpu,
            gpu_memory_mib: spec.gpu_memory_mib,
            curve: spec.sensitivity.as_ref().map_or(0, |s| s.fingerprint()),
            tenancy_key,
        }
    }
}

/// The number of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShapeId(pub u32);

impl Id for ShapeId {
    fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("there are fewer shapes than jobs"))
    }
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// All shapes seen so far.
#[derive(Debug, Clone, Default)]
pub struct Shapes {
    list: IdVec<ShapeId, Shape>,
    ids: FxHashMap<Shape, ShapeId>,
}

impl Shapes {
    /// Returns the number of this shape, which is assigned when the shape is first seen.
    pub fn id(&mut self, shape: Shape) -> ShapeId {
        *self.ids.entry(shape).or_insert_with(|| self.list.push(shape))
    }

    /// Returns the shape with this number.
    pub fn get(&self, id: ShapeId) -> &Shape {
        &self.list[id]
    }
}
