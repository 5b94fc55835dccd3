//! Cells: a tenant owns parts of the cluster with a shape, such as eight GPUs on one machine, and lends them while it does
//! not use them. HiveD's virtual clusters, see crate `cells`.
//!
//! A job of priority 0 or more is *guaranteed*: it runs in the cells of its virtual cluster, where the order of the policy
//! decides among its jobs. A job of lower priority *borrows* whatever is idle, and is preempted for guaranteed jobs. The
//! ledger of the cells follows every step of a draft, including rollbacks. Jobs of one virtual cluster may share GPUs.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cells::{Cells, MachineId, PlacementError, PlacementOptions, WaitReason};
use dovetail_engine::{
    Ask, CheckError, Cluster, Feature, Job, JobClass, LoadError, NodeState, Part, Placement, Tenancy,
    TenancyLedger, TenantAccounts,
};
use dovetail_model::{Allocation, JobKey, JobSpec, NodeId, Reason};
use serde_json::Value;

use super::cell_explain::CellExplainer;
use super::cell_ledger::{CellLedger, SearchResult, is_borrower, search};
use super::cell_map::SharedCells;
use super::group_placement::{GroupPlacement, Leaves, leaves_of};
use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Tenancy> = Entry {
    name: "cells",
    what: "each tenant owns cells, parts of the cluster with a shape; jobs of negative priority borrow idle ones until they are needed",
    source: "HiveD (OSDI'20)",
    key: "guaranteed jobs in the tenant's cells, then borrowers",
    companions: &[],
    knobs: &[Knob {
        name: "FILE",
        default: "",
        what: "HiveD's configuration; tenants are its virtual clusters",
    }],
    build: |knobs| Err(knobs.invalid("FILE", "the name of a file, such as cells:cluster.yaml")),
};

/// Virtual clusters that own cells.
#[derive(Debug, Clone)]
pub struct VirtualClusters {
    name: String,
    ledger: CellLedger,
    /// The cells without any jobs, to find out what could ever fit.
    empty: Cells,
    /// Jobs whose GPUs are in no cell.
    strays: BTreeSet<JobKey>,
    /// Downgraded jobs that were evicted in this decision, with the leaves they had.
    borrowed_before: BTreeMap<JobKey, Leaves>,
    /// The job for which a placement was last sought in vain, if preempting these borrowers would help.
    victims: Option<(JobKey, BTreeSet<JobKey>)>,
    /// The job for which a placement was last sought, if its user has reached a limit.
    over_limit: Option<JobKey>,
    /// Whether a job found no healthy machine in this walk; other jobs may have left one since.
    lacks_machines: bool,
    /// Whether no decision was made yet, so that allocated jobs are taken over from another policy or a snapshot.
    adopting: bool,
    up: BTreeSet<NodeId>,
    /// Whether the health of machines follows that of their nodes yet.
    tracks_health: bool,
}

impl VirtualClusters {
    /// Returns virtual clusters without jobs. `name` is the text of the part as a user wrote it.
    pub fn new(name: String, map: SharedCells) -> Self {
        let ledger = CellLedger::new(map);
        Self {
            name,
            empty: ledger.cells.clone(),
            ledger,
            strays: BTreeSet::new(),
            borrowed_before: BTreeMap::new(),
            victims: None,
            over_limit: None,
            lacks_machines: false,
            adopting: true,
            up: BTreeSet::new(),
            tracks_health: false,
        }
    }

    /// Sets the health of all machines, once: a machine is bad unless all its nodes are up.
    fn track_health(&mut self) {
        if !std::mem::replace(&mut self.tracks_health, true) {
            for machine in (0..self.ledger.map.layout.machines.len() as u32).map(MachineId) {
                self.update_health(machine);
            }
        }
    }

    fn update_health(&mut self, machine: MachineId) {
        let nodes = self.ledger.map.nodes_of(machine);
        let healthy = !nodes.is_empty() && nodes.iter().all(|n| self.up.contains(n));
        self.ledger.cells.set_health(machine, healthy);
    }

    /// Returns why a job that asks for `gpus` GPUs has no placement. `borrowers` is the number of jobs whose preemption
    /// would help.
    fn reason(&self, job: &JobSpec, gpus: u32, error: Option<&PlacementError>, borrowers: u32) -> Reason {
        let (available, unusable) = match error {
            Some(PlacementError::Wait(WaitReason::UserLimit { limit, held, .. })) => {
                return Reason::UserCells {
                    user: job.user,
                    asked: gpus,
                    held: *held,
                    most: *limit,
                };
            }
            Some(PlacementError::Wait(WaitReason::NoHealthyCell { level, free, bad })) => {
                return Reason::NoHealthyCell {
                    tenant: job.tenant,
                    kind: self.ledger.cell_type(job, *level),
                    free: *free,
                    bad: *bad,
                };
            }
            Some(PlacementError::Wait(WaitReason::NoRoom {
                available, unusable, ..
            })) => (*available, *unusable),
            Some(PlacementError::Refused(_)) | None => (0, 0),
        };
        Reason::CellsInUse {
            tenant: job.tenant,
            borrows: is_borrower(job),
            asked: gpus,
            available,
            unusable,
            borrowers,
        }
    }

    /// Whether the job is preempted for guaranteed jobs of other tenants.
    fn is_opportunistic(&self, job: &JobSpec) -> bool {
        is_borrower(job) || self.ledger.downgraded.contains_key(&job.id)
    }

    /// Whether the job lost exactly these leaves in this decision, as a downgraded one.
    fn borrowed_these_before(&self, job: JobKey, allocation: &Allocation) -> bool {
        let leaves = self.borrowed_before.get(&job);
        leaves.is_some() && leaves == self.ledger.leaves(allocation).as_ref()
    }
}

impl Part for VirtualClusters {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn requires(&self) -> &'static [Feature] {
        &[Feature::TenancyLimits, Feature::WholeGroups]
    }

    fn save(&self) -> Value {
        let CellLedger {
            cells,
            groups,
            downgraded,
            ..
        } = &self.ledger;
        let saved = groups.iter().filter_map(|(job, id)| {
            let placement = GroupPlacement::new(cells, &cells.group(*id)?.pods);
            Some((*job, placement, downgraded.contains_key(job)))
        });
        let all: Vec<(JobKey, GroupPlacement, bool)> = saved.collect();
        serde_json::to_value(all).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        let all: Vec<(JobKey, GroupPlacement, bool)> =
            serde_json::from_value(saved.clone()).map_err(|e| LoadError::new(&*self.name, e))?;
        for (job, placement, is_downgraded) in all {
            if is_downgraded {
                self.borrowed_before.insert(job, leaves_of(&placement.pods));
            }
            self.ledger.placements.insert(job, placement);
        }
        Ok(())
    }
}

impl Tenancy for VirtualClusters {
    fn has_limits(&self) -> bool {
        true
    }

    fn check_feasible(&mut self, job: &JobSpec) -> Result<(), Reason> {
        let requests = self.ledger.requests(job, job.min_gpus, job.gpu_type);
        match search(&mut self.empty, &requests, &PlacementOptions::default()) {
            SearchResult::Placed(_) | SearchResult::Borrowed(_) => Ok(()),
            SearchResult::NoRoom(error) | SearchResult::NoMachine(error) => {
                Err(self.reason(job, job.min_gpus, error.as_ref(), 0))
            }
        }
    }

    fn place(
        &mut self,
        job: &Job,
        ask: &Ask,
        cluster: &Cluster,
        _placement: &mut dyn Placement,
    ) -> Result<Allocation, Reason> {
        self.track_health();
        (self.victims, self.over_limit) = (None, None);
        let ledger = &mut self.ledger;
        let requests = ledger.requests(&job.spec, ask.gpus, ask.gpu_type);
        let open = ledger.open_machines(ask.constraint.map(|constraint| (constraint, cluster)));
        let slots = ledger.initial_slots(job.spec.id);
        let options = PlacementOptions {
            machines: open.as_ref(),
            slots: &slots,
            ..PlacementOptions::default()
        };
        let mut found = search(&mut ledger.cells, &requests, &options);
        if !slots.is_empty() && matches!(found, SearchResult::NoRoom(_) | SearchResult::NoMachine(_)) {
            // The slots it had may have no machines for it any more.
            let options = PlacementOptions {
                slots: &[],
                ..options
            };
            found = search(&mut ledger.cells, &requests, &options);
        }
        self.lacks_machines |= matches!(found, SearchResult::NoMachine(_));
        match found {
            SearchResult::Placed(placement) => {
                let allocation = ledger.allocation(&placement.pods, ask);
                let allocation =
                    allocation
                        .filter(|a| cluster.is_free(a))
                        .ok_or(Reason::NotEnoughCpuOrMemory {
                            cpu_milli_per_gpu: ask.cpu_milli_per_gpu,
                            memory_mib_per_gpu: ask.memory_mib_per_gpu,
                        })?;
                ledger.placements.insert(job.spec.id, placement);
                Ok(allocation)
            }
            SearchResult::Borrowed(groups) => {
                let victims: BTreeSet<JobKey> = groups.iter().flat_map(|id| ledger.jobs_of(*id)).collect();
                let borrowers = victims.len() as u32;
                self.victims = Some((job.spec.id, victims));
                Err(self.reason(&job.spec, ask.gpus, None, borrowers))
            }
            SearchResult::NoRoom(error) | SearchResult::NoMachine(error) => {
                if matches!(error, Some(PlacementError::Wait(WaitReason::UserLimit { .. }))) {
                    self.over_limit = Some(job.spec.id);
                }
                Err(self.reason(&job.spec, ask.gpus, error.as_ref(), 0))
            }
        }
    }

    fn may_use(&mut self, job: &Job, allocation: &Allocation) -> bool {
        let borrowed = self.borrowed_these_before(job.spec.id, allocation);
        let (ledger, spec) = (&mut self.ledger, &job.spec);
        let mark = ledger.cells.savepoint();
        let fits = match borrowed {
            true => ledger.occupy_as_borrower(spec, allocation).is_some(),
            false => {
                let requests = ledger.requests(spec, allocation.gpus(), None);
                let is_allowed = requests
                    .first()
                    .is_none_or(|r| ledger.cells.check_user_limit(r).is_ok());
                is_allowed
                    && ledger.may_return_to(spec.id, allocation)
                    && ledger.occupy(spec, allocation).is_some()
            }
        };
        ledger.cells.rollback(mark);
        ledger.cells.commit_all();
        fits
    }

    /// A guaranteed job evicts the borrowers that the cells name. Borrowers of equal priority do not evict one another: a
    /// borrower that was preempted for an owner would otherwise preempt the next one, so that two jobs restart instead of
    /// one. Within a full virtual cluster the order decides among its jobs, and where a user has reached a limit, among
    /// the jobs of the user.
    fn may_evict(&self, for_job: &Job, victim: &Job) -> bool {
        let (job, victim) = (&for_job.spec, &victim.spec);
        if let Some((_, victims)) = self.victims.as_ref().filter(|(id, _)| *id == job.id) {
            return victims.contains(&victim.id);
        }
        if is_borrower(job) {
            return is_borrower(victim) && job.priority > victim.priority;
        }
        let is_same_user = self.over_limit != Some(job.id) || job.user == victim.user;
        job.tenant == victim.tenant && !self.is_opportunistic(victim) && is_same_user
    }

    /// With machines down or draining, cells that other jobs use in this decision may be bound to machines that leave none
    /// for a job, until those jobs stop.
    fn wants_retry(&mut self) -> bool {
        std::mem::take(&mut self.lacks_machines)
    }

    fn explain(&self, job: &Job, ask: &Ask) -> Vec<Reason> {
        let ledger = &self.ledger;
        CellExplainer { ledger }.explain(job, ask)
    }
}

impl TenantAccounts for VirtualClusters {
    fn class(&self, job: &JobSpec) -> JobClass {
        match self.is_opportunistic(job) {
            true => JobClass::Opportunistic,
            false => JobClass::Guaranteed,
        }
    }

    fn shape_key(&self, job: &JobSpec) -> u64 {
        let vc = self.ledger.vc(job.tenant);
        let user = match vc.is_some_and(|vc| self.ledger.map.limits_users(vc)) {
            true => u64::from(job.user.0) + 1,
            false => 0,
        };
        user << 33 | self.account(job)
    }

    fn account(&self, job: &JobSpec) -> u64 {
        u64::from(job.tenant.0) << 1 | u64::from(is_borrower(job))
    }

    fn max_gpus(&self, job: &JobSpec) -> u32 {
        match self.ledger.vc(job.tenant) {
            _ if is_borrower(job) => u32::MAX,
            Some(vc) => self.ledger.map.owned(vc),
            None => 0,
        }
    }
}

impl TenancyLedger for VirtualClusters {
    fn allocated(&mut self, job: &JobSpec, allocation: &Allocation) {
        let mut is_downgraded = self.borrowed_these_before(job.id, allocation);
        let ledger = &mut self.ledger;
        let mut group = match is_downgraded {
            true => None,
            false => ledger
                .group_on(job, allocation)
                .or_else(|| ledger.occupy(job, allocation)),
        };
        if group.is_none() && (is_downgraded || self.adopting) {
            group = ledger.occupy_as_borrower(job, allocation);
            is_downgraded = !is_borrower(job);
        }
        match group {
            Some(id) => ledger.enter(job.id, id),
            None => drop(self.strays.insert(job.id)),
        }
        if group.is_some() && is_downgraded {
            ledger.downgraded.insert(job.id, job.clone());
        }
        ledger.placements.remove(&job.id);
        self.victims = None;
    }

    fn released(&mut self, job: &JobSpec, allocation: &Allocation) {
        self.strays.remove(&job.id);
        if self.ledger.downgraded.remove(&job.id).is_some() {
            let leaves = self.ledger.leaves(allocation);
            self.borrowed_before.extend(leaves.map(|leaves| (job.id, leaves)));
        }
        self.ledger.leave(job.id);
    }

    fn node_changed(&mut self, node: NodeId, state: &NodeState) {
        let (was_up, is_up) = (self.up.contains(&node), state.up);
        match is_up {
            true => self.up.insert(node),
            false => self.up.remove(&node),
        };
        match state.up && state.draining {
            true => self.ledger.draining.insert(node),
            false => self.ledger.draining.remove(&node),
        };
        let machine = self.ledger.map.machine(node);
        if let Some(machine) = machine.filter(|_| self.tracks_health && was_up != is_up) {
            self.update_health(machine);
        }
    }

    fn commit(&mut self) -> Vec<JobKey> {
        self.ledger.end_decision();
        self.borrowed_before.clear();
        (self.victims, self.over_limit) = (None, None);
        (self.adopting, self.lacks_machines) = (false, false);
        self.ledger.promote()
    }

    fn downgraded(&self) -> Vec<JobKey> {
        self.ledger.downgraded.keys().copied().collect()
    }

    fn cell_at(&self, node: NodeId, slot: u32) -> Option<u32> {
        let (chain, leaf) = self.ledger.map.leaf_of(node, slot)?;
        self.ledger.cells.slot_of(chain, leaf).map(|slot| slot.0)
    }

    fn check(&self, holders: &mut dyn Iterator<Item = &Job>) -> Result<(), CheckError> {
        self.ledger.check(holders)
    }
}
