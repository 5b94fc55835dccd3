//! The invariants, checked from scratch. On after every step in tests and with `--check`.

use std::collections::BTreeMap;

use dovetail_model::{Allocation, GpuSet, JobId, NodeId, NodeShare, Share, Terms};

use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::job::{Job, Live, Stage};
use crate::state::{Seat, State};

impl Engine {
    /// Whether everything the engine promises holds right now.
    ///
    /// # Errors
    /// A sentence for the first promise that is broken.
    pub fn check(&self) -> Result<(), String> {
        self.state.check_jobs()?;
        self.state.check_gpus(self.policy.grouping.terms())?;
        self.state.check_lines()?;
        let mut holders = self.state.jobs().filter(|j| j.allocation.is_some());
        self.policy.tenancy.check(&mut holders)
    }
}

impl State {
    /// Rebuilds all that is derived from jobs and nodes.
    pub(crate) fn rebuild(&mut self, tenancy: &dyn crate::parts::Tenancy) {
        self.cluster.reindex();
        for entry in self.jobs.values().flatten() {
            if let Some(allocation) = &entry.job.allocation {
                self.occupants.come(entry.job.spec.id, allocation);
            }
        }
        for entry in self.jobs.values_mut().flatten() {
            let (id, line) = (entry.job.spec.id, entry.job.line);
            match entry.seat {
                Seat::None => continue,
                Seat::Waiting => {
                    let key = tenancy.shape_key(&entry.job.spec);
                    entry.job.shape = self.shapes.id(crate::shape::Shape::of(&entry.job.spec, key));
                    self.waiting.insert(entry.job.shape, &line, id);
                }
                Seat::Holding => self.holding.insert((), &line, id),
            }
            if let Some(until) = line.until {
                self.expiries.insert((until, id));
            }
        }
    }

    fn check_jobs(&self) -> Result<(), String> {
        let (mut idle, mut holding) = (0, 0);
        for job in self.jobs() {
            let id = job.spec.id;
            match &job.allocation {
                None => idle += 1,
                Some(a) => {
                    holding += 1;
                    let (least, most) = (
                        job.spec.min_gpus.min(job.spec.gpus),
                        job.spec.max_gpus.max(job.spec.gpus),
                    );
                    if !(least..=most).contains(&a.gpus()) {
                        return Err(format!(
                            "gang of job {id} is not whole: {} of {} GPUs",
                            a.gpus(),
                            job.spec.gpus
                        ));
                    }
                    if job.stage != Stage::Active {
                        return Err(format!("job {id} holds GPUs but was not let in"));
                    }
                    if !job.is_up() && !self.pending.contains(&id) {
                        return Err(format!("job {id} was placed but nobody will launch it"));
                    }
                }
            }
            if job.is_up() && job.allocation.is_none() {
                return Err(format!("job {id} runs on GPUs it was not given"));
            }
        }
        if (idle, holding) != (self.idle_jobs, self.holding_jobs) {
            return Err(format!(
                "{idle} jobs idle and {holding} holding, but the books say {} and {}",
                self.idle_jobs, self.holding_jobs
            ));
        }
        Ok(())
    }

    fn check_gpus(&self, terms: Terms) -> Result<(), String> {
        let mut meant = Tally::default();
        let mut really = Tally::default();
        let mut wishes: BTreeMap<NodeId, Share> = BTreeMap::new();
        for job in self.jobs() {
            let bundle = job.spec.gpus_per_task;
            if job
                .allocation
                .as_ref()
                .is_some_and(|a| !a.is_in_bundles_of(bundle))
            {
                return Err(format!(
                    "job {} has a bundle of {bundle} GPUs on two nodes",
                    job.spec.id
                ));
            }
            for part in job.allocation.iter().flat_map(|a| &a.shares) {
                match self.cluster.node(part.node) {
                    None => return Err(format!("job {} is on no node", job.spec.id)),
                    Some(node) if !node.up => {
                        return Err(format!(
                            "job {} is on node {} that is down",
                            job.spec.id, part.node
                        ));
                    }
                    Some(node) => {
                        meant.add(job, part);
                        let wish = node.wish_here(part.gpus.count(), job.spec.wish());
                        let all = wishes.entry(part.node).or_default();
                        *all = all.plus(wish);
                    }
                }
            }
            let there = match (&job.live, &job.allocation) {
                (Live::Launched | Live::Running, Some(a)) => Some(a),
                (Live::Stopping(a), _) => Some(a),
                _ => None,
            };
            for part in there.iter().flat_map(|a| &a.shares) {
                if self.cluster.node(part.node).is_some_and(|n| n.up) {
                    really.add(job, part);
                }
            }
        }
        meant.check(&self.cluster, terms, "are meant to be on")?;
        really.check(&self.cluster, terms, "are on")?;
        for (id, node) in self.cluster.nodes() {
            let mut expected = GpuSet::full(node.spec.gpus);
            let (mut cpu, mut memory) = (0, 0);
            if wishes.get(&id).copied().unwrap_or_default() != node.wished {
                return Err(format!("node {id} has lost count of what its jobs could use"));
            }
            for part in meant.parts.get(&id).into_iter().flatten() {
                expected.remove(&part.gpus);
                (cpu, memory) = (cpu + part.cpu_milli, memory + part.memory_mib);
            }
            if let Some(withheld) = &node.withheld.gpus {
                if !expected.covers(withheld) {
                    return Err(format!("node {id} withholds a GPU that somebody holds"));
                }
                expected.remove(withheld);
            }
            cpu += node.withheld.beside.cpu_milli;
            memory += node.withheld.beside.memory_mib;
            if node.free != expected || node.free_gpus != expected.count() {
                return Err(format!("node {id} has lost count of its free GPUs"));
            }
            self.check_granted(id)?;
            if (node.free_cpu_milli + cpu, node.free_memory_mib + memory)
                != (node.spec.cpu_milli, node.spec.memory_mib)
            {
                return Err(format!("node {id} has lost count of its CPU or memory"));
            }
            for slot in (0..node.spec.gpus).filter(|slot| !node.is_withheld(*slot)) {
                let here = meant.on(id, slot);
                let filled: u64 = here.iter().map(|job| job.spec.gpu_memory_mib).sum();
                if node.holders(slot) as usize != here.len() {
                    return Err(format!("node {id} has lost count of who is on GPU {slot}"));
                }
                if node.spec.gpu_memory_mib > 0 && node.filled_mib(slot) != filled {
                    return Err(format!("node {id} has lost count of the memory of GPU {slot}"));
                }
            }
        }
        Ok(())
    }

    /// Nobody has less than he was promised, and all together no more than there is, with what lingers.
    fn check_granted(&self, id: NodeId) -> Result<(), String> {
        if !self.fills || self.touched.contains(id) {
            return Ok(());
        }
        let Some(node) = self.cluster.node(id).filter(|n| n.up) else {
            return Ok(());
        };
        let mut beyond = Share::default();
        for job in self.occupants.on_node(id) {
            let job = self.known(job);
            let on = |a: Option<&Allocation>| {
                let part = a?.shares.iter().find(|s| s.node == id)?;
                Some((part.gpus.clone(), Share::new(part.cpu_milli, part.memory_mib)))
            };
            let (Some(promised), Some(has)) = (on(job.allocation.as_ref()), on(job.holds())) else {
                return Err(format!(
                    "job {} is on node {id} without a share of it",
                    job.spec.id
                ));
            };
            if promised.0 != has.0 || !has.1.covers(promised.1) {
                return Err(format!(
                    "job {} has less than it was promised on node {id}",
                    job.spec.id
                ));
            }
            beyond = beyond.plus(has.1.minus(promised.1));
        }
        if beyond == Share::default() || node.left().covers(beyond) {
            Ok(())
        } else {
            Err(format!(
                "node {id} has granted more CPU or memory than it has left"
            ))
        }
    }

    fn check_lines(&self) -> Result<(), String> {
        let (mut waiting, mut holding) = (0, 0);
        for entry in self.jobs.values().flatten() {
            let id = entry.job.spec.id;
            let there = match entry.seat {
                Seat::None => {
                    let missing = entry.job.is_waiting() && !entry.stale;
                    if missing {
                        return Err(format!("job {id} waits but does not stand in line"));
                    }
                    continue;
                }
                Seat::Waiting => {
                    waiting += 1;
                    self.waiting.contains(entry.job.shape, &entry.job.line, id)
                }
                Seat::Holding => {
                    holding += 1;
                    self.holding.contains((), &entry.job.line, id)
                }
            };
            if !there {
                return Err(format!("job {id} is not where its line says"));
            }
        }
        if (waiting, holding) != (self.waiting.len(), self.holding.len()) {
            return Err("someone stands in line who is not in the table".to_owned());
        }
        Ok(())
    }
}

/// Who is where, counted from scratch.
#[derive(Default)]
struct Tally<'a> {
    slots: BTreeMap<(NodeId, u32), Vec<&'a Job>>,
    parts: BTreeMap<NodeId, Vec<&'a NodeShare>>,
    sets: BTreeMap<(NodeId, JobId), &'a GpuSet>,
}

impl<'a> Tally<'a> {
    fn add(&mut self, job: &'a Job, part: &'a NodeShare) {
        for slot in part.gpus.iter() {
            self.slots.entry((part.node, slot)).or_default().push(job);
        }
        self.parts.entry(part.node).or_default().push(part);
        self.sets.insert((part.node, job.spec.id), &part.gpus);
    }

    fn on(&self, node: NodeId, slot: u32) -> &[&'a Job] {
        self.slots.get(&(node, slot)).map_or(&[], |jobs| jobs)
    }

    /// No GPU has more jobs than the terms allow, nor more memory filled than it has; who shares shares all GPUs unless
    /// the terms let them overlap.
    fn check(&self, cluster: &Cluster, terms: Terms, how: &str) -> Result<(), String> {
        for ((node, slot), jobs) in &self.slots {
            let ids = || {
                let ids: Vec<String> = jobs.iter().map(|job| job.spec.id.to_string()).collect();
                ids.join(", ")
            };
            if jobs.len() > terms.most as usize {
                return Err(format!(
                    "jobs {} {how} GPU {slot} of node {node} at once, {} may be",
                    ids(),
                    terms.most
                ));
            }
            let set = |job: &&Job| self.sets.get(&(*node, job.spec.id));
            if !terms.overlap && jobs.iter().any(|job| set(job) != set(&jobs[0])) {
                return Err(format!(
                    "jobs {} {how} GPU {slot} of node {node}, but not all on the same GPUs",
                    ids()
                ));
            }
            let has = cluster.node(*node).map_or(0, |n| n.spec.gpu_memory_mib);
            let filled: u64 = jobs.iter().map(|job| job.spec.gpu_memory_mib).sum();
            if has > 0 && filled > has {
                return Err(format!(
                    "jobs {} {how} GPU {slot} of node {node} and fill {filled} MiB of its {has}",
                    ids()
                ));
            }
        }
        Ok(())
    }
}
