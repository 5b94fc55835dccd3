//! Jobs that ask for the same thing have the same shape: when one of them does not fit, none of them does.

use dovetail_model::ids::{Id, IdVec};
use dovetail_model::{FenceId, GpuTypeId, JobSpec};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// What a job asks for, as far as it decides where the job fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// GPUs.
    pub gpus: u32,
    /// GPUs that have to be on one node.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub gpus_per_task: u32,
    /// Only this kind.
    pub gpu_type: Option<GpuTypeId>,
    /// Only on these nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceId>,
    /// CPU beside each GPU, in milli-cores.
    pub cpu_milli_per_gpu: u32,
    /// Memory beside each GPU, in MiB.
    pub memory_mib_per_gpu: u64,
    /// Memory it fills on each GPU, in MiB.
    pub gpu_memory_mib: u64,
    /// Its curve over CPU and memory, by fingerprint; zero where it was not measured.
    pub curve: u64,
    /// Whatever else the tenancy tells apart.
    pub tenancy_key: u64,
}

fn one() -> u32 {
    1
}

fn is_one(gpus: &u32) -> bool {
    *gpus == 1
}

impl Shape {
    /// The shape of a job under a tenancy that sees `tenancy_key` in it.
    pub fn of(spec: &JobSpec, tenancy_key: u64) -> Self {
        Self {
            gpus: spec.gpus,
            gpus_per_task: spec.gpus_per_task,
            gpu_type: spec.gpu_type,
            fence: spec.fence,
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
        Self(u32::try_from(index).expect("fewer shapes than jobs"))
    }
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// All shapes seen so far.
#[derive(Debug, Clone, Default)]
pub struct Shapes {
    list: IdVec<ShapeId, Shape>,
    known: FxHashMap<Shape, ShapeId>,
}

impl Shapes {
    /// The number of this shape, given out at first sight.
    pub fn id(&mut self, shape: Shape) -> ShapeId {
        *self.known.entry(shape).or_insert_with(|| self.list.push(shape))
    }

    /// The shape with this number.
    pub fn get(&self, id: ShapeId) -> &Shape {
        &self.list[id]
    }
}
