//! Explains why a job waits for cells: what its tenant owns, which jobs hold it, and what would let the job start.

use dovetail_cells::{
    Explanation, GroupId, MachineId, Outcome, PlacementOptions, Remedy, Request, WaitReason,
};
use dovetail_engine::{Ask, Job};
use dovetail_model::{Change, JobKey, Reason};

use super::cell_ledger::{CellLedger, is_borrower};

/// Most holders that are named.
const MAX_NAMED: usize = 5;

/// Finds out why jobs have no placement.
pub(super) struct CellExplainer<'a> {
    pub(super) ledger: &'a CellLedger,
}

impl CellExplainer<'_> {
    /// Returns what to report beyond the fact that the job has no placement.
    pub(super) fn explain(&self, job: &Job, ask: &Ask) -> Vec<Reason> {
        let requests = self.ledger.requests(&job.spec, ask.gpus, ask.gpu_type);
        let open = self.ledger.open_machines(None);
        let options = PlacementOptions {
            machines: open.as_ref(),
            ..PlacementOptions::default()
        };
        let cells = &self.ledger.cells;
        // What the job needs is borrowed by others, but it may not need that once broken nodes are back.
        if let Some(request) = requests.iter().find(|r| self.needs_preemption(r, &options)) {
            let machines = cells.repairs_for(request, &options);
            let change = |machines: Vec<MachineId>| Reason::WouldStart(self.nodes_return(&machines));
            return machines.map(change).into_iter().collect();
        }
        let found = requests.iter().find_map(|r| cells.explain(r, &options));
        found.map_or_else(Vec::new, |e| self.reasons(job, &e))
    }

    fn needs_preemption(&self, request: &Request, options: &PlacementOptions<'_>) -> bool {
        let mut trial = self.ledger.cells.clone();
        trial
            .try_place(request, options)
            .is_ok_and(|placement| *placement.outcome() != Outcome::Placed)
    }

    fn reasons(&self, job: &Job, explanation: &Explanation) -> Vec<Reason> {
        let change = Reason::WouldStart(self.change(&explanation.remedy));
        if matches!(explanation.wait, WaitReason::UserLimit { .. }) {
            return vec![change];
        }
        let mut reasons = Vec::new();
        if !is_borrower(&job.spec) {
            let owned = explanation.levels.iter().map(|level| Reason::CellsOwned {
                tenant: job.spec.tenant,
                kind: self.ledger.map.layout.chain(level.chain).types[level.level].clone(),
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
            .flat_map(|h| self.ledger.jobs_of(h.group).map(|job| (job, h.leaves)))
            .collect();
        if !holders.is_empty() {
            let more = holders.len().saturating_sub(MAX_NAMED) as u32;
            let holders = holders.into_iter().take(MAX_NAMED).collect();
            reasons.push(Reason::CellsHeld { holders, more });
        }
        reasons.push(change);
        reasons
    }

    fn change(&self, remedy: &Remedy) -> Change {
        match remedy {
            Remedy::Ends(groups) => {
                let jobs = |id: &GroupId| self.ledger.jobs_of(*id).collect::<Vec<_>>();
                Change::JobsEnd(groups.iter().flat_map(jobs).collect())
            }
            Remedy::Repairs(machines) => self.nodes_return(machines),
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

    fn nodes_return(&self, machines: &[MachineId]) -> Change {
        let nodes = machines.iter().flat_map(|m| self.ledger.map.nodes_of(*m));
        Change::NodesReturn(nodes.copied().collect())
    }
}
