//! Cells: a tenant owns parts of the cluster with a shape, such as eight GPUs on one machine, and lends them while it
//! sleeps. HiveD's virtual clusters, see crate `cells`.
//!
//! A job of priority 0 or more is *guaranteed*: it runs in the cells of its virtual cluster, where the order of the
//! policy decides among its jobs. A job of lower priority *borrows* whatever is idle, and gives way. The books of the
//! cells follow every step of a draft, forth and back. Jobs of one virtual cluster may share GPUs.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cells::{Cells, ChainId, GroupId, MachineId, PlacementError, PlacementOptions, WaitReason};
use dovetail_engine::{
    Ask, CheckError, Cluster, Feature, Job, JobClass, LoadError, NodeState, Part, Placement, Tenancy,
    TenancyLedger, TenantAccounts,
};
use dovetail_model::ids::IdVec;
use dovetail_model::{Allocation, JobKey, JobSpec, NodeId, Reason};
use serde_json::Value;

use super::cell_books::{Found, find};
use super::cell_home::{Home, Leaves, leaves_of};
use super::cell_map::SharedCells;
use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Tenancy> = Entry {
    name: "cells",
    what: "each tenant owns cells, parts of the cluster with a shape; jobs of negative priority borrow what is idle and give way",
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
    pub(super) map: SharedCells,
    pub(super) cells: Cells,
    /// Cells nobody uses, to find out what could ever fit.
    empty: Cells,
    /// Users by id, as the cells number them.
    pub(super) users: Vec<Option<u32>>,
    pub(super) groups: BTreeMap<JobKey, GroupId>,
    pub(super) members: BTreeMap<GroupId, Vec<JobKey>>,
    /// Groups by the first of their leaves.
    pub(super) first_leaves: BTreeMap<(ChainId, u32), GroupId>,
    /// Jobs whose GPUs are in no cell.
    strays: BTreeSet<JobKey>,
    /// Jobs that only borrow although they are guaranteed, since what their tenants own has changed.
    pub(super) downgraded: BTreeMap<JobKey, JobSpec>,
    /// Where jobs that were placed or thrown out in this decision belong in their virtual clusters.
    pub(super) homes: BTreeMap<JobKey, Home>,
    /// Where jobs that were thrown out in this decision were when it began.
    pub(super) origins: BTreeMap<JobKey, Home>,
    /// Downgraded jobs that were thrown out in this decision, and the leaves they had.
    lent_before: BTreeMap<JobKey, Leaves>,
    /// Who has to go for the job that was asked for last.
    wanted: Option<(JobKey, BTreeSet<JobKey>)>,
    /// The job that was asked for last, if its user holds too much.
    over_limit: Option<JobKey>,
    /// Whether anyone was short of healthy machines that others may have left since.
    lacks_machines: bool,
    /// Until the first decision jobs are carried over from elsewhere.
    carrying: bool,
    up: BTreeSet<NodeId>,
    pub(super) draining: BTreeSet<NodeId>,
    heard_of_nodes: bool,
}

/// Whether the job only borrows.
pub(super) fn borrows(job: &JobSpec) -> bool {
    job.priority < 0
}

impl VirtualClusters {
    /// All cells free. `name` is how a user wrote it.
    pub fn new(name: String, map: SharedCells) -> Self {
        let mut cells = Cells::new(map.layout.clone());
        // Who has its place back is decided between decisions, not in the middle of a draft.
        cells.set_repromotion(false);
        let named = map.users.iter().enumerate();
        let users = named
            .map(|(i, name)| (i > 0).then(|| cells.user_id(name)))
            .collect();
        Self {
            name,
            empty: cells.clone(),
            users,
            cells,
            map,
            groups: BTreeMap::new(),
            members: BTreeMap::new(),
            first_leaves: BTreeMap::new(),
            strays: BTreeSet::new(),
            downgraded: BTreeMap::new(),
            homes: BTreeMap::new(),
            origins: BTreeMap::new(),
            lent_before: BTreeMap::new(),
            wanted: None,
            over_limit: None,
            lacks_machines: false,
            carrying: true,
            up: BTreeSet::new(),
            draining: BTreeSet::new(),
            heard_of_nodes: false,
        }
    }

    /// Machines no node of which is up cannot be used.
    fn look_at_nodes(&mut self) {
        if !std::mem::replace(&mut self.heard_of_nodes, true) {
            for machine in (0..self.map.layout.machines.len() as u32).map(MachineId) {
                self.judge(machine);
            }
        }
    }

    fn judge(&mut self, machine: MachineId) {
        let nodes = self.map.nodes_of(machine);
        let healthy = !nodes.is_empty() && nodes.iter().all(|n| self.up.contains(n));
        self.cells.set_health(machine, healthy);
    }

    fn reason(&self, job: &JobSpec, gpus: u32, denied: Option<&PlacementError>, borrowers: u32) -> Reason {
        match denied {
            Some(PlacementError::Wait(WaitReason::UserLimit { limit, held, .. })) => Reason::UserCells {
                user: job.user,
                asked: gpus,
                held: *held,
                most: *limit,
            },
            _ => Reason::CellsInUse {
                tenant: job.tenant,
                borrows: borrows(job),
                asked: gpus,
                available: match denied {
                    Some(PlacementError::Wait(WaitReason::NoRoom { available, .. })) => *available,
                    _ => 0,
                },
                unusable: 0,
                borrowers,
            },
        }
    }

    /// Whether the job gives way to guaranteed ones of others.
    fn gives_way(&self, job: &JobSpec) -> bool {
        borrows(job) || self.downgraded.contains_key(&job.id)
    }

    /// Whether it lost just these leaves in this decision, as one that was downgraded.
    fn was_lent(&self, job: JobKey, allocation: &Allocation) -> bool {
        let lent = self.lent_before.get(&job);
        lent.is_some() && lent == self.leaves(allocation).as_ref()
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
        let saved = |(job, id): (&JobKey, &GroupId)| {
            let lent = self.downgraded.contains_key(job);
            Some((*job, Home::new(&self.cells, &self.cells.group(*id)?.pods), lent))
        };
        let all: Vec<(JobKey, Home, bool)> = self.groups.iter().filter_map(saved).collect();
        serde_json::to_value(all).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        let all: Vec<(JobKey, Home, bool)> =
            serde_json::from_value(saved.clone()).map_err(|e| LoadError::new(&*self.name, e))?;
        for (job, home, lent) in all {
            if lent {
                self.lent_before.insert(job, leaves_of(&home.pods));
            }
            self.homes.insert(job, home);
        }
        Ok(())
    }
}

impl Tenancy for VirtualClusters {
    fn has_limits(&self) -> bool {
        true
    }

    fn check_feasible(&mut self, job: &JobSpec) -> Result<(), Reason> {
        let requests = self.requests(job, job.min_gpus, job.gpu_type);
        match find(&mut self.empty, &requests, &PlacementOptions::default()) {
            Found::Place(_) | Found::Lent(_) => Ok(()),
            Found::Nothing(denied) | Found::NoMachine(denied) => {
                Err(self.reason(job, job.min_gpus, denied.as_ref(), 0))
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
        self.look_at_nodes();
        (self.wanted, self.over_limit) = (None, None);
        let requests = self.requests(&job.spec, ask.gpus, ask.gpu_type);
        let open = self.open_machines(ask.constraint.map(|constraint| (constraint, cluster)));
        let slots = self.old_slots(job.spec.id);
        let terms = PlacementOptions {
            machines: open.as_ref(),
            slots: &slots,
            ..PlacementOptions::default()
        };
        let mut found = find(&mut self.cells, &requests, &terms);
        if !slots.is_empty() && matches!(found, Found::Nothing(_) | Found::NoMachine(_)) {
            // Where it was there are no machines for it any more.
            found = find(
                &mut self.cells,
                &requests,
                &PlacementOptions { slots: &[], ..terms },
            );
        }
        self.lacks_machines |= matches!(found, Found::NoMachine(_));
        match found {
            Found::Place(home) => {
                let found = self.allocation(&home.pods, ask).filter(|a| cluster.is_free(a));
                let found = found.ok_or(Reason::NotEnoughCpuOrMemory {
                    cpu_milli_per_gpu: ask.cpu_milli_per_gpu,
                    memory_mib_per_gpu: ask.memory_mib_per_gpu,
                })?;
                self.homes.insert(job.spec.id, home);
                Ok(found)
            }
            Found::Lent(groups) => {
                let victims: BTreeSet<JobKey> = groups.iter().flat_map(|id| self.jobs_of(*id)).collect();
                let borrowers = victims.len() as u32;
                self.wanted = Some((job.spec.id, victims));
                Err(self.reason(&job.spec, ask.gpus, None, borrowers))
            }
            Found::Nothing(denied) | Found::NoMachine(denied) => {
                if matches!(denied, Some(PlacementError::Wait(WaitReason::UserLimit { .. }))) {
                    self.over_limit = Some(job.spec.id);
                }
                Err(self.reason(&job.spec, ask.gpus, denied.as_ref(), 0))
            }
        }
    }

    fn may_use(&mut self, job: &Job, allocation: &Allocation) -> bool {
        let lent = self.was_lent(job.spec.id, allocation);
        let mark = self.cells.savepoint();
        let spec = &job.spec;
        let fits = match lent {
            true => self.lend(spec, allocation).is_some(),
            false => {
                let requests = self.requests(spec, allocation.gpus(), None);
                let allowed = requests
                    .first()
                    .is_none_or(|r| self.cells.check_user_limit(r).is_ok());
                allowed && self.may_go_back(spec.id, allocation) && self.occupy(spec, allocation).is_some()
            }
        };
        self.cells.rollback(mark);
        self.cells.commit_all();
        fits
    }

    /// Borrowers go where the cells say so, and not for one another: one that has to make room for an owner would otherwise
    /// drive out the next, and two would start again where one has to. Where the virtual cluster itself is full, the order
    /// decides among its jobs; where a user holds too much, among the user's.
    fn may_evict(&self, for_job: &Job, victim: &Job) -> bool {
        let (one, other) = (&for_job.spec, &victim.spec);
        if let Some((_, victims)) = self.wanted.as_ref().filter(|(job, _)| *job == one.id) {
            return victims.contains(&other.id);
        }
        if borrows(one) {
            return borrows(other) && one.priority > other.priority;
        }
        let same_user = self.over_limit != Some(one.id) || one.user == other.user;
        one.tenant == other.tenant && !self.gives_way(other) && same_user
    }

    /// With machines down or drained, others of the decision may have bound their cells to what a job cannot use.
    fn wants_retry(&mut self) -> bool {
        std::mem::take(&mut self.lacks_machines)
    }

    fn explain(&self, job: &Job, ask: &Ask) -> Vec<Reason> {
        self.why(job, ask)
    }
}

impl TenantAccounts for VirtualClusters {
    fn class(&self, job: &JobSpec) -> JobClass {
        match self.gives_way(job) {
            true => JobClass::Opportunistic,
            false => JobClass::Guaranteed,
        }
    }

    fn shape_key(&self, job: &JobSpec) -> u64 {
        let told_apart = self.vc(job.tenant).is_some_and(|vc| self.map.limits_users(vc));
        let user = if told_apart { u64::from(job.user.0) + 1 } else { 0 };
        user << 33 | self.account(job)
    }

    fn account(&self, job: &JobSpec) -> u64 {
        u64::from(job.tenant.0) << 1 | u64::from(borrows(job))
    }

    fn max_gpus(&self, job: &JobSpec) -> u32 {
        match self.vc(job.tenant) {
            _ if borrows(job) => u32::MAX,
            Some(vc) => self.map.owned(vc),
            None => 0,
        }
    }
}

impl TenancyLedger for VirtualClusters {
    fn allocated(&mut self, job: &JobSpec, allocation: &Allocation) {
        let mut lent = self.was_lent(job.id, allocation);
        let mut seat = match lent {
            true => None,
            false => self
                .join(job, allocation)
                .or_else(|| self.occupy(job, allocation)),
        };
        if seat.is_none() && (lent || self.carrying) {
            seat = self.lend(job, allocation);
            lent = !borrows(job);
        }
        match seat {
            Some(id) => self.enter(job.id, id),
            None => drop(self.strays.insert(job.id)),
        }
        if seat.is_some() && lent {
            self.downgraded.insert(job.id, job.clone());
        }
        self.homes.remove(&job.id);
        self.wanted = None;
    }

    fn released(&mut self, job: &JobSpec, allocation: &Allocation) {
        self.strays.remove(&job.id);
        if self.downgraded.remove(&job.id).is_some() {
            self.lent_before
                .extend(self.leaves(allocation).map(|leaves| (job.id, leaves)));
        }
        self.leave(job.id);
    }

    fn node_changed(&mut self, node: NodeId, state: &NodeState) {
        let (was_up, is_up) = (self.up.contains(&node), state.up);
        match is_up {
            true => self.up.insert(node),
            false => self.up.remove(&node),
        };
        match state.up && state.draining {
            true => self.draining.insert(node),
            false => self.draining.remove(&node),
        };
        if let Some(machine) = self
            .map
            .machine(node)
            .filter(|_| self.heard_of_nodes && was_up != is_up)
        {
            self.judge(machine);
        }
    }

    fn commit(&mut self) -> Vec<JobKey> {
        self.homes.clear();
        self.origins.clear();
        self.lent_before.clear();
        (self.wanted, self.over_limit, self.carrying) = (None, None, false);
        self.lacks_machines = false;
        self.promote()
    }

    fn downgraded(&self) -> Vec<JobKey> {
        self.downgraded.keys().copied().collect()
    }

    fn cell_at(&self, node: NodeId, slot: u32) -> Option<u32> {
        let (chain, leaf) = self.map.leaf_of(node, slot)?;
        self.cells.slot_of(chain, leaf).map(|slot| slot.0)
    }

    fn check(&self, holders: &mut dyn Iterator<Item = &Job>) -> Result<(), CheckError> {
        self.cells
            .check()
            .map_err(|what| CheckError::Ledger(what.to_string()))?;
        let mut known = 0;
        for job in holders {
            let id = job.spec.id;
            let group = self.groups.get(&id).and_then(|g| self.cells.group(*g));
            let group = group.ok_or_else(|| {
                CheckError::Ledger(format!("job {id} holds GPUs outside the cells of its tenant"))
            })?;
            let leaves = leaves_of(&group.pods);
            if job.allocation.as_ref().and_then(|a| self.leaves(a)) != Some(leaves) {
                return Err(CheckError::Ledger(format!(
                    "job {id} holds other GPUs than the books of the cells say"
                )));
            }
            let lent = self.downgraded.contains_key(&id);
            if (group.effective_priority() < 0) != (lent || borrows(&job.spec)) {
                return Err(CheckError::Ledger(format!(
                    "job {id} is guaranteed, but only borrows in the books of the cells"
                )));
            }
            known += 1;
        }
        let jobs: usize = self.members.values().map(Vec::len).sum();
        match jobs == known && self.members.len() == self.cells.groups().count() {
            true => Ok(()),
            false => Err(CheckError::Ledger(
                "the cells know jobs that hold nothing".to_owned(),
            )),
        }
    }
}

/// Where the GPUs of nodes are among the leaves.
pub(super) type Slots = IdVec<NodeId, Option<(ChainId, u32, MachineId)>>;
