//! AntMan as Muri's simulator models it, with its partial reservations and assumed utilisations. No job is ever stopped.
//!
//! Guaranteed jobs take GPUs without another guaranteed job, on the first node that has enough. If no node has enough, the
//! free GPUs of the emptiest node are reserved, and more of that node as they become free; jobs wider than a node reserve
//! whole nodes. Opportunistic jobs take the least used GPUs anywhere. A guaranteed job is assumed to use a tenth of a GPU
//! and an opportunistic one nine tenths, and opportunistic jobs take only GPUs that are used less than eight tenths.

use std::collections::BTreeMap;

use dovetail_engine::{Discipline, Feature, Job, LoadError, Need, NeedSet, Part, Round};
use dovetail_model::{Allocation, GpuSet, JobKey, NodeId, NodeShare};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "antman-muri",
    what: "as in Muri's simulator: AntMan with reservations for guaranteed jobs; no job is stopped",
    source: "Muri (SIGCOMM'22), simulator, schedule antman",
    key: "guaranteed: first node with GPUs free of guaranteed jobs; opportunistic: the least used GPUs",
    companions: &[],
    knobs: &[],
    build: |_| {
        Ok(Box::new(AntManMuri {
            records: GpuRecords::default(),
        }))
    },
};

const GUARANTEED_USE: f64 = 0.1;
const OPPORTUNISTIC_USE: f64 = 0.9;
/// What a guaranteed job adds to the use of its GPUs when it starts; the reservation counts for the rest.
const RUNNING_USE: f64 = 0.01;
const MOST_USED: f64 = 0.8;

/// A GPU by node and slot.
type Gpu = (u32, u32);

/// What Muri's simulator records about each GPU and each job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct GpuRecords {
    /// Use and guaranteed job of each GPU, node by node.
    nodes: Vec<Vec<Slot>>,
    /// What each job holds or has reserved, in the order in which it got it.
    #[serde(alias = "given")]
    holdings: BTreeMap<JobKey, Holding>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Slot {
    used: f64,
    guaranteed: Option<JobKey>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Holding {
    opportunistic: bool,
    gpus: Vec<Gpu>,
}

/// AntMan with assumed utilisations.
#[derive(Debug, Clone)]
struct AntManMuri {
    records: GpuRecords,
}

impl Part for AntManMuri {
    fn name(&self) -> String {
        "antman-muri".to_owned()
    }

    fn needs(&self) -> NeedSet {
        Need::Sharing.into()
    }

    fn provides(&self) -> &'static [Feature] {
        &[Feature::SharedStarts]
    }

    fn save(&self) -> Value {
        serde_json::to_value(&self.records).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        self.records = match saved {
            Value::Null => GpuRecords::default(),
            other => serde_json::from_value(other.clone()).map_err(|e| LoadError::new("antman-muri", e))?,
        };
        Ok(())
    }
}

impl Discipline for AntManMuri {
    fn walk(&mut self, round: &mut Round<'_>) {
        if self.records.nodes.is_empty() {
            let empty = |gpus: u32| vec![Slot::default(); gpus as usize];
            self.records.nodes = round.cluster().nodes().map(|(_, n)| empty(n.spec.gpus)).collect();
        }
        let queue = round.all_jobs();
        let mut present: Vec<JobKey> = queue.iter().map(|r| r.job).collect();
        present.sort_unstable();
        self.records.release_all_but(&present);
        for rank in queue {
            let job = round.job(rank.job);
            if job.allocation.is_none() && job.is_queued() && self.records.allocate(job) {
                let place = self.records.allocation(job);
                round.planner().assign(rank.job, place, true);
            }
        }
    }

    fn needs_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        false
    }
}

impl GpuRecords {
    /// Releases the GPUs of jobs that have ended, those of guaranteed jobs first.
    fn release_all_but(&mut self, present: &[JobKey]) {
        let mut gone: Vec<(bool, JobKey)> = self
            .holdings
            .iter()
            .filter(|(job, _)| present.binary_search(job).is_err())
            .map(|(job, holding)| (holding.opportunistic, *job))
            .collect();
        gone.sort_unstable();
        for (opportunistic, job) in gone {
            for (node, gpu) in self.holdings.remove(&job).unwrap_or_default().gpus {
                let slot = &mut self.nodes[node as usize][gpu as usize];
                if opportunistic {
                    slot.used -= OPPORTUNISTIC_USE;
                } else {
                    (slot.used, slot.guaranteed) = (slot.used - GUARANTEED_USE, None);
                }
            }
        }
    }

    /// Allocates or reserves GPUs. Returns whether the job has all it asks for.
    fn allocate(&mut self, job: &Job) -> bool {
        if job.spec.priority < 0 {
            return self.allocate_opportunistic(job);
        }
        let per_node = self.nodes.first().map_or(1, Vec::len).max(1) as u32;
        if job.spec.gpus > per_node {
            self.reserve_whole_nodes(job, per_node);
        } else {
            self.reserve_on_one_node(job);
        }
        let whole = self
            .holdings
            .get(&job.spec.id)
            .is_some_and(|g| g.gpus.len() == job.spec.gpus as usize);
        if whole {
            for (node, gpu) in self.holdings[&job.spec.id].gpus.clone() {
                self.nodes[node as usize][gpu as usize].used += RUNNING_USE;
            }
        }
        whole
    }

    fn allocate_opportunistic(&mut self, job: &Job) -> bool {
        let mut open: Vec<(Gpu, f64)> = Vec::new();
        for (node, slots) in (0..).zip(&self.nodes) {
            open.extend((0..).zip(slots).map(|(gpu, slot)| ((node, gpu), slot.used)));
        }
        open.retain(|(_, used)| *used < MOST_USED);
        if open.len() < job.spec.gpus as usize {
            return false;
        }
        open.sort_by(|a, b| a.1.total_cmp(&b.1));
        let gpus: Vec<Gpu> = open
            .iter()
            .take(job.spec.gpus as usize)
            .map(|(gpu, _)| *gpu)
            .collect();
        for (node, gpu) in &gpus {
            self.nodes[*node as usize][*gpu as usize].used += OPPORTUNISTIC_USE;
        }
        let holding = Holding {
            opportunistic: true,
            gpus,
        };
        self.holdings.insert(job.spec.id, holding);
        true
    }

    /// Returns the GPUs of one node without a guaranteed job.
    fn free_of_guaranteed(&self, node: usize) -> Vec<u32> {
        (0..)
            .zip(&self.nodes[node])
            .filter(|(_, slot)| slot.guaranteed.is_none())
            .map(|(gpu, _)| gpu)
            .collect()
    }

    /// Reserves GPUs of the first node with enough, else all free GPUs of the emptiest node; once some are reserved, only of
    /// their node.
    fn reserve_on_one_node(&mut self, job: &Job) {
        let reserved = self.holdings.get(&job.spec.id);
        let missing = job.spec.gpus as usize - reserved.map_or(0, |g| g.gpus.len());
        let node = match reserved.and_then(|g| g.gpus.first()) {
            Some((node, _)) => *node as usize,
            None => {
                let counts: Vec<usize> = (0..self.nodes.len())
                    .map(|n| self.free_of_guaranteed(n).len())
                    .collect();
                let most = counts.iter().copied().max().unwrap_or(0).min(missing);
                match counts.iter().position(|c| *c >= missing) {
                    Some(node) => node,
                    None if most > 0 => counts
                        .iter()
                        .position(|c| *c == most)
                        .expect("one of the counts is the largest"),
                    None => return,
                }
            }
        };
        let gpus: Vec<u32> = self.free_of_guaranteed(node).into_iter().take(missing).collect();
        self.reserve(job.spec.id, node, gpus);
    }

    /// Reserves as many nodes free of guaranteed jobs as are missing, or all such nodes if they are fewer.
    fn reserve_whole_nodes(&mut self, job: &Job, per_node: u32) {
        let reserved = self.holdings.get(&job.spec.id).map_or(0, |g| g.gpus.len() as u32);
        let missing = (job.spec.gpus - reserved) / per_node;
        let free: Vec<usize> = (0..self.nodes.len())
            .filter(|n| self.free_of_guaranteed(*n).len() == per_node as usize)
            .take(missing as usize)
            .collect();
        for node in free {
            self.reserve(job.spec.id, node, (0..per_node).collect());
        }
    }

    fn reserve(&mut self, job: JobKey, node: usize, gpus: Vec<u32>) {
        for gpu in gpus {
            let slot = &mut self.nodes[node][gpu as usize];
            slot.used += GUARANTEED_USE - RUNNING_USE;
            slot.guaranteed = Some(job);
            self.holdings
                .entry(job)
                .or_default()
                .gpus
                .push((node as u32, gpu));
        }
    }

    /// Returns the GPUs of the job as an allocation.
    fn allocation(&self, job: &Job) -> Allocation {
        let mut nodes: BTreeMap<u32, GpuSet> = BTreeMap::new();
        for (node, gpu) in &self.holdings[&job.spec.id].gpus {
            let slots = self.nodes[*node as usize].len() as u32;
            nodes
                .entry(*node)
                .or_insert_with(|| GpuSet::empty(slots))
                .insert(*gpu);
        }
        let share = |(node, gpus): (u32, GpuSet)| NodeShare {
            node: NodeId(node),
            cpu_milli: job.spec.cpu_milli_per_gpu * gpus.count(),
            memory_mib: job.spec.memory_mib_per_gpu * u64::from(gpus.count()),
            gpus,
        };
        Allocation {
            shares: nodes.into_iter().map(share).collect(),
        }
    }
}
