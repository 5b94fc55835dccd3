//! Why a job waits for cells: what its tenant owns, who holds it, and what would let the job start.

use dovetail_cells::{Explanation, GroupId, PlacementOptions, Remedy, WaitReason};
use dovetail_engine::{Ask, Job};
use dovetail_model::{Change, JobKey, Reason};

use super::cells::{VirtualClusters, borrows};

/// Holders that are named.
const NAMED: usize = 5;

impl VirtualClusters {
    /// What there is to say beyond that there is no place.
    pub(super) fn why(&self, job: &Job, ask: &Ask) -> Vec<Reason> {
        let requests = self.requests(&job.spec, ask.gpus, ask.gpu_type);
        let open = self.open_machines(None);
        let terms = PlacementOptions {
            machines: open.as_ref(),
            ..PlacementOptions::default()
        };
        let found = requests.iter().find_map(|r| self.cells.explain(r, &terms));
        found.map_or_else(Vec::new, |e| self.reasons(job, &e))
    }

    fn reasons(&self, job: &Job, explanation: &Explanation) -> Vec<Reason> {
        let change = Reason::WouldStart(self.change(&explanation.remedy));
        if matches!(explanation.wait, WaitReason::UserLimit { .. }) {
            return vec![change];
        }
        let mut reasons = Vec::new();
        if !borrows(&job.spec) {
            let owned = explanation.levels.iter().map(|level| Reason::CellsOwned {
                tenant: job.spec.tenant,
                kind: self.map.layout.chain(level.chain).types[level.level].clone(),
                owned: level.owned,
                free: level.free,
                bad: level.bad,
                doomed: level.doomed,
                left_in_cluster: None,
                bad_in_cluster: 0,
            });
            reasons.extend(owned);
        }
        let holders: Vec<(JobKey, u32)> = explanation
            .holders
            .iter()
            .flat_map(|h| self.jobs_of(h.group).map(|job| (job, h.leaves)))
            .collect();
        if !holders.is_empty() {
            let more = holders.len().saturating_sub(NAMED) as u32;
            let holders = holders.into_iter().take(NAMED).collect();
            reasons.push(Reason::CellsHeld { holders, more });
        }
        reasons.push(change);
        reasons
    }

    fn change(&self, remedy: &Remedy) -> Change {
        match remedy {
            Remedy::Ends(groups) => {
                let jobs = |id: &GroupId| self.jobs_of(*id).collect::<Vec<_>>();
                Change::JobsEnd(groups.iter().flat_map(jobs).collect())
            }
            Remedy::Repairs(machines) => {
                let nodes = machines.iter().flat_map(|m| self.map.nodes_of(*m));
                Change::NodesReturn(nodes.copied().collect())
            }
            Remedy::MoreCells { asked, owned } => Change::MoreCells {
                asked: *asked,
                owned: *owned,
            },
            Remedy::SmallerPods { asked, largest } => Change::LargerCells {
                asked: *asked,
                largest: *largest,
            },
            Remedy::HigherLimit => Change::HigherLimit,
            Remedy::Unknown => Change::Unknown,
        }
    }
}
