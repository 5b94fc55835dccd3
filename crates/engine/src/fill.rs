//! Sharing out the CPU and memory that nobody was promised, node by node, among the jobs that are there.
//!
//! Placement, draft and books know only what jobs were promised, so whatever is granted beyond that never stands in the
//! way of another job: it is taken back by not being granted again. Only nodes where someone came or went are looked at.

use std::collections::BTreeMap;

use dovetail_model::{Allocation, Command, JobId, NodeId, Share};

use crate::engine::Engine;
use crate::node_set::NodeSet;
use crate::parts::Guest;
use crate::replan::same_gpus;

/// What each job gets on each node, all GPUs there together; by job and node in the end.
type Shares = Vec<(JobId, NodeId, Share)>;

impl Engine {
    /// Asks the sizing for new shares on every node where someone came or went, and tells running jobs of theirs.
    pub(crate) fn share_out(&mut self) {
        if self.state.touched.is_empty() {
            return;
        }
        let mut nodes = std::mem::take(&mut self.state.touched);
        let mut jobs = self.on(&nodes);
        // A job on several nodes goes as fast as the slowest of them lets it: all of them are looked at.
        let wide: Vec<JobId> = jobs
            .iter()
            .copied()
            .filter(|id| self.placed(*id).nodes() > 1)
            .collect();
        if !wide.is_empty() {
            for id in &wide {
                nodes.extend(self.placed(*id).shares.iter().map(|s| s.node));
            }
            jobs = self.on(&nodes);
        }
        let mut shares = self.fill_nodes(&nodes, &BTreeMap::new());
        let bounds: BTreeMap<JobId, Share> = jobs
            .iter()
            .filter(|id| self.placed(**id).nodes() > 1)
            .map(|id| (*id, self.least_on_any(*id, &shares)))
            .collect();
        if !bounds.is_empty() {
            shares = self.fill_nodes(&nodes, &bounds);
        }
        self.grant(&jobs, &shares);
    }

    /// Everyone on these nodes, each once, by id.
    fn on(&self, nodes: &NodeSet) -> Vec<JobId> {
        let here = nodes.iter().flat_map(|n| self.state.occupants.on_node(n));
        let mut jobs: Vec<JobId> = here.collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    /// Asks the sizing about these nodes.
    fn fill_nodes(&mut self, nodes: &NodeSet, bounds: &BTreeMap<JobId, Share>) -> Shares {
        let mut shares = Shares::new();
        for node in nodes.iter() {
            self.fill_node(node, bounds, &mut shares);
        }
        shares.sort_unstable_by_key(|(job, node, _)| (*job, *node));
        shares
    }

    fn placed(&self, id: JobId) -> &Allocation {
        let job = self.state.known(id);
        job.allocation
            .as_ref()
            .expect("who is on a node was placed there")
    }

    /// Asks the sizing about one node.
    fn fill_node(&mut self, id: NodeId, bounds: &BTreeMap<JobId, Share>, shares: &mut Shares) {
        let Some(node) = self.state.cluster.node(id).filter(|n| n.up) else {
            return;
        };
        let here = self.state.occupants.on_node(id);
        let guests: Vec<Guest<'_>> = here
            .iter()
            .map(|job| {
                let known = self.state.known(*job);
                let mut parts = known.allocation.iter().flat_map(|a| &a.shares);
                let part = parts.find(|s| s.node == id);
                let part = part.expect("who is on a node has a share of it");
                Guest {
                    job: known,
                    gpus: part.gpus.count(),
                    promised: Share::new(part.cpu_milli, part.memory_mib),
                    bound: bounds.get(job).copied(),
                }
            })
            .collect();
        let given = self.policy.sizing.fill(node, node.left(), &guests);
        debug_assert_eq!(given.len(), here.len(), "every job on the node has a share");
        shares.extend(here.into_iter().zip(given).map(|(job, share)| (job, id, share)));
    }

    /// The least that a job on several nodes has for each GPU on any of them.
    fn least_on_any(&self, id: JobId, shares: &Shares) -> Share {
        let held = self.state.known(id).holds();
        let parts = held.into_iter().flat_map(|a| &a.shares);
        let each = parts.map(|part| {
            let now = Share::new(part.cpu_milli, part.memory_mib);
            let found = shares.binary_search_by_key(&(id, part.node), |(job, node, _)| (*job, *node));
            found.map_or(now, |i| shares[i].2).over(part.gpus.count())
        });
        each.reduce(Share::at_most).unwrap_or_default()
    }

    /// Writes down what everyone has now and tells those who run: first who has less of anything, then the others.
    fn grant(&mut self, jobs: &[JobId], shares: &Shares) {
        let (mut less, mut more) = (Vec::new(), Vec::new());
        let mut rest = shares.as_slice();
        for &id in jobs {
            let own = own(&mut rest, id);
            let placed = self.placed(id);
            let job = self.state.known(id);
            let before = job.holds().expect("who is on a node was placed there");
            // On nodes that were not looked at it keeps what it has.
            let stays = same_gpus(before, placed);
            let mut target = if stays { before.clone() } else { placed.clone() };
            for part in &mut target.shares {
                if let Some((.., share)) = own.iter().find(|(_, node, _)| *node == part.node) {
                    (part.cpu_milli, part.memory_mib) = (share.cpu_milli, share.memory_mib);
                }
            }
            if *before == target {
                continue;
            }
            let shrinks = before
                .shares
                .iter()
                .zip(&target.shares)
                .any(|(a, b)| b.cpu_milli < a.cpu_milli || b.memory_mib < a.memory_mib);
            match (job.is_up(), shrinks) {
                (false, _) => self.state.entry(id).job.granted = Some(target),
                (true, true) => less.push((id, target)),
                (true, false) => more.push((id, target)),
            }
        }
        for (id, target) in less.into_iter().chain(more) {
            self.state.entry(id).job.granted = Some(target.clone());
            self.resize(id, target);
        }
    }

    /// Tells a running job what it has beside its GPUs from now on.
    pub(crate) fn resize(&mut self, id: JobId, allocation: Allocation) {
        let generation = self.state.known(id).generation;
        self.commands.push_back(Command::Resize {
            job: id,
            generation,
            allocation,
        });
    }
}

/// The shares of this job, which come first now that those of jobs with lower ids were taken.
fn own<'a>(rest: &mut &'a [(JobId, NodeId, Share)], id: JobId) -> &'a [(JobId, NodeId, Share)] {
    let count = rest.iter().take_while(|(job, ..)| *job == id).count();
    let (own, others) = rest.split_at(count);
    *rest = others;
    own
}
