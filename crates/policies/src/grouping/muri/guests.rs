//! Guests: jobs for which no group of their own width has room run on some of the GPUs of a wider group, where that is
//! a gain for all of them together.

use std::collections::BTreeSet;

use dovetail_engine::cluster::NodeState;
use dovetail_engine::{Ask, Job, Sharers};
use dovetail_model::stages::Stages;
use dovetail_model::{Allocation, FenceId, GpuSet, GpuTypeId, JobId, NodeId, NodeShare};

use super::kinds::{Code, Kinds, size, together};

/// Takes jobs in beside wider groups.
#[derive(Debug, Clone, Default)]
pub(super) struct Guests {
    /// What was turned away since the last guest came: its like is not looked at again.
    turned_away: BTreeSet<(Code, u32, Option<GpuTypeId>, Option<FenceId>)>,
}

/// GPUs of one node with the same jobs on them.
struct Table {
    node: NodeId,
    slots: Vec<u32>,
    /// The speed that is won, in GPUs, and lost by those who are there.
    gain: f64,
}

impl Guests {
    /// Forgets who was turned away.
    pub(super) fn begin(&mut self) {
        self.turned_away.clear();
    }

    /// The GPUs of one node on which the job adds most; none where everyone together would be slower for it.
    pub(super) fn seat(
        &mut self,
        kinds: &mut Kinds,
        most: usize,
        job: &Job,
        ask: &Ask,
        view: &Sharers<'_>,
    ) -> Option<Allocation> {
        let stages = job.spec.stages?;
        let code = kinds.alone(stages, ask.gpu_memory_mib);
        let like = (code, ask.gpus, ask.gpu_type, ask.fence);
        if self.turned_away.contains(&like) {
            return None;
        }
        let mut best: Option<Table> = None;
        for (id, node) in view.cluster().nodes() {
            let is_kind = ask.gpu_type.is_none_or(|kind| node.spec.gpu_type == kind);
            if !is_kind || !node.admits(ask.fence) || !node.is_open() || !has_room(node, ask) {
                continue;
            }
            for table in tables(id, node, ask, view) {
                let gain = gain(kinds, most, (stages, code), ask.gpus, &table, view);
                if gain > best.as_ref().map_or(0.0, |t| t.gain) {
                    best = Some(Table { gain, ..table });
                }
            }
        }
        match best {
            None => {
                self.turned_away.insert(like);
                None
            }
            Some(table) => {
                self.turned_away.clear();
                Some(allocation(&table, ask, view))
            }
        }
    }
}

/// Whether the node has CPU and memory for the whole job.
fn has_room(node: &NodeState, ask: &Ask) -> bool {
    node.free_cpu_milli >= ask.cpu_milli_per_gpu.saturating_mul(ask.gpus)
        && node.free_memory_mib >= ask.memory_mib_per_gpu.saturating_mul(u64::from(ask.gpus))
}

/// Sets of GPUs with the same jobs on them that are enough for the ask.
fn tables(id: NodeId, node: &NodeState, ask: &Ask, view: &Sharers<'_>) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for slot in 0..node.spec.gpus {
        let here = view.on(id, slot);
        if here.is_empty() || !node.has_gpu_memory(slot, ask.gpu_memory_mib) {
            continue;
        }
        match tables.iter_mut().find(|t| view.on(id, t.slots[0]) == here) {
            Some(table) => table.slots.push(slot),
            None => tables.push(Table {
                node: id,
                slots: vec![slot],
                gain: 0.0,
            }),
        }
    }
    tables.retain(|t| t.slots.len() >= ask.gpus as usize);
    tables
}

/// What the guest would do there, less what the others would lose, in GPUs at full speed.
fn gain(
    kinds: &mut Kinds,
    most: usize,
    (stages, code): (Stages, Code),
    gpus: u32,
    table: &Table,
    view: &Sharers<'_>,
) -> f64 {
    let here = view.on(table.node, table.slots[0]);
    let Some(company) = company(kinds, most, here, view) else {
        return 0.0;
    };
    let Some(all) = together(company, code, most) else {
        return 0.0;
    };
    let period_us = kinds.worth(all).period_us;
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

/// The code of jobs on one GPU; none if one of them was not measured, or they are as many as may be.
fn company(kinds: &mut Kinds, most: usize, here: &[JobId], view: &Sharers<'_>) -> Option<Code> {
    let mut code = Code::default();
    for id in here {
        let spec = &view.job(*id).spec;
        code = together(code, kinds.alone(spec.stages?, spec.gpu_memory_mib), most)?;
    }
    Some(code)
}

/// The share of full speed a job has now: that of its slowest GPU.
fn present_speed(kinds: &mut Kinds, most: usize, job: &Job, view: &Sharers<'_>) -> Option<f64> {
    let own_us = f64::from(job.spec.stages?.iteration_us);
    let mut slowest: f64 = 1.0;
    let mut last: &[JobId] = &[];
    for share in &job.allocation.as_ref()?.shares {
        for slot in share.gpus.iter() {
            let here = view.on(share.node, slot);
            if here != last {
                last = here;
                let code = company(kinds, most, here, view)?;
                if size(code) > 1 {
                    slowest = slowest.min(own_us / kinds.worth(code).period_us);
                }
            }
        }
    }
    Some(slowest)
}

fn allocation(table: &Table, ask: &Ask, view: &Sharers<'_>) -> Allocation {
    let slots = view.cluster().node(table.node).map_or(0, |n| n.spec.gpus);
    let mut gpus = GpuSet::empty(slots);
    let chosen = table.slots.iter().take(ask.gpus as usize);
    chosen.for_each(|slot| gpus.insert(*slot));
    let mut allocation = Allocation::default();
    allocation.shares.push(NodeShare {
        node: table.node,
        gpus,
        cpu_milli: ask.cpu_milli_per_gpu * ask.gpus,
        memory_mib: ask.memory_mib_per_gpu * u64::from(ask.gpus),
    });
    allocation
}
