//! Invariants of GPUs, CPU and memory, counted from what each job holds.

use std::collections::BTreeMap;

use dovetail_model::{Allocation, GpuSet, JobKey, NodeId, NodeShare, Share, SharingTerms};

use super::{CheckError, JobList};
use crate::cluster::{Cluster, NodeState};
use crate::job::{Job, RunState};
use crate::state::State;

/// Checks that no GPU is overused, and that every node counts correctly what is free on it.
pub(super) fn check(state: &State, terms: SharingTerms) -> Result<(), CheckError> {
    let mut placed = Tally::default();
    let mut running = Tally::default();
    for job in state.jobs() {
        check_tasks(job)?;
        for part in job.allocation.iter().flat_map(|a| &a.shares) {
            check_node_up(job, part, &state.cluster)?;
            placed.add(job, part);
        }
        let really_held = match (&job.run_state, &job.allocation) {
            (RunState::Starting | RunState::Running, Some(a)) => Some(a),
            (RunState::Stopping(a), _) => Some(a),
            _ => None,
        };
        for part in really_held.iter().flat_map(|a| &a.shares) {
            if state.cluster.node(part.node).is_some_and(|n| n.up) {
                running.add(job, part);
            }
        }
    }
    placed.check(&state.cluster, terms, "are placed on")?;
    running.check(&state.cluster, terms, "run on")?;
    for (id, node) in state.cluster.nodes() {
        check_node(id, node, &placed)?;
        check_granted(state, id)?;
    }
    Ok(())
}

fn check_tasks(job: &Job) -> Result<(), CheckError> {
    let gpus_per_task = job.spec.gpus_per_task;
    let allocation = job.allocation.as_ref();
    match allocation.is_none_or(|a| a.is_in_bundles_of(gpus_per_task)) {
        true => Ok(()),
        false => Err(CheckError::SplitTask {
            job: job.spec.id,
            gpus_per_task,
        }),
    }
}

fn check_node_up(job: &Job, part: &NodeShare, cluster: &Cluster) -> Result<(), CheckError> {
    let (job, node) = (job.spec.id, part.node);
    match cluster.node(node) {
        None => Err(CheckError::UnknownNode { job }),
        Some(state) if !state.up => Err(CheckError::NodeDown { job, node }),
        Some(_) => Ok(()),
    }
}

/// Checks what a node counts as free and in use against the jobs placed on it.
fn check_node(id: NodeId, node: &NodeState, placed: &Tally<'_>) -> Result<(), CheckError> {
    let wrong = |resource| CheckError::NodeCount { node: id, resource };
    let mut free = GpuSet::full(node.spec.gpus);
    let (mut used, mut preferred) = (Share::default(), Share::default());
    for (job, part) in placed.parts.get(&id).into_iter().flatten() {
        free.remove(&part.gpus);
        used = used.plus(Share::new(part.cpu_milli, part.memory_mib));
        let here = node.preferred_here(part.gpus.count(), job.spec.preferred_share());
        preferred = preferred.plus(here);
    }
    if preferred != node.preferred {
        return Err(wrong("the shares its jobs prefer"));
    }
    if let Some(unavailable) = &node.unavailable.gpus {
        if !free.covers(unavailable) {
            return Err(CheckError::UnavailableGpuHeld { node: id });
        }
        free.remove(unavailable);
    }
    if node.free != free || node.free_gpus != free.count() {
        return Err(wrong("free GPUs"));
    }
    let all = used
        .plus(node.unavailable.share)
        .plus(Share::new(node.free_cpu_milli, node.free_memory_mib));
    if all != Share::new(node.spec.cpu_milli, node.spec.memory_mib) {
        return Err(wrong("CPU or memory"));
    }
    for slot in (0..node.spec.gpus).filter(|slot| !node.is_unavailable(*slot)) {
        let wrong = |resource| CheckError::GpuCount {
            node: id,
            slot,
            resource,
        };
        let jobs = placed.on(id, slot);
        if node.holders(slot) as usize != jobs.len() {
            return Err(wrong("jobs"));
        }
        if node.spec.gpu_memory_mib > 0 && node.used_gpu_memory_mib(slot) != gpu_memory_of(jobs) {
            return Err(wrong("memory in use"));
        }
    }
    Ok(())
}

/// Checks that no job has less than it was promised, and that all jobs together have no more than the node has, including
/// what stopping jobs still use.
fn check_granted(state: &State, id: NodeId) -> Result<(), CheckError> {
    if !state.fills || state.touched.contains(id) {
        return Ok(());
    }
    let Some(node) = state.cluster.node(id).filter(|n| n.up) else {
        return Ok(());
    };
    let mut beyond = Share::default();
    for key in state.occupants.on_node(id) {
        let job = state.job(key);
        let on_node = |a: Option<&Allocation>| {
            let part = a?.shares.iter().find(|s| s.node == id)?;
            Some((part.gpus.clone(), Share::new(part.cpu_milli, part.memory_mib)))
        };
        let promised = on_node(job.allocation.as_ref());
        let (Some(promised), Some(granted)) = (promised, on_node(job.current_allocation())) else {
            return Err(CheckError::NoShare { job: key, node: id });
        };
        if promised.0 != granted.0 || !granted.1.covers(promised.1) {
            return Err(CheckError::BrokenPromise { job: key, node: id });
        }
        beyond = beyond.plus(granted.1.minus(promised.1));
    }
    match beyond == Share::default() || node.unallocated().covers(beyond) {
        true => Ok(()),
        false => Err(CheckError::OverGranted { node: id }),
    }
}

fn gpu_memory_of(jobs: &[&Job]) -> u64 {
    jobs.iter().map(|job| job.spec.gpu_memory_mib).sum()
}

/// Which jobs are where, counted from scratch.
#[derive(Default)]
struct Tally<'a> {
    slots: BTreeMap<(NodeId, u32), Vec<&'a Job>>,
    parts: BTreeMap<NodeId, Vec<(&'a Job, &'a NodeShare)>>,
    sets: BTreeMap<(NodeId, JobKey), &'a GpuSet>,
}

impl<'a> Tally<'a> {
    fn add(&mut self, job: &'a Job, part: &'a NodeShare) {
        for slot in part.gpus.iter() {
            self.slots.entry((part.node, slot)).or_default().push(job);
        }
        self.parts.entry(part.node).or_default().push((job, part));
        self.sets.insert((part.node, job.spec.id), &part.gpus);
    }

    fn on(&self, node: NodeId, slot: u32) -> &[&'a Job] {
        self.slots.get(&(node, slot)).map_or(&[], |jobs| jobs)
    }

    /// Checks that no GPU has more jobs than the terms allow or more memory in use than it has, and that jobs share all
    /// of their GPUs unless the terms let them overlap.
    fn check(&self, cluster: &Cluster, terms: SharingTerms, are_on: &'static str) -> Result<(), CheckError> {
        for ((node, slot), jobs) in &self.slots {
            let (node, slot) = (*node, *slot);
            let keys = || JobList(jobs.iter().map(|job| job.spec.id).collect());
            if jobs.len() > terms.max_jobs as usize {
                return Err(CheckError::TooManyJobs {
                    jobs: keys(),
                    are_on,
                    slot,
                    node,
                    max_jobs: terms.max_jobs,
                });
            }
            let set = |job: &&Job| self.sets.get(&(node, job.spec.id));
            if !terms.overlap && jobs.iter().any(|job| set(job) != set(&jobs[0])) {
                return Err(CheckError::PartlyShared {
                    jobs: keys(),
                    are_on,
                    slot,
                    node,
                });
            }
            let total_mib = cluster.node(node).map_or(0, |n| n.spec.gpu_memory_mib);
            let used_mib = gpu_memory_of(jobs);
            if total_mib > 0 && used_mib > total_mib {
                return Err(CheckError::GpuMemoryExceeded {
                    jobs: keys(),
                    are_on,
                    slot,
                    node,
                    used_mib,
                    total_mib,
                });
            }
        }
        Ok(())
    }
}
