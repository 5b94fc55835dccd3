//! What is really on the nodes, whatever the engine believes. It keeps books of its own, so that a GPU given twice is
//! seen here even if the engine's own check were blind to it.

use std::collections::BTreeMap;

use dovetail_model::{Allocation, ClusterSpec, Generation, JobId, NodeId, Outcome, Rate, Terms, Time, Work};
use dovetail_workload::TraceJob;

use crate::scenario::Scenario;

/// A job that is there, on GPUs.
#[derive(Debug, Clone)]
struct Process {
    generation: Generation,
    allocation: Allocation,
    /// Since when it makes progress; none while it starts, and after a node was lost under it.
    since: Option<Time>,
    rate: Rate,
    broken: bool,
}

#[derive(Debug, Clone)]
struct Truth {
    work: Work,
    left: Work,
    gpu_memory_mib: u64,
    /// Launches up to this one were seen; they do not come back.
    seen: Generation,
    process: Option<Process>,
    ended: Option<(Generation, Outcome)>,
}

/// What an order to stop finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is there and will stop.
    Running,
    /// It has ended by itself before.
    Ended(Outcome),
    /// It was never there, or is gone.
    Nothing,
}

/// The nodes and who is on them.
#[derive(Debug, Clone)]
pub(crate) struct Reality {
    cluster: ClusterSpec,
    up: Vec<bool>,
    /// The terms on which the policy lets jobs share GPUs.
    terms: Terms,
    jobs: Vec<Truth>,
    /// Orders come as they were given. Where they do not, a node may be told of more CPU for one job before it is told of
    /// less for another.
    in_order: bool,
}

impl Reality {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let truth = |job: &TraceJob| Truth {
            work: job.work,
            left: job.work,
            gpu_memory_mib: job.gpu_memory_mib,
            seen: Generation(0),
            process: None,
            ended: None,
        };
        Self {
            cluster: scenario.cluster.clone(),
            up: vec![true; scenario.cluster.nodes.len()],
            terms: scenario.policy.build().0.grouping.terms(),
            jobs: scenario.jobs.iter().map(|j| truth(&j.job)).collect(),
            in_order: scenario.manner.chaos.is_none() || !scenario.policy.sizes_by_need(),
        }
    }

    /// Gives a job that is there other CPU and memory beside its GPUs.
    pub(crate) fn resize(&mut self, job: JobId, generation: Generation, allocation: &Allocation) {
        let process = self.jobs[job.0 as usize].process.as_mut();
        if let Some(process) = process.filter(|p| p.generation == generation) {
            process.allocation = allocation.clone();
            self.check(job);
        }
    }

    /// Puts a job on its GPUs; false if that launch is old news, or a node of it is gone.
    pub(crate) fn launch(&mut self, job: JobId, generation: Generation, allocation: &Allocation) -> bool {
        let truth = &mut self.jobs[job.0 as usize];
        if generation <= truth.seen {
            return false;
        }
        assert!(truth.ended.is_none(), "job {job} is launched after its end");
        assert!(truth.process.is_none(), "job {job} is launched twice");
        truth.seen = generation;
        if allocation.shares.iter().any(|s| !self.up[s.node.0 as usize]) {
            return false;
        }
        truth.process = Some(Process {
            generation,
            allocation: allocation.clone(),
            since: None,
            rate: Rate::FULL,
            broken: false,
        });
        self.check(job);
        true
    }

    /// The job makes progress from now on; returns when it will be done if nothing stops it.
    pub(crate) fn begin(
        &mut self,
        job: JobId,
        generation: Generation,
        rate: Rate,
        now: Time,
    ) -> Option<Time> {
        let left = self.jobs[job.0 as usize].left;
        let process = self.process(job, generation).filter(|p| !p.broken)?;
        (process.since, process.rate) = (Some(now), rate);
        Some(now.saturating_add(rate.time_for(left)))
    }

    /// The job is done, unless it stopped before; false if so.
    pub(crate) fn end(&mut self, job: JobId, generation: Generation, outcome: Outcome, now: Time) -> bool {
        if self
            .process(job, generation)
            .is_none_or(|p| p.broken || p.since.is_none())
        {
            return false;
        }
        self.count(job, now);
        let truth = &mut self.jobs[job.0 as usize];
        let all = truth.left == Work(0) || outcome == Outcome::Failed;
        assert!(all, "job {job} ends with {:?} left", truth.left);
        truth.process = None;
        truth.ended = Some((generation, outcome));
        true
    }

    /// What an order to stop finds. One that finds nothing is remembered: that launch will not happen any more.
    pub(crate) fn find(&mut self, job: JobId, generation: Generation) -> Found {
        if self.process(job, generation).is_some() {
            return Found::Running;
        }
        let truth = &mut self.jobs[job.0 as usize];
        truth.seen = truth.seen.max(generation);
        match truth.ended {
            Some((ended, outcome)) if ended == generation => Found::Ended(outcome),
            _ => Found::Nothing,
        }
    }

    /// The job leaves its GPUs; false if it was not there any more.
    pub(crate) fn halt(&mut self, job: JobId, generation: Generation, now: Time) -> bool {
        if self.process(job, generation).is_none() {
            return false;
        }
        self.count(job, now);
        self.jobs[job.0 as usize].process = None;
        true
    }

    /// A node is gone, with what was on it. The rest of a gang stays where it is and does nothing.
    pub(crate) fn node_down(&mut self, node: NodeId, now: Time) {
        self.up[node.0 as usize] = false;
        for i in 0..self.jobs.len() {
            let hit = self.jobs[i]
                .process
                .as_ref()
                .is_some_and(|p| p.allocation.touches(node));
            if hit {
                self.count(JobId(i as u32), now);
                let process = self.jobs[i].process.as_mut().expect("looked at above");
                (process.broken, process.since) = (true, None);
                process.allocation.shares.retain(|s| s.node != node);
            }
        }
    }

    pub(crate) fn node_up(&mut self, node: NodeId) {
        self.up[node.0 as usize] = true;
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.up[node.0 as usize]
    }

    /// The launch that makes progress now, and how fast.
    pub(crate) fn running(&self, job: JobId) -> Option<(Generation, Rate)> {
        let process = self.jobs[job.0 as usize].process.as_ref();
        process
            .filter(|p| p.since.is_some())
            .map(|p| (p.generation, p.rate))
    }

    /// Whether the job came to its end by itself.
    pub(crate) fn has_ended(&self, job: JobId) -> Option<Outcome> {
        self.jobs[job.0 as usize].ended.map(|(_, outcome)| outcome)
    }

    /// Work done so far.
    pub(crate) fn done(&self, job: JobId, now: Time) -> Work {
        let truth = &self.jobs[job.0 as usize];
        let running = truth
            .process
            .as_ref()
            .and_then(|p| Some(p.rate.work_in(now.since(p.since?))));
        Work((truth.work.minus(truth.left).0 + running.map_or(0, |w| w.0)).min(truth.work.0))
    }

    fn process(&mut self, job: JobId, generation: Generation) -> Option<&mut Process> {
        let process = self.jobs[job.0 as usize].process.as_mut();
        process.filter(|p| p.generation == generation)
    }

    /// Counts the progress up to now.
    fn count(&mut self, job: JobId, now: Time) {
        let done = self.done(job, now);
        let truth = &mut self.jobs[job.0 as usize];
        truth.left = truth.work.minus(done);
        if let Some(process) = &mut truth.process {
            process.since = process.since.map(|_| now);
        }
    }

    /// Whether two jobs may be on one GPU: as a group they are on the same GPUs, all of them.
    fn share(&self, one: usize, two: usize) -> bool {
        let shares = |job: usize| self.jobs[job].process.iter().flat_map(|p| &p.allocation.shares);
        let gpus = |job: usize| shares(job).map(|s| (s.node, &s.gpus));
        self.terms.most > 1 && (self.terms.overlap || gpus(one).eq(gpus(two)))
    }

    /// No GPU is used twice, but on the terms of the policy, and no node is out of CPU or memory, nor a GPU of its own.
    fn check(&self, newest: JobId) {
        let mut users: BTreeMap<(NodeId, u32), usize> = BTreeMap::new();
        let mut loads: BTreeMap<(NodeId, u32), (u32, u64)> = BTreeMap::new();
        let mut sums: BTreeMap<NodeId, (u32, u64)> = BTreeMap::new();
        for (i, truth) in self.jobs.iter().enumerate() {
            for share in truth.process.iter().flat_map(|p| &p.allocation.shares) {
                for slot in share.gpus.iter() {
                    assert!(
                        slot < self.cluster.nodes[share.node].gpus,
                        "node {} has no GPU {slot}",
                        share.node
                    );
                    let load = loads.entry((share.node, slot)).or_default();
                    *load = (load.0 + 1, load.1 + truth.gpu_memory_mib);
                    let other = users.insert((share.node, slot), i);
                    if let Some(other) = other.filter(|other| !self.share(*other, i)) {
                        panic!(
                            "job {newest} comes, and jobs {other} and {i} are both on {}:{slot}",
                            share.node
                        );
                    }
                }
                let sum = sums.entry(share.node).or_default();
                *sum = (sum.0 + share.cpu_milli, sum.1 + share.memory_mib);
            }
        }
        for ((node, slot), (jobs, filled)) in loads {
            let has = self.cluster.nodes[node].gpu_memory_mib;
            assert!(jobs <= self.terms.most, "{jobs} jobs are on {node}:{slot}");
            assert!(
                has == 0 || filled <= has,
                "{filled} MiB are filled on {node}:{slot}, which has {has}"
            );
        }
        for (node, (cpu, memory)) in sums {
            let spec = &self.cluster.nodes[node];
            assert!(
                !self.in_order || cpu <= spec.cpu_milli && memory <= spec.memory_mib,
                "job {newest} comes, and node {node} has too little CPU or memory for all that is on it"
            );
        }
    }
}
