//! The invariants, checked from scratch. On after every step in tests and with `--check`.

use std::collections::BTreeMap;

use dovetail_model::{GpuSet, NodeId};

use crate::engine::Engine;
use crate::job::{Live, Stage};
use crate::state::{Seat, State};

impl Engine {
    /// Whether everything the engine promises holds right now.
    ///
    /// # Errors
    /// A sentence for the first promise that is broken.
    pub fn check(&self) -> Result<(), String> {
        self.state.check_jobs()?;
        self.state.check_gpus(self.policy.grouping.name() != "none")?;
        self.state.check_lines()
    }
}

impl State {
    /// Rebuilds all that is derived from jobs and nodes.
    pub(crate) fn rebuild(&mut self, tenancy: &dyn crate::parts::Tenancy) {
        self.cluster.reindex();
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

    fn check_gpus(&self, sharing: bool) -> Result<(), String> {
        let mut held: BTreeMap<NodeId, GpuSet> = BTreeMap::new();
        let mut used: BTreeMap<NodeId, (u32, u64)> = BTreeMap::new();
        let mut really: BTreeMap<NodeId, Vec<&GpuSet>> = BTreeMap::new();
        for job in self.jobs() {
            for part in job.allocation.iter().flat_map(|a| &a.shares) {
                let node = self
                    .cluster
                    .node(part.node)
                    .ok_or(format!("job {} is on no node", job.spec.id))?;
                let set = held
                    .entry(part.node)
                    .or_insert_with(|| GpuSet::empty(node.spec.gpus));
                if !node.up {
                    return Err(format!(
                        "job {} is on node {} that is down",
                        job.spec.id, part.node
                    ));
                }
                if set.intersects(&part.gpus) && !node.has_sharers() {
                    return Err(format!("a GPU of node {} is given twice", part.node));
                }
                set.add(&part.gpus);
                let sums = used.entry(part.node).or_default();
                (sums.0, sums.1) = (sums.0 + part.cpu_milli, sums.1 + part.memory_mib);
            }
            let there = match (&job.live, &job.allocation) {
                (Live::Launched | Live::Running, Some(a)) => Some(a),
                (Live::Stopping(a), _) => Some(a),
                _ => None,
            };
            for part in there.iter().flat_map(|a| &a.shares) {
                if !self.cluster.node(part.node).is_some_and(|n| n.up) {
                    continue;
                }
                let others = really.entry(part.node).or_default();
                // Jobs of one group are on the same GPUs, all of them.
                let is_wrong =
                    |other: &&GpuSet| other.intersects(&part.gpus) && !(sharing && **other == part.gpus);
                if others.iter().any(is_wrong) {
                    return Err(format!("two jobs are on one GPU of node {} at once", part.node));
                }
                others.push(&part.gpus);
            }
        }
        for (id, node) in self.cluster.nodes() {
            let mut expected = GpuSet::full(node.spec.gpus);
            if let Some(set) = held.get(&id) {
                expected.remove(set);
            }
            if node.free != expected || node.free_gpus != expected.count() {
                return Err(format!("node {id} has lost count of its free GPUs"));
            }
            let (cpu, memory) = used.get(&id).copied().unwrap_or_default();
            if (node.free_cpu_milli + cpu, node.free_memory_mib + memory)
                != (node.spec.cpu_milli, node.spec.memory_mib)
            {
                return Err(format!("node {id} has lost count of its CPU or memory"));
            }
        }
        Ok(())
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
