//! What really runs on the nodes, independent of the engine. Its own accounting detects a GPU allocated twice even if the
//! check of the engine misses it.

use std::collections::BTreeMap;

use dovetail_model::{
    Allocation, AttemptKey, ClusterSpec, JobKey, NodeId, Outcome, Rate, SharingTerms, Time, Work,
};
use dovetail_workload::TraceJob;

use crate::scenario::Scenario;

/// A job that holds GPUs.
#[derive(Debug, Clone)]
struct Process {
    attempt: AttemptKey,
    allocation: Allocation,
    /// Since when it makes progress; none while it starts, and after one of its nodes was lost.
    since: Option<Time>,
    rate: Rate,
    broken: bool,
}

/// The true state of a job.
#[derive(Debug, Clone)]
struct TrueJob {
    work: Work,
    left: Work,
    gpu_memory_mib: u64,
    /// Attempts up to this one were launched or cancelled before.
    last_attempt: AttemptKey,
    process: Option<Process>,
    ended: Option<(AttemptKey, Outcome)>,
}

/// What a stop command finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopTarget {
    /// The job holds GPUs and will stop.
    Running,
    /// The job has ended by itself.
    Ended(Outcome),
    /// The job was never launched, or has stopped.
    Missing,
}

/// The nodes and the jobs on them.
#[derive(Debug, Clone)]
pub(crate) struct FakeNodes {
    cluster: ClusterSpec,
    up: Vec<bool>,
    /// The terms on which the policy lets jobs share GPUs.
    terms: SharingTerms,
    jobs: Vec<TrueJob>,
    /// Whether commands arrive in order. If not, a node may get the command for more CPU of one job before the command for less
    /// CPU of another.
    in_order: bool,
}

impl FakeNodes {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let truth = |job: &TraceJob| TrueJob {
            work: job.work,
            left: job.work,
            gpu_memory_mib: job.gpu_memory_mib,
            last_attempt: AttemptKey(0),
            process: None,
            ended: None,
        };
        Self {
            cluster: scenario.cluster.clone(),
            up: vec![true; scenario.cluster.nodes.len()],
            terms: scenario.policy.build().0.grouping.terms(),
            jobs: scenario.jobs.iter().map(|j| truth(&j.job)).collect(),
            in_order: scenario.behaviour.chaos.is_none() || !scenario.policy.sizes_by_need(),
        }
    }

    /// Changes the CPU and memory of a job that holds GPUs.
    pub(crate) fn resize(&mut self, job: JobKey, attempt: AttemptKey, allocation: &Allocation) {
        let process = self.jobs[job.0 as usize].process.as_mut();
        if let Some(process) = process.filter(|p| p.attempt == attempt) {
            process.allocation = allocation.clone();
            self.check(job);
        }
    }

    /// Launches a job. Returns false if the attempt is outdated, or one of its nodes is down.
    pub(crate) fn launch(&mut self, job: JobKey, attempt: AttemptKey, allocation: &Allocation) -> bool {
        let truth = &mut self.jobs[job.0 as usize];
        if attempt <= truth.last_attempt {
            return false;
        }
        assert!(truth.ended.is_none(), "job {job} is launched after its end");
        assert!(truth.process.is_none(), "job {job} is launched twice");
        truth.last_attempt = attempt;
        if allocation.shares.iter().any(|s| !self.up[s.node.0 as usize]) {
            return false;
        }
        truth.process = Some(Process {
            attempt,
            allocation: allocation.clone(),
            since: None,
            rate: Rate::FULL,
            broken: false,
        });
        self.check(job);
        true
    }

    /// Lets a job make progress from now on. Returns when it will end if nothing stops it.
    pub(crate) fn begin(&mut self, job: JobKey, attempt: AttemptKey, rate: Rate, now: Time) -> Option<Time> {
        let left = self.jobs[job.0 as usize].left;
        let process = self.process(job, attempt).filter(|p| !p.broken)?;
        (process.since, process.rate) = (Some(now), rate);
        Some(now.saturating_add(rate.time_for(left)))
    }

    /// Ends a job. Returns false if it has stopped before.
    pub(crate) fn end(&mut self, job: JobKey, attempt: AttemptKey, outcome: Outcome, now: Time) -> bool {
        if self
            .process(job, attempt)
            .is_none_or(|p| p.broken || p.since.is_none())
        {
            return false;
        }
        self.record_progress(job, now);
        let truth = &mut self.jobs[job.0 as usize];
        let is_complete = truth.left == Work(0) || outcome == Outcome::Failed;
        assert!(is_complete, "job {job} ends with {:?} left", truth.left);
        truth.process = None;
        truth.ended = Some((attempt, outcome));
        true
    }

    /// Returns what a stop command finds. If it finds nothing, the attempt will not be launched any more.
    pub(crate) fn stop_target(&mut self, job: JobKey, attempt: AttemptKey) -> StopTarget {
        if self.process(job, attempt).is_some() {
            return StopTarget::Running;
        }
        let truth = &mut self.jobs[job.0 as usize];
        truth.last_attempt = truth.last_attempt.max(attempt);
        match truth.ended {
            Some((ended, outcome)) if ended == attempt => StopTarget::Ended(outcome),
            _ => StopTarget::Missing,
        }
    }

    /// Stops a job. Returns false if it held no GPUs any more.
    pub(crate) fn halt(&mut self, job: JobKey, attempt: AttemptKey, now: Time) -> bool {
        if self.process(job, attempt).is_none() {
            return false;
        }
        self.record_progress(job, now);
        self.jobs[job.0 as usize].process = None;
        true
    }

    /// Loses a node and what was on it. The rest of a gang keeps its GPUs and makes no progress.
    pub(crate) fn node_down(&mut self, node: NodeId, now: Time) {
        self.up[node.0 as usize] = false;
        for i in 0..self.jobs.len() {
            let is_hit = self.jobs[i]
                .process
                .as_ref()
                .is_some_and(|p| p.allocation.touches(node));
            if is_hit {
                self.record_progress(JobKey(i as u32), now);
                let process = self.jobs[i].process.as_mut().expect("the job holds GPUs");
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

    /// Returns the attempt that makes progress now, and its speed.
    pub(crate) fn running(&self, job: JobKey) -> Option<(AttemptKey, Rate)> {
        let process = self.jobs[job.0 as usize].process.as_ref();
        process.filter(|p| p.since.is_some()).map(|p| (p.attempt, p.rate))
    }

    /// Returns how the job ended, if it ended by itself.
    pub(crate) fn outcome(&self, job: JobKey) -> Option<Outcome> {
        self.jobs[job.0 as usize].ended.map(|(_, outcome)| outcome)
    }

    /// Returns the work done so far.
    pub(crate) fn done(&self, job: JobKey, now: Time) -> Work {
        let truth = &self.jobs[job.0 as usize];
        let running = truth
            .process
            .as_ref()
            .and_then(|p| Some(p.rate.work_in(now.since(p.since?))));
        Work((truth.work.minus(truth.left).0 + running.map_or(0, |w| w.0)).min(truth.work.0))
    }

    fn process(&mut self, job: JobKey, attempt: AttemptKey) -> Option<&mut Process> {
        let process = self.jobs[job.0 as usize].process.as_mut();
        process.filter(|p| p.attempt == attempt)
    }

    /// Records the progress up to now.
    fn record_progress(&mut self, job: JobKey, now: Time) {
        let done = self.done(job, now);
        let truth = &mut self.jobs[job.0 as usize];
        truth.left = truth.work.minus(done);
        if let Some(process) = &mut truth.process {
            process.since = process.since.map(|_| now);
        }
    }

    /// Whether two jobs may be on one GPU: unless they may overlap, they must have the same GPUs.
    fn may_share(&self, one: usize, two: usize) -> bool {
        let shares = |job: usize| self.jobs[job].process.iter().flat_map(|p| &p.allocation.shares);
        let gpus = |job: usize| shares(job).map(|s| (s.node, &s.gpus));
        self.terms.max_jobs > 1 && (self.terms.overlap || gpus(one).eq(gpus(two)))
    }

    /// Checks that no GPU is used beyond the terms of the policy, and that no CPU, memory or GPU memory is exceeded.
    fn check(&self, changed: JobKey) {
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
                    if let Some(other) = other.filter(|other| !self.may_share(*other, i)) {
                        panic!(
                            "after a change of job {changed}, jobs {other} and {i} are both on {}:{slot}",
                            share.node
                        );
                    }
                }
                let sum = sums.entry(share.node).or_default();
                *sum = (sum.0 + share.cpu_milli, sum.1 + share.memory_mib);
            }
        }
        for ((node, slot), (jobs, used)) in loads {
            let total = self.cluster.nodes[node].gpu_memory_mib;
            assert!(jobs <= self.terms.max_jobs, "{jobs} jobs are on {node}:{slot}");
            assert!(
                total == 0 || used <= total,
                "{used} MiB are used on {node}:{slot}, which has {total} MiB"
            );
        }
        for (node, (cpu, memory)) in sums {
            let spec = &self.cluster.nodes[node];
            assert!(
                !self.in_order || cpu <= spec.cpu_milli && memory <= spec.memory_mib,
                "after a change of job {changed}, the jobs on node {node} exceed its CPU or memory"
            );
        }
    }
}
