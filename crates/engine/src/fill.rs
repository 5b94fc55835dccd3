//! Distributing CPU and memory that were promised to no job, node by node, among the jobs on the node.
//!
//! Placement, draft and ledger know only what jobs were promised, so what is granted beyond that never blocks another job:
//! it is withdrawn by not being granted again. Only nodes whose jobs changed are considered.

use std::collections::{BTreeMap, VecDeque};

use dovetail_model::{Allocation, Command, JobKey, NodeId, Share};

use crate::node_set::NodeSet;
use crate::parts::{NodeFilling, NodeJob};
use crate::planner::same_gpus;
use crate::state::State;

/// What each job gets on each node, for all its GPUs there together; sorted by job and node.
type Shares = Vec<(JobKey, NodeId, Share)>;

/// Distributes CPU and memory, and commands running jobs to use them.
pub(crate) struct NodeFiller<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) filling: &'a mut dyn NodeFilling,
    pub(crate) commands: &'a mut VecDeque<Command>,
}

impl NodeFiller<'_> {
    /// Computes new shares on these nodes and issues the commands.
    pub(crate) fn run(mut self, mut nodes: NodeSet) {
        let mut jobs = self.jobs_on(&nodes);
        // A job on several nodes is as fast as on the slowest of them, so all of them are considered.
        let is_wide = |id: &&JobKey| self.allocation(**id).nodes() > 1;
        let wide: Vec<JobKey> = jobs.iter().filter(is_wide).copied().collect();
        if !wide.is_empty() {
            for id in &wide {
                nodes.extend(self.allocation(*id).shares.iter().map(|s| s.node));
            }
            jobs = self.jobs_on(&nodes);
        }
        let mut shares = self.fill_nodes(&nodes, &BTreeMap::new());
        let caps: BTreeMap<JobKey, Share> = jobs
            .iter()
            .filter(|id| self.allocation(**id).nodes() > 1)
            .map(|id| (*id, self.least_on_any_node(*id, &shares)))
            .collect();
        if !caps.is_empty() {
            shares = self.fill_nodes(&nodes, &caps);
        }
        self.grant(&jobs, &shares);
    }

    /// Returns the jobs on these nodes, each once, by key.
    fn jobs_on(&self, nodes: &NodeSet) -> Vec<JobKey> {
        let jobs = nodes.iter().flat_map(|n| self.state.occupants.on_node(n));
        let mut jobs: Vec<JobKey> = jobs.collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    fn allocation(&self, id: JobKey) -> &Allocation {
        let allocation = self.state.job(id).allocation.as_ref();
        allocation.expect("a job on a node has an allocation")
    }

    /// Returns the shares of all jobs on these nodes.
    fn fill_nodes(&mut self, nodes: &NodeSet, caps: &BTreeMap<JobKey, Share>) -> Shares {
        let mut shares = Shares::new();
        for node in nodes.iter() {
            self.fill_node(node, caps, &mut shares);
        }
        shares.sort_unstable_by_key(|(job, node, _)| (*job, *node));
        shares
    }

    /// Adds the shares of the jobs on one node.
    fn fill_node(&mut self, id: NodeId, caps: &BTreeMap<JobKey, Share>, shares: &mut Shares) {
        let Some(node) = self.state.cluster.node(id).filter(|n| n.up) else {
            return;
        };
        let keys = self.state.occupants.on_node(id);
        let jobs: Vec<NodeJob<'_>> = keys
            .iter()
            .map(|key| {
                let job = self.state.job(*key);
                let mut parts = job.allocation.iter().flat_map(|a| &a.shares);
                let part = parts.find(|s| s.node == id);
                let part = part.expect("a job on a node has a share of it");
                NodeJob {
                    job,
                    gpus: part.gpus.count(),
                    promised: Share::new(part.cpu_milli, part.memory_mib),
                    cap: caps.get(key).copied(),
                }
            })
            .collect();
        let filled = self.filling.fill(node, node.unallocated(), &jobs);
        debug_assert_eq!(filled.len(), keys.len(), "every job on the node has a share");
        shares.extend(keys.into_iter().zip(filled).map(|(job, share)| (job, id, share)));
    }

    /// Returns the least that a job on several nodes has per GPU on any of them.
    fn least_on_any_node(&self, id: JobKey, shares: &Shares) -> Share {
        let held = self.state.job(id).current_allocation();
        let parts = held.into_iter().flat_map(|a| &a.shares);
        let per_gpu = parts.map(|part| {
            let now = Share::new(part.cpu_milli, part.memory_mib);
            let found = shares.binary_search_by_key(&(id, part.node), |(job, node, _)| (*job, *node));
            found.map_or(now, |i| shares[i].2).over(part.gpus.count())
        });
        per_gpu.reduce(Share::at_most).unwrap_or_default()
    }

    /// Records what each job has now and commands running jobs to use it: first those that get less of anything.
    fn grant(&mut self, jobs: &[JobKey], shares: &Shares) {
        let (mut less, mut more) = (Vec::new(), Vec::new());
        let mut rest = shares.as_slice();
        for &id in jobs {
            let own = split_off_own(&mut rest, id);
            let placed = self.allocation(id);
            let job = self.state.job(id);
            let before = job.current_allocation().expect("the job has an allocation");
            // On nodes that were not considered the job keeps what it has.
            let mut target = match same_gpus(before, placed) {
                true => before.clone(),
                false => placed.clone(),
            };
            for part in &mut target.shares {
                if let Some((.., share)) = own.iter().find(|(_, node, _)| *node == part.node) {
                    (part.cpu_milli, part.memory_mib) = (share.cpu_milli, share.memory_mib);
                }
            }
            if *before == target {
                continue;
            }
            let mut parts = before.shares.iter().zip(&target.shares);
            let shrinks = parts.any(|(a, b)| b.cpu_milli < a.cpu_milli || b.memory_mib < a.memory_mib);
            match (job.holds_gpus(), shrinks) {
                (false, _) => self.state.entry(id).job.granted = Some(target),
                (true, true) => less.push((id, target)),
                (true, false) => more.push((id, target)),
            }
        }
        for (id, target) in less.into_iter().chain(more) {
            let job = &mut self.state.entry(id).job;
            job.granted = Some(target.clone());
            self.commands.push_back(Command::Resize {
                job: id,
                attempt: job.attempt,
                allocation: target,
            });
        }
    }
}

/// Splits the shares of this job off the front, after those of all jobs with lower keys were.
fn split_off_own<'a>(rest: &mut &'a [(JobKey, NodeId, Share)], id: JobKey) -> &'a [(JobKey, NodeId, Share)] {
    let count = rest.iter().take_while(|(job, ..)| *job == id).count();
    let (own, others) = rest.split_at(count);
    *rest = others;
    own
}
