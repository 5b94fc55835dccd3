//! The walk of Synergy's simulator: every round the cluster is emptied and filled again in order. GPUs are taken by their
//! number, whatever node they are on, with CPU and memory in proportion (`fair`), as the job would like (`greedy`), or as
//! it would like and else in proportion, if need be at the cost of jobs placed before it in the round (`tune`).

use std::collections::BTreeMap;

use dovetail_engine::{Cluster, Discipline, Part, Round};
use dovetail_model::{Allocation, JobId, NodeId, NodeShare, Share, Time};
use serde_json::Value;

use super::{keep_in_step, load_jobs, save_jobs};

/// How CPU and memory are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SynergyMode {
    /// In proportion to GPUs.
    Fair,
    /// As the job would like, or not at all.
    Greedy,
    /// As the job would like, else in proportion.
    Tune,
}

/// Synergy's walk.
#[derive(Debug, Clone)]
pub struct Synergy {
    mode: SynergyMode,
    /// Only jobs whose GPUs fit one after the other are looked at, under `tune` the widest first: its LAS.
    prefix: bool,
    /// What each job would like beside each GPU.
    wishes: Vec<Share>,
    round: Time,
    line: Vec<JobId>,
}

impl Synergy {
    /// The walk for jobs with these wishes, every so often.
    pub fn new(mode: SynergyMode, prefix: bool, wishes: Vec<Share>, round: Time) -> Self {
        Self {
            mode,
            prefix,
            wishes,
            round,
            line: Vec::new(),
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

    fn save(&self) -> Value {
        save_jobs(&self.line)
    }

    fn load(&mut self, saved: &Value) -> Result<(), String> {
        self.line = load_jobs(saved).ok_or("synergy: not a list of jobs")?;
        Ok(())
    }
}

impl Discipline for Synergy {
    fn walk(&mut self, round: &mut Round<'_>) {
        self.sort(round);
        round.clear();
        let mut floor = Floor::new(round.cluster());
        let mut line = self.line.clone();
        if self.prefix {
            let mut left = floor.free_gpus();
            line.retain(|id| {
                let gpus = round.job(*id).spec.gpus;
                let fits = gpus <= left;
                left -= if fits { gpus } else { 0 };
                fits
            });
            if self.mode == SynergyMode::Tune {
                line.sort_by_key(|id| std::cmp::Reverse(round.job(*id).spec.gpus));
            }
        }
        for id in line {
            let gpus = round.job(id).spec.gpus;
            if gpus <= floor.free_gpus() {
                let wish = self.wishes[id.0 as usize];
                match self.mode {
                    SynergyMode::Fair => drop(floor.put(id, gpus, floor.fair, wish)),
                    SynergyMode::Greedy => drop(floor.put(id, gpus, wish, wish)),
                    SynergyMode::Tune => floor.tune(id, gpus, wish),
                }
            }
        }
        for (id, placed) in floor.jobs {
            round.put_on(id, placed.allocation(), false);
        }
        let next = round.now() + self.round;
        round.wake_at(next);
    }

    fn looks_at_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}

impl Synergy {
    /// By key, then by submission; what is equal in both stays in the order of the round before.
    fn sort(&mut self, round: &Round<'_>) {
        let ranks: BTreeMap<JobId, (i32, i128, Time)> = round
            .everyone()
            .into_iter()
            .map(|r| (r.job, (r.band, r.value, round.job(r.job).spec.submit)))
            .collect();
        keep_in_step(&mut self.line, ranks.keys().copied());
        self.line.sort_by_key(|id| ranks[id]);
    }
}

/// What is left of a server in this round.
#[derive(Debug)]
struct Server {
    id: NodeId,
    slots: dovetail_model::GpuSet,
    left: Share,
    /// Jobs placed on it, by position of their coming; sorted whenever someone has to give way.
    jobs: Vec<JobId>,
}

/// A job placed in this round: the same share beside each of its GPUs.
#[derive(Debug)]
struct Placed {
    parts: Vec<(usize, NodeId, dovetail_model::GpuSet)>,
    each: Share,
    wish: Share,
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
struct Floor {
    fair: Share,
    servers: Vec<Server>,
    jobs: BTreeMap<JobId, Placed>,
}

impl Floor {
    fn new(cluster: &Cluster) -> Self {
        let open = cluster.nodes().filter(|(_, n)| n.is_open());
        let server = |(id, node): (NodeId, &dovetail_engine::NodeState)| Server {
            id,
            slots: node.free.clone(),
            left: node.left(),
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

    /// GPUs by number, each where this share is left; false where there are not enough.
    fn put(&mut self, id: JobId, gpus: u32, each: Share, wish: Share) -> bool {
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
        self.jobs.insert(id, Placed { parts, each, wish });
        true
    }

    /// As it would like; else in proportion where it would like more; else after others gave way.
    fn tune(&mut self, id: JobId, gpus: u32, wish: Share) {
        if self.put(id, gpus, wish, wish) {
            return;
        }
        let each = self.modest(wish);
        if self.put(id, gpus, each, wish) {
            return;
        }
        for (server, here) in self.servers_for(gpus) {
            for victim in self.victims(server, each.times(here)) {
                self.cut_back(victim);
            }
        }
        self.put(id, gpus, each, wish);
    }

    /// The proportional share of a job that would like more of anything; else what it would like.
    fn modest(&self, wish: Share) -> Share {
        if self.fair.covers(wish) { wish } else { self.fair }
    }

    /// Servers for so many GPUs: the first that has them all, if they are several; else the fullest first.
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

    /// Who gives way on a server: who spans fewest servers and has most, until what is above their proportional shares
    /// makes up for what is missing. Those that have nothing to give are taken along.
    fn victims(&mut self, server: usize, needed: Share) -> Vec<JobId> {
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

    /// Gives a placed job its proportional share if it would like more, on the same GPUs.
    fn cut_back(&mut self, id: JobId) {
        let each = self.modest(self.jobs[&id].wish);
        let job = self.jobs.get_mut(&id).expect("a victim was placed in this round");
        for (i, _, slots) in &job.parts {
            let (before, after) = (job.each.times(slots.count()), each.times(slots.count()));
            self.servers[*i].left = self.servers[*i].left.plus(before).minus(after);
        }
        job.each = each;
    }
}
