//! The ledger of the cells: what a job asks of them, and which job is on which leaves.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cells::{
    Cells, ChainId, GroupId, LeafType, MachineId, MachineSet, Outcome, PlacementError, PlacementOptions, Pod,
    Request, SlotId, Target, VcId, WaitReason,
};
use dovetail_engine::{Ask, CheckError, Cluster, Job};
use dovetail_model::{
    Allocation, GpuSet, GpuTypeId, JobKey, JobSpec, NodeConstraintId, NodeId, NodeShare, TenantId,
};

use super::cell_map::SharedCells;
use super::group_placement::{GroupPlacement, Leaves, leaves_of};

/// Most ways to cut an allocation into pods that are tried.
const MAX_CUTS: usize = 64;

/// The result of a search for a placement.
pub(super) enum SearchResult {
    /// There is a placement.
    Placed(GroupPlacement),
    /// There is a placement if these groups, which borrow, are preempted.
    Borrowed(Vec<GroupId>),
    /// There is no placement.
    NoRoom(Option<PlacementError>),
    /// The virtual cluster has room, but there is no healthy machine for it.
    NoMachine(Option<PlacementError>),
}

/// Whether the job was submitted as a borrower.
pub(super) fn is_borrower(job: &JobSpec) -> bool {
    job.priority < 0
}

/// Returns the priority of a job in the cells. Inside a virtual cluster the order decides, so there are only two.
fn priority(job: &JobSpec) -> i16 {
    if is_borrower(job) { -1 } else { 0 }
}

/// Searches for the first request that can be met, else for the first that can be met by preempting borrowers.
pub(super) fn search(
    cells: &mut Cells,
    requests: &[Request],
    options: &PlacementOptions<'_>,
) -> SearchResult {
    let (mut borrowed, mut error, mut lacks_machines) = (None, None, false);
    for request in requests {
        let attempt = cells.try_place(request, options);
        lacks_machines |= matches!(
            attempt,
            Err(PlacementError::Wait(
                WaitReason::NoHealthyCell { .. }
                    | WaitReason::NoRoom {
                        borrower: false,
                        unusable: 1..,
                        ..
                    }
            ))
        );
        match attempt {
            Ok(attempt) => match attempt.outcome() {
                Outcome::Placed => {
                    let placement = GroupPlacement::new(attempt.cells(), &attempt.group().pods);
                    return SearchResult::Placed(placement);
                }
                Outcome::Preempting { victims } => drop(borrowed.get_or_insert_with(|| victims.clone())),
            },
            // Missing room is a better explanation than a type of cell that the tenant does not own.
            Err(wait @ PlacementError::Wait(_)) if !matches!(error, Some(PlacementError::Wait(_))) => {
                error = Some(wait);
            }
            Err(other) => error = error.or(Some(other)),
        }
    }
    match borrowed {
        Some(groups) => SearchResult::Borrowed(groups),
        None if lacks_machines => SearchResult::NoMachine(error),
        None => SearchResult::NoRoom(error),
    }
}

/// The cells, and the jobs in them.
#[derive(Debug, Clone)]
pub(super) struct CellLedger {
    pub(super) map: SharedCells,
    pub(super) cells: Cells,
    /// Users by id, as the cells number them.
    users: Vec<Option<u32>>,
    /// The group of each job.
    pub(super) groups: BTreeMap<JobKey, GroupId>,
    /// The jobs of each group.
    pub(super) members: BTreeMap<GroupId, Vec<JobKey>>,
    /// Groups by the first of their leaves.
    first_leaves: BTreeMap<(ChainId, u32), GroupId>,
    /// Guaranteed jobs that borrow, because what their tenants own has changed.
    pub(super) downgraded: BTreeMap<JobKey, JobSpec>,
    /// Where jobs that were placed or evicted in this decision belong in their virtual clusters.
    pub(super) placements: BTreeMap<JobKey, GroupPlacement>,
    /// Where jobs that were evicted in this decision were when it began.
    initial_placements: BTreeMap<JobKey, GroupPlacement>,
    pub(super) draining: BTreeSet<NodeId>,
}

impl CellLedger {
    /// Returns a ledger in which all cells are free.
    pub(super) fn new(map: SharedCells) -> Self {
        let mut cells = Cells::new(map.layout.clone());
        // Downgraded jobs are promoted between decisions, not in the middle of a draft.
        cells.set_repromotion(false);
        let names = map.users.iter().enumerate();
        let users = names
            .map(|(i, name)| (i > 0).then(|| cells.user_id(name)))
            .collect();
        Self {
            map,
            cells,
            users,
            groups: BTreeMap::new(),
            members: BTreeMap::new(),
            first_leaves: BTreeMap::new(),
            downgraded: BTreeMap::new(),
            placements: BTreeMap::new(),
            initial_placements: BTreeMap::new(),
            draining: BTreeSet::new(),
        }
    }

    /// Forgets where jobs were during this decision.
    pub(super) fn end_decision(&mut self) {
        self.placements.clear();
        self.initial_placements.clear();
    }

    /// Returns the virtual cluster of a tenant.
    pub(super) fn vc(&self, tenant: TenantId) -> Option<VcId> {
        self.map.vcs.get(tenant).copied().flatten()
    }

    /// Returns the number of a job's user, where users have limits.
    fn user(&self, job: &JobSpec, vc: VcId) -> Option<u32> {
        let known = self.users.get(job.user.0 as usize).copied().flatten();
        known.filter(|_| self.map.limits_users(vc))
    }

    /// Returns what to request from the cells, best first: whole machines and a rest, or the parts of machines that the
    /// tenant owns; its pinned cells last.
    pub(super) fn requests(&self, job: &JobSpec, gpus: u32, gpu_type: Option<GpuTypeId>) -> Vec<Request> {
        let Some(vc) = self.vc(job.tenant) else {
            return Vec::new();
        };
        let kinds: Vec<LeafType> = match gpu_type {
            Some(kind) => self.map.leaf_types.get(kind).cloned().unwrap_or_default(),
            None => self.map.leaf_types.values().rev().flatten().copied().collect(),
        };
        let mut requests: Vec<Request> = Vec::new();
        let mut add = |target: Target, kind: LeafType, size: u32| {
            let mut request = Request::gang(u64::from(job.id.0), vc, priority(job), kind, gpus / size, size);
            request.user = self.user(job, vc);
            let set = &mut request.pod_sets[0];
            set.target = target;
            let rest = gpus % size;
            set.pods.extend((rest > 0).then_some(rest));
            if !requests.contains(&request) {
                requests.push(request);
            }
        };
        for kind in &kinds {
            for size in whole_tasks(self.map.sizes(vc, *kind, is_borrower(job)), job.gpus_per_task) {
                add(Target::Leaf(*kind), *kind, size);
            }
        }
        for kind in kinds.iter().filter(|_| !is_borrower(job)) {
            for (view, size) in self.map.pinned(vc, *kind) {
                for size in whole_tasks(std::iter::once(size), job.gpus_per_task) {
                    add(Target::Pinned(view), *kind, size);
                }
            }
        }
        requests
    }

    /// Returns the type of the cells of a level that the tenant of a job owns.
    pub(super) fn cell_type(&self, job: &JobSpec, level: usize) -> String {
        let vc = self.vc(job.tenant).map(|vc| &self.map.layout.vcs[vc.index()]);
        let mut chains = vc.into_iter().flat_map(|vc| vc.views.keys());
        let kind = chains.find_map(|chain| self.map.layout.chain(*chain).types.get(level));
        kind.map_or_else(|| "cell".to_owned(), Clone::clone)
    }

    /// Returns the jobs of a group.
    pub(super) fn jobs_of(&self, id: GroupId) -> impl Iterator<Item = JobKey> {
        self.members.get(&id).into_iter().flatten().copied()
    }

    /// Returns the machines that accept new jobs and satisfy the node constraint; `None` if all healthy ones do.
    pub(super) fn open_machines(
        &self,
        constraint: Option<(NodeConstraintId, &Cluster)>,
    ) -> Option<MachineSet> {
        if self.draining.is_empty() && constraint.is_none() {
            return None;
        }
        let closed: BTreeSet<MachineId> = self
            .draining
            .iter()
            .filter_map(|n| self.map.machine(*n))
            .collect();
        let admits = |node: &NodeId| {
            let node = |cluster: &'_ Cluster, constraint| {
                cluster.node(*node).is_none_or(|n| n.admits(Some(constraint)))
            };
            constraint.is_none_or(|(constraint, cluster)| node(cluster, constraint))
        };
        let mut open = MachineSet::new(self.map.layout.machines.len());
        let all = (0..self.map.layout.machines.len() as u32).map(MachineId);
        let is_open = |m: &MachineId| !closed.contains(m) && self.map.nodes_of(*m).iter().all(admits);
        all.filter(is_open).for_each(|m| open.insert(m));
        Some(open)
    }

    /// Returns the GPUs of these pods, with the CPU and memory of the ask.
    pub(super) fn allocation(&self, pods: &[Pod], ask: &Ask) -> Option<Allocation> {
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

    /// Returns the leaves of an allocation; `None` if one of its GPUs is in no cell.
    pub(super) fn leaves(&self, allocation: &Allocation) -> Option<Leaves> {
        let mut leaves = BTreeSet::new();
        for share in &allocation.shares {
            for slot in share.gpus.iter() {
                leaves.insert(self.map.leaf_of(share.node, slot)?);
            }
        }
        Some(leaves)
    }

    /// Returns the group that holds exactly these GPUs, if it belongs to the account of the job.
    pub(super) fn group_on(&self, job: &JobSpec, allocation: &Allocation) -> Option<GroupId> {
        let leaves = self.leaves(allocation)?;
        let id = *self.first_leaves.get(leaves.first()?)?;
        let group = self.cells.group(id)?;
        let same = Some(group.vc) == self.vc(job.tenant) && group.priority == priority(job);
        (same && leaves_of(&group.pods) == leaves).then_some(id)
    }

    /// Returns the placement of the job in this decision, present or past, that has exactly these leaves.
    fn placement_on(&self, job: JobKey, leaves: &Leaves) -> Option<&GroupPlacement> {
        let known = [self.placements.get(&job), self.initial_placements.get(&job)];
        known
            .into_iter()
            .flatten()
            .find(|placement| leaves_of(&placement.pods) == *leaves)
    }

    /// Whether the job may return to these GPUs as far as its own virtual cluster is concerned: no slot of it was bound to
    /// another cell since.
    pub(super) fn may_return_to(&self, job: JobKey, allocation: &Allocation) -> bool {
        let leaves = self.leaves(allocation).unwrap_or_default();
        self.placement_on(job, &leaves)
            .is_none_or(|placement| placement.is_available(&self.cells))
    }

    /// Returns the slots the job was in when this decision began, which are tried first.
    pub(super) fn initial_slots(&self, job: JobKey) -> Vec<SlotId> {
        let placement = self.initial_placements.get(&job);
        placement.map_or_else(Vec::new, GroupPlacement::slots)
    }

    /// Puts the job on exactly these GPUs: in the slots it had on them in this decision, else in any slots.
    pub(super) fn occupy(&mut self, job: &JobSpec, allocation: &Allocation) -> Option<GroupId> {
        let leaves = self.leaves(allocation)?;
        let vc = self.vc(job.tenant)?;
        let mut request = Request::gang(u64::from(job.id.0), vc, priority(job), LeafType(0), 1, 1);
        request.user = self.user(job, vc);
        if let Some(placement) = self.placement_on(job.id, &leaves).cloned() {
            request.pod_sets[0].pods = placement.pods.iter().map(|p| p.size).collect();
            let (pods, slots) = (&placement.pods, &placement.slots);
            if let Some(id) = self.cells.occupy_in_slots(&request, pods, slots) {
                return Some(id);
            }
        }
        self.occupy_any_slots(request, allocation)
    }

    /// Puts the job on exactly these GPUs as a borrower.
    pub(super) fn occupy_as_borrower(&mut self, job: &JobSpec, allocation: &Allocation) -> Option<GroupId> {
        // Any virtual cluster will do: a borrower is counted in none.
        let vc = self.vc(job.tenant).unwrap_or_default();
        self.map.layout.vcs.get(vc.index())?;
        let request = Request::gang(u64::from(job.id.0), vc, -1, LeafType(0), 1, 1);
        self.occupy_any_slots(request, allocation)
    }

    /// Puts a group on these GPUs, cut into pods as large as possible: machines, or smaller cells of some of them.
    fn occupy_any_slots(&mut self, mut request: Request, allocation: &Allocation) -> Option<GroupId> {
        let leaves = self.leaves(allocation)?;
        let levels = leaves
            .iter()
            .map(|(chain, _)| self.map.layout.chain(*chain).node_level);
        let (levels, machines) = (levels.max()?, allocation.shares.len());
        let cuts = (1..=levels).flat_map(|down| (0..machines).rev().map(move |whole| (down, whole)));
        for (down, whole) in std::iter::once((0, machines)).chain(cuts).take(MAX_CUTS) {
            let pods = self.cut(&leaves, down, whole);
            request.pod_sets[0].pods = pods.iter().map(|p| p.size).collect();
            if let Some(id) = self.cells.occupy(&request, &pods) {
                return Some(id);
            }
        }
        None
    }

    /// Cuts leaves into pods: the first `whole` machines are one pod each, the others are cut into cells `down` levels below.
    fn cut(&self, leaves: &Leaves, down: usize, whole: usize) -> Vec<Pod> {
        let mut pods: BTreeMap<(ChainId, u32, u32), Pod> = BTreeMap::new();
        let mut seen: BTreeSet<(ChainId, u32)> = BTreeSet::new();
        for (chain, leaf) in leaves {
            let layout = self.map.layout.chain(*chain);
            let machine = layout.ancestor(*leaf, 0, layout.node_level);
            seen.insert((*chain, machine));
            let level = layout
                .node_level
                .saturating_sub(if seen.len() <= whole { 0 } else { down });
            let cell = layout.ancestor(*leaf, 0, level);
            let pod = pods.entry((*chain, machine, cell)).or_insert_with(|| Pod {
                size: 0,
                chain: *chain,
                leaves: Default::default(),
                home: None,
            });
            pod.leaves.push(*leaf);
            pod.size += 1;
        }
        pods.into_values().collect()
    }

    /// Records that the job is in a group.
    pub(super) fn enter(&mut self, job: JobKey, id: GroupId) {
        self.groups.insert(job, id);
        self.members.entry(id).or_default().push(job);
        let first = self
            .cells
            .group(id)
            .and_then(|g| leaves_of(&g.pods).first().copied());
        self.first_leaves.extend(first.map(|leaf| (leaf, id)));
    }

    /// Removes the job from its group, and releases the leaves of a group without jobs.
    pub(super) fn leave(&mut self, job: JobKey) {
        let Some(id) = self.groups.remove(&job) else {
            return;
        };
        let pods = self.cells.group(id).map_or(&[][..], |g| &g.pods);
        let first = leaves_of(pods).first().copied();
        let placement = GroupPlacement::new(&self.cells, pods);
        self.initial_placements
            .entry(job)
            .or_insert_with(|| placement.clone());
        self.placements.insert(job, placement);
        let members = self.members.entry(id).or_default();
        members.retain(|member| *member != job);
        if members.is_empty() {
            self.members.remove(&id);
            first.map(|leaf| self.first_leaves.remove(&leaf));
            self.cells.release(id);
        }
    }

    /// Makes downgraded jobs guaranteed again where their virtual clusters have room for them, without moving them. Returns
    /// those jobs.
    pub(super) fn promote(&mut self) -> Vec<JobKey> {
        let mut promoted = Vec::new();
        for job in self.downgraded.keys().copied().collect::<Vec<_>>() {
            let spec = self.downgraded[&job].clone();
            let Some(id) = self.groups.get(&job).copied() else {
                continue;
            };
            let (Some(vc), Some(group)) = (self.vc(spec.tenant), self.cells.group(id)) else {
                continue;
            };
            let pods: Vec<Pod> = group.pods.clone();
            let mut request = Request::gang(u64::from(job.0), vc, priority(&spec), LeafType(0), 1, 1);
            request.user = self.user(&spec, vc);
            request.pod_sets[0].pods = pods.iter().map(|p| p.size).collect();
            if self.cells.check_user_limit(&request).is_err() {
                continue;
            }
            let mark = self.cells.savepoint();
            self.cells.release(id);
            match self.cells.occupy(&request, &pods) {
                None => self.cells.rollback(mark),
                Some(new) => {
                    let members = self.members.remove(&id).unwrap_or_default();
                    for member in members {
                        self.enter(member, new);
                    }
                    self.downgraded.remove(&job);
                    promoted.push(job);
                }
            }
            self.cells.commit_all();
        }
        promoted
    }

    /// Checks that the cells are consistent, and agree with what these jobs hold.
    pub(super) fn check(&self, holders: &mut dyn Iterator<Item = &Job>) -> Result<(), CheckError> {
        self.cells.check().map_err(inconsistent)?;
        let mut known = 0;
        for job in holders {
            let id = job.spec.id;
            let group = self.groups.get(&id).and_then(|g| self.cells.group(*g));
            let group = group.ok_or_else(|| {
                inconsistent(format!("job {id} holds GPUs outside the cells of its tenant"))
            })?;
            if job.allocation.as_ref().and_then(|a| self.leaves(a)) != Some(leaves_of(&group.pods)) {
                let message = format!("job {id} holds other GPUs than the cells record");
                return Err(inconsistent(message));
            }
            let borrows = is_borrower(&job.spec) || self.downgraded.contains_key(&id);
            if (group.effective_priority() < 0) != borrows {
                let message = format!("job {id} is recorded in the cells with the wrong priority");
                return Err(inconsistent(message));
            }
            known += 1;
        }
        let jobs: usize = self.members.values().map(Vec::len).sum();
        match jobs == known && self.members.len() == self.cells.groups().count() {
            true => Ok(()),
            false => Err(inconsistent("the cells record jobs that hold no GPUs")),
        }
    }
}

/// An inconsistency between the ledger and what jobs hold.
fn inconsistent(message: impl ToString) -> CheckError {
    CheckError::Ledger(message.to_string())
}

/// Returns the sizes of pods that hold whole tasks, and the size of one task.
fn whole_tasks(sizes: impl IntoIterator<Item = u32>, gpus_per_task: u32) -> Vec<u32> {
    if gpus_per_task <= 1 {
        return sizes.into_iter().collect();
    }
    let is_whole = |size: &u32| size.is_multiple_of(gpus_per_task);
    let mut sizes: Vec<u32> = sizes.into_iter().filter(is_whole).collect();
    if !sizes.contains(&gpus_per_task) {
        sizes.push(gpus_per_task);
    }
    sizes
}
