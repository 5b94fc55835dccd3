//! Guests: a job without a group of its own width runs on some of the GPUs of a wider group, if all of them together gain.

use std::collections::BTreeSet;

use dovetail_engine::cluster::NodeState;
use dovetail_engine::{Ask, Job, Occupancy};
use dovetail_model::stages::Stages;
use dovetail_model::{Allocation, GpuSet, GpuTypeId, JobKey, NodeConstraintId, NodeId, NodeShare};

use super::kinds::{GroupKind, Kinds, merged, size};

/// Places jobs beside wider groups.
#[derive(Debug, Clone, Default)]
pub(super) struct Guests {
    /// Kinds of requests refused since the last guest was placed; they are not tried again.
    refused: BTreeSet<(GroupKind, u32, Option<GpuTypeId>, Option<NodeConstraintId>)>,
}

/// GPUs of one node with the same jobs on them.
struct SharedSlots {
    node: NodeId,
    slots: Vec<u32>,
    /// The speed gained less the speed the other jobs lose, in GPUs at full speed.
    gain: f64,
}

impl Guests {
    /// Clears the list of refused requests.
    pub(super) fn begin(&mut self) {
        self.refused.clear();
    }

    /// The GPUs of one node where the job adds most; `None` where all jobs together would be slower.
    pub(super) fn place(
        &mut self,
        kinds: &mut Kinds,
        most: usize,
        job: &Job,
        ask: &Ask,
        view: &Occupancy<'_>,
    ) -> Option<Allocation> {
        let stages = job.spec.stages?;
        let code = kinds.alone(&job.spec, ask.gpu_memory_mib)?;
        let like = (code, ask.gpus, ask.gpu_type, ask.constraint);
        if self.refused.contains(&like) {
            return None;
        }
        let mut best: Option<SharedSlots> = None;
        for (id, node) in view.cluster().nodes() {
            let is_kind = ask.gpu_type.is_none_or(|kind| node.spec.gpu_type == kind);
            if !is_kind || !node.admits(ask.constraint) || !node.is_open() || !has_room(node, ask) {
                continue;
            }
            for shared in shared_slots(id, node, ask, view) {
                let gain = gain(kinds, most, (stages, code), ask.gpus, &shared, view);
                if gain > best.as_ref().map_or(0.0, |t| t.gain) {
                    best = Some(SharedSlots { gain, ..shared });
                }
            }
        }
        match best {
            None => {
                self.refused.insert(like);
                None
            }
            Some(shared) => {
                self.refused.clear();
                Some(allocation(&shared, ask, view))
            }
        }
    }
}

/// Whether the node has CPU and memory for the whole job.
fn has_room(node: &NodeState, ask: &Ask) -> bool {
    node.free_cpu_milli >= ask.cpu_milli_per_gpu.saturating_mul(ask.gpus)
        && node.free_memory_mib >= ask.memory_mib_per_gpu.saturating_mul(u64::from(ask.gpus))
}

/// Sets of GPUs with the same jobs on them, large enough for the request.
fn shared_slots(id: NodeId, node: &NodeState, ask: &Ask, view: &Occupancy<'_>) -> Vec<SharedSlots> {
    let mut sets: Vec<SharedSlots> = Vec::new();
    for slot in 0..node.spec.gpus {
        let here = view.jobs_on(id, slot);
        if here.is_empty() || !node.has_gpu_memory(slot, ask.gpu_memory_mib) {
            continue;
        }
        match sets.iter_mut().find(|set| view.jobs_on(id, set.slots[0]) == here) {
            Some(set) => set.slots.push(slot),
            None => sets.push(SharedSlots {
                node: id,
                slots: vec![slot],
                gain: 0.0,
            }),
        }
    }
    sets.retain(|set| set.slots.len() >= ask.gpus as usize);
    sets
}

/// The speed of the guest there, less what the others would lose, in GPUs at full speed.
fn gain(
    kinds: &mut Kinds,
    most: usize,
    (stages, code): (Stages, GroupKind),
    gpus: u32,
    shared: &SharedSlots,
    view: &Occupancy<'_>,
) -> f64 {
    let here = view.jobs_on(shared.node, shared.slots[0]);
    let Some(present) = kind_on_gpu(kinds, most, here, view) else {
        return 0.0;
    };
    let Some(all) = merged(present, code, most) else {
        return 0.0;
    };
    let period_us = kinds.timing(all).period_us;
    let speed = |stages: Stages| (f64::from(stages.iteration_us) / period_us).min(1.0);
    let mut gain = f64::from(gpus) * speed(stages);
    for host in here.iter().map(|id| view.job(*id)) {
        let (Some(measured), Some(now)) = (host.spec.stages, present_speed(kinds, most, host, view)) else {
            return 0.0;
        };
        gain -= f64::from(host.width()) * (now - speed(measured)).max(0.0);
    }
    gain
}

/// The kind of the group on one GPU; `None` if one of its jobs was not measured, or the group is full.
fn kind_on_gpu(kinds: &mut Kinds, most: usize, here: &[JobKey], view: &Occupancy<'_>) -> Option<GroupKind> {
    let mut code = GroupKind::default();
    for id in here {
        let spec = &view.job(*id).spec;
        code = merged(code, kinds.alone(spec, spec.gpu_memory_mib)?, most)?;
    }
    Some(code)
}

/// The fraction of full speed that a job has now: that of its slowest GPU.
fn present_speed(kinds: &mut Kinds, most: usize, job: &Job, view: &Occupancy<'_>) -> Option<f64> {
    let own_us = f64::from(job.spec.stages?.iteration_us);
    let mut slowest: f64 = 1.0;
    let mut last: &[JobKey] = &[];
    for share in &job.allocation.as_ref()?.shares {
        for slot in share.gpus.iter() {
            let here = view.jobs_on(share.node, slot);
            if here != last {
                last = here;
                let code = kind_on_gpu(kinds, most, here, view)?;
                if size(code) > 1 {
                    slowest = slowest.min(own_us / kinds.timing(code).period_us);
                }
            }
        }
    }
    Some(slowest)
}

fn allocation(shared: &SharedSlots, ask: &Ask, view: &Occupancy<'_>) -> Allocation {
    let slots = view.cluster().node(shared.node).map_or(0, |n| n.spec.gpus);
    let mut gpus = GpuSet::empty(slots);
    let chosen = shared.slots.iter().take(ask.gpus as usize);
    chosen.for_each(|slot| gpus.insert(*slot));
    let mut allocation = Allocation::default();
    allocation.shares.push(NodeShare {
        node: shared.node,
        gpus,
        cpu_milli: ask.cpu_milli_per_gpu * ask.gpus,
        memory_mib: ask.memory_mib_per_gpu * u64::from(ask.gpus),
    });
    allocation
}
