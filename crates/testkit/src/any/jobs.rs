//! Random jobs for a cluster.

use std::sync::Arc;

use dovetail_model::stages::Stages;
use dovetail_model::{ClusterSpec, GpuTypeId, Scaling, Sensitivity, TenantId, Time, UserId, Work};
use dovetail_workload::{JobLabel, TraceJob};
use proptest::prelude::*;

use crate::print::curve_of;

/// Models whose sensitivities are used: some need much CPU, some CPU and memory, some little.
const CURVES: [&str; 5] = ["alexnet", "res18", "m5", "res50", "gnmt"];

/// Which jobs are generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// Only jobs that can run on the empty cluster, on GPUs of one type.
    Feasible,
    /// Occasionally jobs that can never run.
    Any,
}

/// A job that is not adapted to a cluster yet.
#[derive(Debug, Clone)]
struct RawJob {
    gap: i64,
    work: u64,
    width: u32,
    tenant: u32,
    user: u32,
    priority: i32,
    cpu_milli: u32,
    memory_gib: u64,
    kind: Option<u32>,
    elastic: Option<(u32, u32)>,
    amdahl: Option<u32>,
    stages: Option<(u32, u32, u32)>,
    gpu_memory_mib: u64,
}

fn raw_job() -> impl Strategy<Value = RawJob> {
    let gap = prop_oneof![
        3 => Just(0i64),
        3 => (0..30i64).prop_map(|s| s * 1_000_000),
        1 => 0..5_000_000i64,
        1 => (100..400i64).prop_map(|s| s * 1_000_000),
    ];
    let work = prop_oneof![
        3 => (1..60u64).prop_map(|s| s * 1_000_000),
        1 => (60..900u64).prop_map(|s| s * 1_000_000),
        1 => 1..20_000_000u64,
    ];
    let width = prop_oneof![4 => Just(1u32), 2 => Just(2), 2 => Just(4), 1 => Just(8), 2 => 1..48u32];
    let resources = prop_oneof![4 => Just((0u32, 0u64)), 1 => (0..12_000u32, 0..80u64)];
    let kind = prop_oneof![3 => Just(None), 1 => (0..2u32).prop_map(Some)];
    let elastic = prop_oneof![2 => Just(None), 1 => (1..8u32, 0..8u32).prop_map(Some)];
    let stages = prop::option::of((1..90u32, 1..90u32, 0..90u32));
    let gpu_memory = prop_oneof![1 => Just(0u64), 1 => (1..12u64).prop_map(|gib| gib * 1024)];
    let amdahl = prop_oneof![3 => Just(None), 1 => (0..=100u32).prop_map(Some)];
    (
        (gap, work, width),
        (0..3u32, 0..4u32, -1..2i32),
        (resources, kind, elastic, amdahl, stages, gpu_memory),
    )
        .prop_map(
            |(
                (gap, work, width),
                (tenant, user, priority),
                (resources, kind, elastic, amdahl, stages, gpu_memory),
            )| RawJob {
                gap,
                work,
                width,
                tenant,
                user,
                priority,
                cpu_milli: resources.0,
                memory_gib: resources.1,
                kind,
                elastic,
                amdahl,
                stages,
                gpu_memory_mib: gpu_memory,
            },
        )
}

/// Generates up to `max_jobs` jobs: wider than one node, submitted at the same time, with tenants, users, CPU, memory and GPU
/// types; with elastic jobs if `elastic`.
pub fn workloads(max_jobs: usize, fit: Fit, elastic: bool) -> impl Strategy<Value = Workloads> {
    prop::collection::vec(raw_job(), 1..=max_jobs).prop_map(move |raw| Workloads { raw, fit, elastic })
}

/// Jobs that are not adapted to a cluster yet, so that jobs and cluster shrink independently.
#[derive(Debug, Clone)]
pub struct Workloads {
    raw: Vec<RawJob>,
    fit: Fit,
    elastic: bool,
}

impl Workloads {
    /// Returns the jobs, adapted to the cluster.
    pub fn on(&self, cluster: &ClusterSpec) -> Vec<TraceJob> {
        let mut now = Time::ZERO;
        let jobs = self.raw.iter().enumerate();
        jobs.map(|(i, raw)| {
            now += Time(raw.gap);
            self.job(i, raw, now, cluster)
        })
        .collect()
    }

    /// Returns the sensitivity of a job; five of seven jobs have one.
    pub(super) fn curve(&self, i: usize) -> Option<Arc<Sensitivity>> {
        let number = self.raw[i].work / 1_000_000 + i as u64;
        CURVES.get(number as usize % 7).and_then(|model| curve_of(model))
    }

    /// Returns the stages of an iteration of a job, if it has any.
    pub(super) fn stages(&self, i: usize) -> Option<Stages> {
        let millis = self.raw[i].stages;
        millis.map(|(data, gpu, net)| {
            Stages::three(data * 1000, gpu * 1000, net * 1000, (data + gpu + net) * 1000)
        })
    }

    fn job(&self, i: usize, raw: &RawJob, submit: Time, cluster: &ClusterSpec) -> TraceJob {
        let label = JobLabel::Text(format!("j{i}").into());
        let mut job = TraceJob::new(label, submit, Work(raw.work), raw.width);
        (job.tenant, job.user) = (TenantId(raw.tenant), UserId(raw.user));
        job.priority = raw.priority;
        (job.cpu_milli_per_gpu, job.memory_mib_per_gpu) = (raw.cpu_milli, raw.memory_gib * 1024);
        job.gpu_memory_mib = raw.gpu_memory_mib;
        job.gpu_type = raw
            .kind
            .map(GpuTypeId)
            .filter(|k| cluster.gpu_types.get(*k).is_some());
        let is_infeasible = self.fit == Fit::Any && raw.width == 47;
        if !is_infeasible {
            if capacity(&job, cluster) == 0 {
                (job.cpu_milli_per_gpu, job.memory_mib_per_gpu, job.gpu_type) = (0, 0, None);
                job.gpu_memory_mib = 0;
            }
            job.gpus = job.gpus.min(capacity(&job, cluster));
        }
        (job.min_gpus, job.max_gpus) = (job.gpus, job.gpus);
        if let Some((fewer, more)) = raw.elastic.filter(|_| self.elastic) {
            job.min_gpus = job.gpus.saturating_sub(fewer).max(1);
            job.max_gpus = job.gpus + more;
            if let Some(percent) = raw.amdahl {
                job.scaling = Scaling::Amdahl {
                    parallel_ppm: percent * 10_000,
                };
            }
        }
        job
    }
}

/// Returns the most GPUs of one type that the job could have on the empty cluster.
fn capacity(job: &TraceJob, cluster: &ClusterSpec) -> u32 {
    let of_kind = |kind: GpuTypeId| -> u32 {
        let nodes = cluster
            .nodes
            .values()
            .filter(|n| n.gpu_type == kind && n.has_gpu_memory(job.gpu_memory_mib));
        nodes
            .map(|n| {
                let by_cpu = n.cpu_milli.checked_div(job.cpu_milli_per_gpu).unwrap_or(u32::MAX);
                let by_memory = n
                    .memory_mib
                    .checked_div(job.memory_mib_per_gpu)
                    .unwrap_or(u64::MAX);
                n.gpus
                    .min(by_cpu)
                    .min(u32::try_from(by_memory).unwrap_or(u32::MAX))
            })
            .sum()
    };
    let kinds = cluster.gpu_types.iter().map(|(kind, _)| kind);
    kinds
        .filter(|kind| job.gpu_type.is_none_or(|t| t == *kind))
        .map(of_kind)
        .max()
        .unwrap_or(0)
}

/// Rounds all times up to multiples of a period, so that no job is shorter than the period.
pub fn on_grid(mut jobs: Vec<TraceJob>, period: Time) -> Vec<TraceJob> {
    for job in &mut jobs {
        job.submit = job.submit.next_multiple_of(period);
        let work = Time(job.work.0 as i64).next_multiple_of(period);
        job.work = Work(work.0 as u64);
    }
    jobs
}
