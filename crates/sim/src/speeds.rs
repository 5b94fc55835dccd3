//! The total speed of the jobs of a run, compared with the best possible one.
//!
//! The bound is the linear relaxation of Synergy's integer program: CPU and memory of the cluster as one machine, divided
//! among the jobs that run at that moment so that the sum of their speeds, each times its GPUs, is largest. No job is
//! slower than with its proportional share, and no job has more next to its GPUs than their nodes have. No division among
//! these jobs does better, since a value between two points of a curve is a mixture of them.

use std::collections::BTreeMap;

use dovetail_model::{Allocation, ClusterSpec, Command, Event, JobKey, JobSpec, NodeId, Rate, Share, Time};
use dovetail_policies::sizing::opt::{Weight, cluster_bound};
use dovetail_workload::Workload;

use crate::run::Journal;

/// Speeds of all jobs, each times its GPUs, summed over a run: GPU-hours at full speed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Speeds {
    /// The achieved sum.
    pub achieved: f64,
    /// Upper bound over all divisions of CPU and memory among the same jobs at the same moments.
    pub bound: f64,
}

impl Speeds {
    /// Returns the missing fraction of the bound.
    pub fn missing(&self) -> f64 {
        if self.bound > 0.0 {
            1.0 - self.achieved / self.bound
        } else {
            0.0
        }
    }
}

/// Bounds that were computed, by the curves, widths and nodes of the running jobs.
type BoundCache = BTreeMap<Vec<(Option<u64>, u32, Share)>, u64>;

/// Returns the speeds of a run of these jobs on this cluster, from its journal.
pub fn speeds(workload: &Workload, cluster: &ClusterSpec, journal: &Journal) -> Speeds {
    let mut sum = Speeds::default();
    let mut held: BTreeMap<JobKey, Allocation> = BTreeMap::new();
    let mut known = BoundCache::new();
    let mut since = Time::ZERO;
    for (now, change) in changes(journal) {
        if now > since && !held.is_empty() {
            let hours = now.since(since).as_secs_f64() / 3600.0 / f64::from(Rate::FULL.0);
            sum.achieved += hours * achieved(workload, cluster, &held) as f64;
            sum.bound += hours * bound(workload, cluster, &held, &mut known) as f64;
        }
        since = now;
        match change {
            HolderChange::Holds(job, allocation) => drop(held.insert(job, allocation.clone())),
            HolderChange::Stopped(job) => drop(held.remove(&job)),
        }
    }
    sum
}

/// A change of the allocation of a job.
enum HolderChange<'a> {
    Holds(JobKey, &'a Allocation),
    Stopped(JobKey),
}

/// Returns which job has which allocation from when on, in order of time; at one moment ends come first.
fn changes(journal: &Journal) -> Vec<(Time, HolderChange<'_>)> {
    let ends = journal.events.iter().filter_map(|(at, event)| match event {
        Event::Exited { job, .. } => Some((*at, HolderChange::Stopped(*job))),
        _ => None,
    });
    let commands = journal.commands.iter().filter_map(|(at, command)| match command {
        Command::Launch { job, allocation, .. } | Command::Resize { job, allocation, .. } => {
            Some((*at, HolderChange::Holds(*job, allocation)))
        }
        Command::Stop { job, .. } => Some((*at, HolderChange::Stopped(*job))),
        Command::Reject { .. } => None,
    });
    let mut all: Vec<_> = ends.chain(commands).collect();
    all.sort_by_key(|(at, _)| *at);
    all
}

fn achieved(workload: &Workload, cluster: &ClusterSpec, held: &BTreeMap<JobKey, Allocation>) -> u64 {
    let fair = |node: NodeId| cluster.nodes[node].proportional();
    let speed = |(id, allocation): (&JobKey, &Allocation)| {
        let curve = &workload.jobs[id.0 as usize].sensitivity;
        let rate = curve.as_ref().map_or(Rate::FULL, |c| c.rate_on(allocation, fair));
        u64::from(rate.0) * u64::from(allocation.gpus())
    };
    held.iter().map(speed).sum()
}

fn bound(
    workload: &Workload,
    cluster: &ClusterSpec,
    held: &BTreeMap<JobKey, Allocation>,
    known: &mut BoundCache,
) -> u64 {
    let jobs: Vec<(JobSpec, Share)> = held
        .iter()
        .map(|(id, allocation)| {
            let spec = JobSpec {
                sensitivity: workload.jobs[id.0 as usize].sensitivity.clone(),
                ..JobSpec::new(*id, allocation.gpus())
            };
            (spec, most(cluster, allocation))
        })
        .collect();
    let mut key: Vec<_> = jobs
        .iter()
        .map(|(spec, most)| {
            let curve = spec.sensitivity.as_ref().map(|c| c.fingerprint());
            (curve, spec.gpus, *most)
        })
        .collect();
    key.sort_unstable();
    *known.entry(key).or_insert_with(|| {
        let nodes = cluster.nodes.values();
        let all = nodes.fold([0; 2], |sum, n| {
            [sum[0] + u64::from(n.cpu_milli), sum[1] + n.memory_mib]
        });
        let fair = cluster.nodes.values().map(|n| n.proportional());
        let fair = fair.reduce(Share::at_most).unwrap_or_default();
        let jobs = jobs.iter().map(|(spec, most)| (spec, *most));
        // Only the linear bound is needed: there is no search.
        let choice = cluster_bound(jobs, all, fair, Weight::Gpus, 0);
        choice.map_or(0, |c| c.bound)
    })
}

/// Returns the most a job on these GPUs could have next to each of them with exclusive use of their nodes.
fn most(cluster: &ClusterSpec, allocation: &Allocation) -> Share {
    let each = allocation.shares.iter().map(|part| {
        let node = &cluster.nodes[part.node];
        Share::new(node.cpu_milli, node.memory_mib).over(part.gpus.count())
    });
    each.reduce(Share::at_most).unwrap_or_default()
}
