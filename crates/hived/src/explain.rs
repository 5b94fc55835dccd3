//! Explains why a group of pods is pending: the explanation of the cells as reasons, with the names of groups and machines.

use dovetail_cells::{Cells, Explanation, Remedy, WaitReason};
use dovetail_model::{Change, JobKey, NameLookup, NodeId, Reason, TenantId, UserId};

/// Maximum number of holders that are named.
const NAMED: usize = 5;

/// Names for the numbers in the reasons of one explanation.
struct Names<'a> {
    virtual_cluster: &'a str,
    groups: Vec<String>,
    machines: Vec<String>,
}

impl NameLookup for Names<'_> {
    fn job(&self, job: JobKey) -> String {
        self.groups[job.0 as usize].clone()
    }

    fn node(&self, node: NodeId) -> String {
        self.machines[node.0 as usize].clone()
    }

    fn tenant(&self, _tenant: TenantId) -> String {
        self.virtual_cluster.to_owned()
    }

    fn user(&self, _user: UserId) -> String {
        "its user".to_owned()
    }
}

impl Names<'_> {
    fn group(&mut self, name: String) -> JobKey {
        self.groups.push(name);
        JobKey(self.groups.len() as u32 - 1)
    }

    fn machine(&mut self, name: String) -> NodeId {
        self.machines.push(name);
        NodeId(self.machines.len() as u32 - 1)
    }
}

/// Returns an explanation as lines of text; `name` gives the name behind a group's key.
pub fn explanation_lines(
    explanation: &Explanation,
    cells: &Cells,
    vc: &str,
    name: &dyn Fn(u64) -> String,
) -> Vec<String> {
    let mut names = Names {
        virtual_cluster: vc,
        groups: Vec::new(),
        machines: Vec::new(),
    };
    let mut reasons = vec![wait_reason(explanation, cells)];
    reasons.extend(explanation.levels.iter().map(|level| Reason::CellsOwned {
        tenant: TenantId(0),
        kind: cells.layout().chain(level.chain).types[level.level].clone(),
        owned: level.owned,
        free: level.free,
        bad: level.bad,
        doomed: level.doomed,
        left_in_cluster: Some(level.left_in_cluster),
        bad_in_cluster: level.bad_in_cluster,
    }));
    if !explanation.holders.is_empty() {
        let holders = explanation.holders.iter().take(NAMED);
        let holders = holders.map(|h| {
            let holder = format!("{} at priority {}", name(h.key), h.priority);
            (names.group(holder), h.leaves)
        });
        reasons.push(Reason::CellsHeld {
            holders: holders.collect(),
            more: explanation.holders.len().saturating_sub(NAMED) as u32,
        });
    }
    reasons.push(Reason::WouldStart(change(
        &explanation.remedy,
        cells,
        name,
        &mut names,
    )));
    reasons.iter().map(|reason| reason.render(&names)).collect()
}

fn wait_reason(explanation: &Explanation, cells: &Cells) -> Reason {
    let (tenant, user) = (TenantId(0), UserId(0));
    match &explanation.wait {
        WaitReason::NoRoom {
            borrower,
            asked,
            available,
            unusable,
        } => Reason::CellsInUse {
            tenant,
            borrows: *borrower,
            asked: *asked,
            available: *available,
            unusable: *unusable,
            borrowers: 0,
        },
        WaitReason::NoHealthyCell { level, free, bad } => {
            let found = explanation.levels.iter().find(|l| l.level == *level);
            let kind = found.map_or("cell", |l| cells.layout().chain(l.chain).types[*level].as_str());
            Reason::NoHealthyCell {
                tenant,
                kind: kind.to_owned(),
                free: *free,
                bad: *bad,
            }
        }
        WaitReason::UserLimit { limit, held, asked } => Reason::UserCells {
            user,
            asked: *asked,
            held: *held,
            most: *limit,
        },
    }
}

fn change(remedy: &Remedy, cells: &Cells, name: &dyn Fn(u64) -> String, names: &mut Names<'_>) -> Change {
    match remedy {
        Remedy::Ends(groups) => {
            let keys = groups.iter().map(|id| cells.group(*id).map(|g| name(g.key)));
            Change::JobsEnd(keys.map(|key| names.group(key.unwrap_or_default())).collect())
        }
        Remedy::Repairs(machines) => {
            let found = machines.iter().map(|m| &cells.layout().machines[m.index()].name);
            Change::NodesReturn(found.map(|name| names.machine(name.clone())).collect())
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
