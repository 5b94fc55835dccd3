//! Cells: a tenant owns parts of the cluster with a shape, such as eight GPUs on one machine, and lends them while it
//! sleeps. HiveD's virtual clusters, see crate `cells`.
//!
//! A job of priority 0 or more is *guaranteed*: it runs in the cells of its virtual cluster, where the order of the
//! policy decides among its jobs. A job of lower priority *borrows* whatever is idle, and gives way. The books of the
//! cells follow every step of a draft, forth and back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use dovetail_cells::{
    Cells, ChainId, Denied, GroupId, LeafType, MachineId, MachineSet, Outcome, Pod, Request, Terms, VcId,
    Wait,
};
use dovetail_engine::{Ask, Cluster, Job, Knowledge, NodeState, Part, Placement, Tenancy};
use dovetail_model::ids::IdVec;
use dovetail_model::{Allocation, GpuSet, GpuTypeId, JobId, JobSpec, NodeId, NodeShare, Reason, TenantId};
use serde_json::Value;

use super::cell_map::CellMap;
use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Tenancy> = Entry {
    name: "cells",
    what: "each tenant owns cells, parts of the cluster with a shape; jobs of negative priority borrow what is idle and give way",
    source: "HiveD (OSDI'20)",
    key: "guaranteed jobs in the tenant's cells, then borrowers",
    knowledge: Knowledge::None,
    knobs: &[Knob {
        name: "FILE",
        default: "",
        what: "HiveD's configuration; tenants are its virtual clusters",
    }],
    build: |knobs| Err(knobs.bad("FILE", "the name of a file, such as cells:cluster.yaml")),
};

/// Cells nobody uses, to find out what could ever fit. An attempt leaves no trace in them.
#[derive(Debug)]
struct Empty(Mutex<Cells>);

/// Virtual clusters that own cells.
#[derive(Debug, Clone)]
pub struct VirtualClusters {
    name: String,
    map: Arc<CellMap>,
    cells: Cells,
    empty: Arc<Empty>,
    groups: BTreeMap<JobId, GroupId>,
    /// Jobs whose GPUs are not theirs by the books: they were started under another tenancy.
    strays: BTreeSet<JobId>,
    /// Where jobs that were placed or thrown out in this decision belong in their virtual clusters.
    homes: BTreeMap<JobId, Vec<Pod>>,
    /// Who has to go for the job that was asked for last.
    wanted: Option<(JobId, BTreeSet<JobId>)>,
    up: BTreeSet<NodeId>,
    draining: BTreeSet<NodeId>,
    heard_of_nodes: bool,
}

/// Whether the job only borrows.
fn borrows(job: &JobSpec) -> bool {
    job.priority < 0
}

impl VirtualClusters {
    /// All cells free. `name` is how a user wrote it.
    pub fn new(name: String, map: Arc<CellMap>) -> Self {
        let cells = Cells::new(map.layout.clone());
        Self {
            name,
            empty: Arc::new(Empty(Mutex::new(cells.clone()))),
            cells,
            map,
            groups: BTreeMap::new(),
            strays: BTreeSet::new(),
            homes: BTreeMap::new(),
            wanted: None,
            up: BTreeSet::new(),
            draining: BTreeSet::new(),
            heard_of_nodes: false,
        }
    }

    fn vc(&self, tenant: TenantId) -> Option<VcId> {
        self.map.vcs.get(tenant).copied().flatten()
    }

    /// What to ask the cells for, the best first: whole machines and a rest, or what of them the tenant owns.
    fn requests(&self, job: &JobSpec, gpus: u32, gpu_type: Option<GpuTypeId>) -> Vec<Request> {
        let Some(vc) = self.vc(job.tenant) else {
            return Vec::new();
        };
        let kinds: Vec<LeafType> = match gpu_type {
            Some(kind) => self.map.kinds.get(kind).copied().flatten().into_iter().collect(),
            None => self.map.kinds.values().rev().copied().flatten().collect(),
        };
        let mut requests: Vec<Request> = Vec::new();
        for kind in kinds {
            for size in self.map.sizes(vc, kind, borrows(job)) {
                let mut request =
                    Request::gang(u64::from(job.id.0), vc, priority(job), kind, gpus / size, size);
                request.parts[0]
                    .pods
                    .extend((gpus % size > 0).then_some(gpus % size));
                if !requests.contains(&request) {
                    requests.push(request);
                }
            }
        }
        requests
    }

    /// The first request that can be met, or why none can. `wanted` hears of those who would have to go.
    fn find(
        cells: &mut Cells,
        requests: &[Request],
        open: Option<&MachineSet>,
        wanted: &mut Option<BTreeSet<JobId>>,
    ) -> Result<Vec<Pod>, Option<Denied>> {
        let terms = Terms {
            machines: open,
            lost: None,
        };
        let mut why = None;
        for request in requests {
            match cells.attempt(request, &terms) {
                Ok(attempt) => match attempt.outcome() {
                    Outcome::Placed => return Ok(attempt.group().pods.clone()),
                    Outcome::Preempting { victims } => {
                        let key = |id: &GroupId| attempt.cells().group(*id).map(|g| JobId(g.key as u32));
                        wanted.get_or_insert_with(|| victims.iter().filter_map(key).collect());
                    }
                },
                Err(denied) => why = why.or(Some(denied)),
            }
        }
        Err(why)
    }

    /// Machines that take new jobs; none if all do that are up.
    fn open_machines(&self) -> Option<MachineSet> {
        if self.draining.is_empty() {
            return None;
        }
        let closed: BTreeSet<MachineId> = self
            .draining
            .iter()
            .filter_map(|n| self.map.machine(*n))
            .collect();
        let mut open = MachineSet::new(self.map.layout.machines.len());
        let all = (0..self.map.layout.machines.len() as u32).map(MachineId);
        all.filter(|m| !closed.contains(m)).for_each(|m| open.insert(m));
        Some(open)
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

    fn allocation(&self, pods: &[Pod], ask: &Ask) -> Option<Allocation> {
        let mut sets: BTreeMap<NodeId, GpuSet> = BTreeMap::new();
        for pod in pods {
            for leaf in &pod.leaves {
                let (node, slot, slots) = self.map.slot_of(pod.chain, *leaf)?;
                sets.entry(node)
                    .or_insert_with(|| GpuSet::empty(slots))
                    .insert(slot);
            }
        }
        let share = |(node, gpus): (NodeId, GpuSet)| NodeShare {
            node,
            cpu_milli: ask.cpu_milli_per_gpu * gpus.count(),
            memory_mib: ask.memory_mib_per_gpu * u64::from(gpus.count()),
            gpus,
        };
        Some(Allocation {
            shares: sets.into_iter().map(share).collect(),
        })
    }

    /// The leaves of an allocation, by chain.
    fn leaves(&self, allocation: &Allocation) -> Option<BTreeSet<(ChainId, u32)>> {
        let mut leaves = BTreeSet::new();
        for share in &allocation.shares {
            for slot in share.gpus.iter() {
                leaves.insert(self.map.leaf_of(share.node, slot)?);
            }
        }
        Some(leaves)
    }

    /// Puts the job on just these GPUs in the books: where it was at home in this decision, or wherever it can be.
    fn occupy(&mut self, job: &JobSpec, allocation: &Allocation) -> Option<GroupId> {
        let leaves = self.leaves(allocation)?;
        let vc = self.vc(job.tenant)?;
        let mut request = Request::gang(u64::from(job.id.0), vc, priority(job), LeafType(0), 1, 1);
        let on = |pods: &[Pod]| -> BTreeSet<(ChainId, u32)> {
            let of_pod = |p: &Pod| p.leaves.iter().map(|l| (p.chain, *l)).collect::<Vec<_>>();
            pods.iter().flat_map(of_pod).collect()
        };
        if let Some(pods) = self.homes.get(&job.id).filter(|pods| on(pods) == leaves) {
            request.parts[0].pods = pods.iter().map(|p| p.size).collect();
            if let Some(id) = self.cells.occupy(&request, pods) {
                return Some(id);
            }
        }
        let mut pods: Vec<Pod> = Vec::new();
        for share in &allocation.shares {
            let (chain, _) = self.map.leaf_of(share.node, 0)?;
            let leaf = |slot: u32| self.map.leaf_of(share.node, slot).map(|(_, leaf)| leaf);
            pods.push(Pod {
                size: share.gpus.count(),
                chain,
                leaves: share.gpus.iter().filter_map(leaf).collect(),
                home: None,
            });
        }
        request.parts[0].pods = pods.iter().map(|p| p.size).collect();
        self.cells.occupy(&request, &pods)
    }

    fn reason(&self, job: &JobSpec, gpus: u32, denied: Option<Denied>, lent_to: u32) -> Reason {
        let available = match denied {
            Some(Denied::Waits(Wait::NoRoom { available, .. })) => available,
            _ => 0,
        };
        Reason::CellsInUse {
            tenant: job.tenant,
            borrows: borrows(job),
            asked: gpus,
            available,
            lent_to,
        }
    }
}

/// Inside a virtual cluster the order decides, so the cells know guaranteed jobs and borrowers only.
fn priority(job: &JobSpec) -> i16 {
    if borrows(job) { -1 } else { 0 }
}

impl Part for VirtualClusters {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn save(&self) -> Value {
        let pods = |(job, id): (&JobId, &GroupId)| Some((*job, self.cells.group(*id)?.pods.clone()));
        let all: Vec<(JobId, Vec<Pod>)> = self.groups.iter().filter_map(pods).collect();
        serde_json::to_value(all).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), String> {
        let all: Vec<(JobId, Vec<Pod>)> = serde_json::from_value(saved.clone())
            .map_err(|e| format!("{}: what it saved cannot be read: {e}", self.name))?;
        self.homes = all.into_iter().collect();
        Ok(())
    }
}

impl Tenancy for VirtualClusters {
    fn place(
        &mut self,
        job: &Job,
        ask: &Ask,
        cluster: &Cluster,
        _placement: &mut dyn Placement,
    ) -> Result<Allocation, Reason> {
        self.look_at_nodes();
        self.wanted = None;
        let requests = self.requests(&job.spec, ask.gpus, ask.gpu_type);
        let (mut victims, open) = (None, self.open_machines());
        match Self::find(&mut self.cells, &requests, open.as_ref(), &mut victims) {
            Ok(pods) => {
                let found = self.allocation(&pods, ask).filter(|a| cluster.is_free(a));
                let found = found.ok_or(Reason::NotEnoughCpuOrMemory {
                    cpu_milli_per_gpu: ask.cpu_milli_per_gpu,
                    memory_mib_per_gpu: ask.memory_mib_per_gpu,
                })?;
                self.homes.insert(job.spec.id, pods);
                Ok(found)
            }
            Err(denied) => {
                let lent_to = victims.as_ref().map_or(0, |v| v.len() as u32);
                self.wanted = victims.map(|victims| (job.spec.id, victims));
                Err(self.reason(&job.spec, ask.gpus, denied, lent_to))
            }
        }
    }

    fn limits(&self) -> bool {
        true
    }

    fn ever(&self, job: &JobSpec) -> Result<(), Reason> {
        let requests = self.requests(job, job.min_gpus, job.gpu_type);
        let mut empty = self.empty.0.lock().unwrap_or_else(PoisonError::into_inner);
        match Self::find(&mut empty, &requests, None, &mut None) {
            Ok(_) => Ok(()),
            Err(denied) => Err(self.reason(job, job.min_gpus, denied, 0)),
        }
    }

    fn class(&self, job: &JobSpec) -> u8 {
        u8::from(borrows(job))
    }

    fn may_use(&mut self, job: &Job, allocation: &Allocation) -> bool {
        let mark = self.cells.checkpoint();
        let fits = self.occupy(&job.spec, allocation).is_some();
        self.cells.rollback(mark);
        self.cells.seal();
        fits
    }

    fn shape_key(&self, job: &JobSpec) -> u64 {
        u64::from(job.tenant.0) << 1 | u64::from(borrows(job))
    }

    /// Borrowers go where the cells say so. Where the virtual cluster itself is full, the order decides among its jobs.
    fn may_evict(&self, for_job: &Job, victim: &Job) -> bool {
        let (one, other) = (&for_job.spec, &victim.spec);
        match &self.wanted {
            Some((job, victims)) if *job == one.id => victims.contains(&other.id),
            _ if borrows(one) => borrows(other),
            _ => one.tenant == other.tenant && !borrows(other),
        }
    }

    fn taken(&mut self, job: &JobSpec, allocation: &Allocation) {
        match self.occupy(job, allocation) {
            Some(id) => drop(self.groups.insert(job.id, id)),
            None => drop(self.strays.insert(job.id)),
        }
        self.homes.remove(&job.id);
        self.wanted = None;
    }

    fn released(&mut self, job: &JobSpec, _allocation: &Allocation) {
        self.strays.remove(&job.id);
        if let Some(id) = self.groups.remove(&job.id) {
            if let Some(group) = self.cells.group(id) {
                self.homes.insert(job.id, group.pods.clone());
            }
            self.cells.release(id);
        }
    }

    fn node(&mut self, node: NodeId, state: &NodeState) {
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

    fn decided(&mut self) {
        self.homes.clear();
        self.wanted = None;
    }

    fn check(&self, holders: &mut dyn Iterator<Item = &Job>) -> Result<(), String> {
        self.cells.check()?;
        let mut known = 0;
        for job in holders {
            let id = job.spec.id;
            let group = self.groups.get(&id).and_then(|g| self.cells.group(*g));
            let group =
                group.ok_or_else(|| format!("job {id} holds GPUs outside the cells of its tenant"))?;
            let pods = group.pods.iter();
            let leaves: BTreeSet<(ChainId, u32)> = pods
                .flat_map(|p| p.leaves.iter().map(|l| (p.chain, *l)))
                .collect();
            if job.allocation.as_ref().and_then(|a| self.leaves(a)) != Some(leaves) {
                return Err(format!(
                    "job {id} holds other GPUs than the books of the cells say"
                ));
            }
            if group.effective() != priority(&job.spec) {
                return Err(format!(
                    "job {id} is guaranteed, but only borrows in the books of the cells"
                ));
            }
            known += 1;
        }
        match self.cells.groups().count() == known {
            true => Ok(()),
            false => Err("the cells know jobs that hold nothing".to_owned()),
        }
    }
}

/// Where the GPUs of nodes are among the leaves.
pub(super) type Slots = IdVec<NodeId, Option<(ChainId, u32, MachineId)>>;
