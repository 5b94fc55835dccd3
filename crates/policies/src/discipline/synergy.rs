//! The discipline of Synergy's simulator: every round the cluster is emptied and filled again in order. GPUs are taken by
//! number, regardless of nodes, with CPU and memory in proportion (`fair`), with the ideal share (`greedy`), or with the ideal
//! share and else in proportion, if necessary by cutting back jobs placed earlier in the round (`tune`).

use std::collections::BTreeMap;

use dovetail_engine::{Cluster, Discipline, LoadError, Need, NeedSet, Part, Round};
use dovetail_model::{Allocation, JobKey, NodeId, NodeShare, Share, Time};
use serde_json::Value;

use super::{load_jobs, save_jobs, update_list};

/// How CPU and memory are allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SynergyMode {
    /// In proportion to GPUs.
    Fair,
    /// The ideal share, or nothing.
    Greedy,
    /// The ideal share, else in proportion.
    Tune,
}

/// Synergy's discipline.
#[derive(Debug, Clone)]
pub struct Synergy {
    mode: SynergyMode,
    /// Whether only jobs whose GPUs fit one after the other are considered, under `tune` the widest first: its LAS.
    prefix: bool,
    /// CPU and memory per GPU with which each job is fastest.
    ideal_shares: Vec<Share>,
    round: Time,
    queue: Vec<JobKey>,
}

impl Synergy {
    /// Returns the discipline for jobs with these ideal shares, by job key, and rounds of this length.
    pub fn new(mode: SynergyMode, prefix: bool, ideal_shares: Vec<Share>, round: Time) -> Self {
        Self {
            mode,
            prefix,
            ideal_shares,
            round,
            queue: Vec::new(),
        }
    }
}

impl Part for Synergy {
    fn name(&self) -> String {
        let mode = match self.mode {
            SynergyMode::Fair => "fair",
            SynergyMode::Greedy => "greedy",
            SynergyMode::Tune => "tune",
        };
        format!("synergy:mode={mode}")
    }

    fn needs(&self) -> NeedSet {
        Need::Resize.into()
    }

    fn save(&self) -> Value {
        save_jobs(&self.queue)
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        self.queue = load_jobs(saved).ok_or_else(|| LoadError::new("synergy", "expected a list of jobs"))?;
        Ok(())
    }
}

impl Discipline for Synergy {
    fn walk(&mut self, round: &mut Round<'_>) {
        self.sort(round);
        round.planner().release_all();
        let mut cluster = EmptiedCluster::new(round.cluster());
        let mut queue = self.queue.clone();
        if self.prefix {
            let mut left = cluster.free_gpus();
            queue.retain(|id| {
                let gpus = round.job(*id).spec.gpus;
                let fits = gpus <= left;
                left -= if fits { gpus } else { 0 };
                fits
            });
            if self.mode == SynergyMode::Tune {
                queue.sort_by_key(|id| std::cmp::Reverse(round.job(*id).spec.gpus));
            }
        }
        for id in queue {
            let gpus = round.job(id).spec.gpus;
            if gpus <= cluster.free_gpus() {
                let ideal = self.ideal_shares[id.0 as usize];
                match self.mode {
                    SynergyMode::Fair => drop(cluster.put(id, gpus, cluster.fair, ideal)),
                    SynergyMode::Greedy => drop(cluster.put(id, gpus, ideal, ideal)),
                    SynergyMode::Tune => cluster.tune(id, gpus, ideal),
                }
            }
        }
        for (id, placed) in cluster.jobs {
            round.planner().assign(id, placed.allocation(), false);
        }
        let next = round.now() + self.round;
        round.wake_at(next);
    }

    fn needs_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}

impl Synergy {
    /// Sorts by key, then by submission; ties keep the order of the previous round.
    fn sort(&mut self, round: &Round<'_>) {
        let ranks: BTreeMap<JobKey, (i32, i128, Time)> = round
            .all_jobs()
            .into_iter()
            .map(|r| (r.job, (r.band, r.value, round.job(r.job).spec.submit)))
            .collect();
        update_list(&mut self.queue, ranks.keys().copied());
        self.queue.sort_by_key(|id| ranks[id]);
    }
}

/// A server with what is left of it in this round.
#[derive(Debug)]
struct Server {
    id: NodeId,
    slots: dovetail_model::GpuSet,
    left: Share,
    /// Jobs placed on it, in the order of placement; sorted when some must be cut back.
    jobs: Vec<JobKey>,
}

/// A job placed in this round: the same share for each of its GPUs.
#[derive(Debug)]
struct Placed {
    parts: Vec<(usize, NodeId, dovetail_model::GpuSet)>,
    each: Share,
    ideal: Share,
}

impl Placed {
    fn allocation(&self) -> Allocation {
        let share = |(_, node, gpus): &(usize, NodeId, dovetail_model::GpuSet)| {
            let all = self.each.times(gpus.count());
            NodeShare {
                node: *node,
                gpus: gpus.clone(),
                cpu_milli: all.cpu_milli,
                memory_mib: all.memory_mib,
            }
        };
        Allocation {
            shares: self.parts.iter().map(share).collect(),
        }
    }
}

/// The cluster while it is filled.
#[derive(Debug)]
struct EmptiedCluster {
    fair: Share,
    servers: Vec<Server>,
    jobs: BTreeMap<JobKey, Placed>,
}

impl EmptiedCluster {
    fn new(cluster: &Cluster) -> Self {
        let open = cluster.nodes().filter(|(_, n)| n.is_open());
        let server = |(id, node): (NodeId, &dovetail_engine::NodeState)| Server {
            id,
            slots: node.free.clone(),
            left: node.unallocated(),
            jobs: Vec::new(),
        };
        Self {
            fair: cluster.least_share(),
            servers: open.map(server).collect(),
            jobs: BTreeMap::new(),
        }
    }

    fn free_gpus(&self) -> u32 {
        self.servers.iter().map(|s| s.slots.count()).sum()
    }

    /// Takes GPUs by number, each where this share is left. Returns false if there are not enough.
    fn put(&mut self, id: JobKey, gpus: u32, each: Share, ideal: Share) -> bool {
        let mut missing = gpus;
        let mut counts = Vec::new();
        for (i, server) in self.servers.iter().enumerate() {
            let by_cpu = server
                .left
                .cpu_milli
                .checked_div(each.cpu_milli)
                .unwrap_or(u32::MAX);
            let by_memory = server.left.memory_mib.checked_div(each.memory_mib);
            let by_memory = by_memory.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX));
            let here = server.slots.count().min(by_cpu).min(by_memory).min(missing);
            if here > 0 {
                counts.push((i, here));
                missing -= here;
            }
        }
        if missing > 0 {
            return false;
        }
        let mut parts = Vec::new();
        for (i, here) in counts {
            let server = &mut self.servers[i];
            let slots = server.slots.lowest(here);
            server.slots.remove(&slots);
            server.left = server.left.minus(each.times(here));
            server.jobs.push(id);
            parts.push((i, server.id, slots));
        }
        self.jobs.insert(id, Placed { parts, each, ideal });
        true
    }

    /// Tries the ideal share, then the proportional one if that is smaller, then cuts back other jobs.
    fn tune(&mut self, id: JobKey, gpus: u32, ideal: Share) {
        if self.put(id, gpus, ideal, ideal) {
            return;
        }
        let each = self.capped_share(ideal);
        if self.put(id, gpus, each, ideal) {
            return;
        }
        for (server, here) in self.servers_for(gpus) {
            for victim in self.victims(server, each.times(here)) {
                self.cut_back(victim);
            }
        }
        self.put(id, gpus, each, ideal);
    }

    /// Returns the proportional share for a job whose ideal share exceeds it in any resource; else the ideal share.
    fn capped_share(&self, ideal: Share) -> Share {
        if self.fair.covers(ideal) { ideal } else { self.fair }
    }

    /// Returns servers for this many GPUs: if more than one, the first server that has them all; else the fullest first.
    fn servers_for(&self, gpus: u32) -> Vec<(usize, u32)> {
        let free = |i: usize| self.servers[i].slots.count();
        if gpus > 1
            && let Some(one) = (0..self.servers.len()).find(|i| free(*i) >= gpus)
        {
            return vec![(one, gpus)];
        }
        let mut order: Vec<usize> = (0..self.servers.len()).filter(|i| free(*i) > 0).collect();
        order.sort_by_key(|i| (free(*i), *i));
        let mut missing = gpus;
        let mut chosen = Vec::new();
        for i in order {
            if missing == 0 {
                break;
            }
            let here = free(i).min(missing);
            chosen.push((i, here));
            missing -= here;
        }
        chosen
    }

    /// Returns the jobs to cut back on a server: those on the fewest servers with the largest shares first, until what
    /// exceeds their proportional shares covers what is missing. Jobs that exceed nothing are included.
    fn victims(&mut self, server: usize, needed: Share) -> Vec<JobKey> {
        let mut missing = needed.minus(self.servers[server].left);
        if missing == Share::default() {
            return Vec::new();
        }
        let (jobs, fair) = (&self.jobs, self.fair);
        self.servers[server].jobs.sort_by_key(|id| {
            let job = &jobs[id];
            let (cpu, memory) = (job.each.cpu_milli, job.each.memory_mib);
            (job.parts.len(), std::cmp::Reverse((cpu, memory)))
        });
        let mut victims = Vec::new();
        for id in &self.servers[server].jobs {
            let job = &jobs[id];
            let gpus: u32 = job
                .parts
                .iter()
                .filter(|p| p.0 == server)
                .map(|p| p.2.count())
                .sum();
            victims.push(*id);
            missing = missing.minus(job.each.minus(fair).times(gpus));
            if missing == Share::default() {
                break;
            }
        }
        victims
    }

    /// Reduces a placed job to its proportional share, on the same GPUs.
    fn cut_back(&mut self, id: JobKey) {
        let each = self.capped_share(self.jobs[&id].ideal);
        let job = self.jobs.get_mut(&id).expect("a victim was placed in this round");
        for (i, _, slots) in &job.parts {
            let (before, after) = (job.each.times(slots.count()), each.times(slots.count()));
            self.servers[*i].left = self.servers[*i].left.plus(before).minus(after);
        }
        job.each = each;
    }
}
