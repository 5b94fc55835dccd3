//! AntMan as Muri's simulator models it, partial reservations and made-up utilisations included. Nobody is ever stopped.
//!
//! Guaranteed jobs take GPUs without another guaranteed job, on the first node that has enough. Where none has, the
//! emptiest node's are kept for them, and more of that node as it comes free; jobs wider than a node keep whole nodes.
//! Opportunistic jobs take the least used GPUs anywhere. A guaranteed job is taken to use a tenth of a GPU, an
//! opportunistic one nine tenths, and an opportunistic job wants GPUs that are used to less than eight tenths.

use std::collections::BTreeMap;

use dovetail_engine::{Discipline, Job, Knowledge, Part, Round};
use dovetail_model::{Allocation, GpuSet, JobId, NodeId, NodeShare};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "antman-muri",
    what: "as in Muri's simulator: AntMan with reservations for guaranteed jobs; nobody is stopped",
    source: "Muri (SIGCOMM'22), simulator, schedule antman",
    key: "guaranteed: first node with GPUs free of guaranteed jobs; opportunistic: the least used GPUs",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| {
        Ok(Box::new(AntManMuri {
            books: Books::default(),
        }))
    },
};

const GUARANTEED_USE: f64 = 0.1;
const OPPORTUNISTIC_USE: f64 = 0.9;
/// What a guaranteed job is counted with on top of its reservation once it runs.
const RUNNING_USE: f64 = 0.01;
const MOST_USED: f64 = 0.8;

/// A GPU by node and slot.
type Gpu = (u32, u32);

/// What Muri's simulator keeps of each GPU and each job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Books {
    /// Use and guaranteed job of each GPU, node by node.
    nodes: Vec<Vec<Slot>>,
    /// What each job holds or has reserved, in the order in which it was given.
    given: BTreeMap<JobId, Given>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Slot {
    used: f64,
    guaranteed: Option<JobId>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Given {
    opportunistic: bool,
    gpus: Vec<Gpu>,
}

/// AntMan, as modelled there.
#[derive(Debug, Clone)]
pub struct AntManMuri {
    books: Books,
}

impl Part for AntManMuri {
    fn name(&self) -> String {
        "antman-muri".to_owned()
    }

    fn save(&self) -> Value {
        serde_json::to_value(&self.books).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), String> {
        self.books = match saved {
            Value::Null => Books::default(),
            other => serde_json::from_value(other.clone()).map_err(|e| format!("antman-muri: {e}"))?,
        };
        Ok(())
    }
}

impl Discipline for AntManMuri {
    fn walk(&mut self, round: &mut Round<'_>) {
        if self.books.nodes.is_empty() {
            let empty = |gpus: u32| vec![Slot::default(); gpus as usize];
            self.books.nodes = round.cluster().nodes().map(|(_, n)| empty(n.spec.gpus)).collect();
        }
        let line = round.everyone();
        let mut present: Vec<JobId> = line.iter().map(|r| r.job).collect();
        present.sort_unstable();
        self.books.release_all_but(&present);
        for rank in line {
            let job = round.job(rank.job);
            if job.allocation.is_none() && job.is_waiting() && self.books.give(job) {
                let place = self.books.allocation(job);
                round.put_on(rank.job, place, true);
            }
        }
    }

    fn looks_at_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        false
    }
}

impl Books {
    /// Takes back what jobs had that are gone, guaranteed ones first.
    fn release_all_but(&mut self, present: &[JobId]) {
        let mut gone: Vec<(bool, JobId)> = self
            .given
            .iter()
            .filter(|(job, _)| present.binary_search(job).is_err())
            .map(|(job, given)| (given.opportunistic, *job))
            .collect();
        gone.sort_unstable();
        for (opportunistic, job) in gone {
            for (node, gpu) in self.given.remove(&job).unwrap_or_default().gpus {
                let slot = &mut self.nodes[node as usize][gpu as usize];
                if opportunistic {
                    slot.used -= OPPORTUNISTIC_USE;
                } else {
                    (slot.used, slot.guaranteed) = (slot.used - GUARANTEED_USE, None);
                }
            }
        }
    }

    /// Gives or reserves GPUs; true when the job has all it asks for.
    fn give(&mut self, job: &Job) -> bool {
        if job.spec.priority < 0 {
            return self.give_opportunistic(job);
        }
        let per_node = self.nodes.first().map_or(1, Vec::len).max(1) as u32;
        if job.spec.gpus > per_node {
            self.give_whole_nodes(job, per_node);
        } else {
            self.give_on_one_node(job);
        }
        let whole = self
            .given
            .get(&job.spec.id)
            .is_some_and(|g| g.gpus.len() == job.spec.gpus as usize);
        if whole {
            for (node, gpu) in self.given[&job.spec.id].gpus.clone() {
                self.nodes[node as usize][gpu as usize].used += RUNNING_USE;
            }
        }
        whole
    }

    fn give_opportunistic(&mut self, job: &Job) -> bool {
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
        let given = Given {
            opportunistic: true,
            gpus,
        };
        self.given.insert(job.spec.id, given);
        true
    }

    /// GPUs of one node without a guaranteed job.
    fn open(&self, node: usize) -> Vec<u32> {
        (0..)
            .zip(&self.nodes[node])
            .filter(|(_, slot)| slot.guaranteed.is_none())
            .map(|(gpu, _)| gpu)
            .collect()
    }

    /// The first node with enough, else all that the emptiest has; once something is reserved, that node alone.
    fn give_on_one_node(&mut self, job: &Job) {
        let reserved = self.given.get(&job.spec.id);
        let missing = job.spec.gpus as usize - reserved.map_or(0, |g| g.gpus.len());
        let node = match reserved.and_then(|g| g.gpus.first()) {
            Some((node, _)) => *node as usize,
            None => {
                let counts: Vec<usize> = (0..self.nodes.len()).map(|n| self.open(n).len()).collect();
                let most = counts.iter().copied().max().unwrap_or(0).min(missing);
                match counts.iter().position(|c| *c >= missing) {
                    Some(node) => node,
                    None if most > 0 => counts
                        .iter()
                        .position(|c| *c == most)
                        .expect("one of them has the most"),
                    None => return,
                }
            }
        };
        let gpus: Vec<u32> = self.open(node).into_iter().take(missing).collect();
        self.reserve(job.spec.id, node, gpus);
    }

    /// As many nodes free of guaranteed jobs as are missing, or as there are.
    fn give_whole_nodes(&mut self, job: &Job, per_node: u32) {
        let reserved = self.given.get(&job.spec.id).map_or(0, |g| g.gpus.len() as u32);
        let missing = (job.spec.gpus - reserved) / per_node;
        let free: Vec<usize> = (0..self.nodes.len())
            .filter(|n| self.open(*n).len() == per_node as usize)
            .take(missing as usize)
            .collect();
        for node in free {
            self.reserve(job.spec.id, node, (0..per_node).collect());
        }
    }

    fn reserve(&mut self, job: JobId, node: usize, gpus: Vec<u32>) {
        for gpu in gpus {
            let slot = &mut self.nodes[node][gpu as usize];
            slot.used += GUARANTEED_USE - RUNNING_USE;
            slot.guaranteed = Some(job);
            self.given.entry(job).or_default().gpus.push((node as u32, gpu));
        }
    }

    /// What the job was given, as an allocation.
    fn allocation(&self, job: &Job) -> Allocation {
        let mut nodes: BTreeMap<u32, GpuSet> = BTreeMap::new();
        for (node, gpu) in &self.given[&job.spec.id].gpus {
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
