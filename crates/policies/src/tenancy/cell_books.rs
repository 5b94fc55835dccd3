//! The books of the cells: what a job asks of them, and who is on which leaves.

use std::collections::{BTreeMap, BTreeSet};

use super::cell_home::{Home, Leaves, leaves_of};
use super::cells::{VirtualClusters, borrows};
use dovetail_cells::{
    Cells, ChainId, GroupId, LeafType, MachineId, MachineSet, Outcome, PlacementError, PlacementOptions, Pod,
    Request, SlotId, Target, VcId, WaitReason,
};
use dovetail_engine::{Ask, Cluster};
use dovetail_model::{
    Allocation, GpuSet, GpuTypeId, JobKey, JobSpec, NodeConstraintId, NodeId, NodeShare, TenantId,
};

/// Ways to cut GPUs into pods that are tried.
const CUTS: usize = 64;

/// What came of looking for a place.
pub(super) enum Found {
    /// Here is one.
    Place(Home),
    /// There would be one without these groups, which only borrow.
    Lent(Vec<GroupId>),
    /// There is none.
    Nothing(Option<PlacementError>),
    /// There is room in the virtual cluster, but no healthy machine for it.
    NoMachine(Option<PlacementError>),
}

/// Inside a virtual cluster the order decides, so the cells know guaranteed jobs and borrowers only.
pub(super) fn priority(job: &JobSpec) -> i16 {
    if borrows(job) { -1 } else { 0 }
}

/// The first request that can be met, or who would have to go, or why none can.
pub(super) fn find(cells: &mut Cells, requests: &[Request], terms: &PlacementOptions<'_>) -> Found {
    let (mut lent, mut why, mut lacks_machines) = (None, None, false);
    for request in requests {
        let attempt = cells.try_place(request, terms);
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
                Outcome::Placed => return Found::Place(Home::new(attempt.cells(), &attempt.group().pods)),
                Outcome::Preempting { victims } => drop(lent.get_or_insert_with(|| victims.clone())),
            },
            // That there is no room says more than that it owns nothing of the kind.
            Err(denied @ PlacementError::Wait(_)) if !matches!(why, Some(PlacementError::Wait(_))) => {
                why = Some(denied)
            }
            Err(denied) => why = why.or(Some(denied)),
        }
    }
    match lent {
        Some(groups) => Found::Lent(groups),
        None if lacks_machines => Found::NoMachine(why),
        None => Found::Nothing(why),
    }
}

impl VirtualClusters {
    pub(super) fn vc(&self, tenant: TenantId) -> Option<VcId> {
        self.map.vcs.get(tenant).copied().flatten()
    }

    /// The number of a job's user, where users are told apart.
    fn user(&self, job: &JobSpec, vc: VcId) -> Option<u32> {
        let known = self.users.get(job.user.0 as usize).copied().flatten();
        known.filter(|_| self.map.limits_users(vc))
    }

    /// What to ask the cells for, the best first: whole machines and a rest, or what of them the tenant owns; at last its
    /// pinned cells.
    pub(super) fn requests(&self, job: &JobSpec, gpus: u32, gpu_type: Option<GpuTypeId>) -> Vec<Request> {
        let Some(vc) = self.vc(job.tenant) else {
            return Vec::new();
        };
        let kinds: Vec<LeafType> = match gpu_type {
            Some(kind) => self.map.kinds.get(kind).cloned().unwrap_or_default(),
            None => self.map.kinds.values().rev().flatten().copied().collect(),
        };
        let mut requests: Vec<Request> = Vec::new();
        let mut ask = |target: Target, kind: LeafType, size: u32| {
            let mut request = Request::gang(u64::from(job.id.0), vc, priority(job), kind, gpus / size, size);
            request.user = self.user(job, vc);
            let part = &mut request.pod_sets[0];
            part.target = target;
            let rest = gpus % size;
            part.pods.extend((rest > 0).then_some(rest));
            if !requests.contains(&request) {
                requests.push(request);
            }
        };
        for kind in &kinds {
            for size in whole(self.map.sizes(vc, *kind, borrows(job)), job.gpus_per_task) {
                ask(Target::Leaf(*kind), *kind, size);
            }
        }
        for kind in kinds.iter().filter(|_| !borrows(job)) {
            for (view, size) in self.map.pinned(vc, *kind) {
                for size in whole(std::iter::once(size), job.gpus_per_task) {
                    ask(Target::Pinned(view), *kind, size);
                }
            }
        }
        requests
    }

    /// The jobs of a group.
    pub(super) fn jobs_of(&self, id: GroupId) -> impl Iterator<Item = JobKey> {
        self.members.get(&id).into_iter().flatten().copied()
    }

    /// Machines that take new jobs, of those that may take this one; none if all do that are up.
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
        let takes = |m: &MachineId| !closed.contains(m) && self.map.nodes_of(*m).iter().all(admits);
        all.filter(takes).for_each(|m| open.insert(m));
        Some(open)
    }

    /// The GPUs of these pods with what the ask wants beside them.
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

    /// The leaves of an allocation.
    pub(super) fn leaves(&self, allocation: &Allocation) -> Option<Leaves> {
        let mut leaves = BTreeSet::new();
        for share in &allocation.shares {
            for slot in share.gpus.iter() {
                leaves.insert(self.map.leaf_of(share.node, slot)?);
            }
        }
        Some(leaves)
    }

    /// Puts the job beside those of its account who are on just these GPUs.
    pub(super) fn join(&mut self, job: &JobSpec, allocation: &Allocation) -> Option<GroupId> {
        let leaves = self.leaves(allocation)?;
        let id = *self.first_leaves.get(leaves.first()?)?;
        let group = self.cells.group(id)?;
        let same = Some(group.vc) == self.vc(job.tenant) && group.priority == priority(job);
        (same && leaves_of(&group.pods) == leaves).then_some(id)
    }

    /// Where the job is to be or was in this decision, if that is on these leaves.
    fn home(&self, job: JobKey, leaves: &Leaves) -> Option<&Home> {
        let known = [self.homes.get(&job), self.origins.get(&job)];
        known
            .into_iter()
            .flatten()
            .find(|home| leaves_of(&home.pods) == *leaves)
    }

    /// Whether the job may go back to these GPUs, as far as its own virtual cluster is concerned: nobody took its slots
    /// elsewhere.
    pub(super) fn may_go_back(&self, job: JobKey, allocation: &Allocation) -> bool {
        let leaves = self.leaves(allocation).unwrap_or_default();
        self.home(job, &leaves)
            .is_none_or(|home| home.is_open(&self.cells))
    }

    /// The slots the job was in when this decision began: it had better stay there.
    pub(super) fn old_slots(&self, job: JobKey) -> Vec<SlotId> {
        self.origins.get(&job).map_or_else(Vec::new, Home::slots)
    }

    /// Puts the job on just these GPUs: where it was at home in this decision, or wherever it can be.
    pub(super) fn occupy(&mut self, job: &JobSpec, allocation: &Allocation) -> Option<GroupId> {
        let leaves = self.leaves(allocation)?;
        let vc = self.vc(job.tenant)?;
        let mut request = Request::gang(u64::from(job.id.0), vc, priority(job), LeafType(0), 1, 1);
        request.user = self.user(job, vc);
        if let Some(home) = self.home(job.id, &leaves).cloned() {
            request.pod_sets[0].pods = home.pods.iter().map(|p| p.size).collect();
            if let Some(id) = self.cells.occupy_in_slots(&request, &home.pods, &home.slots) {
                return Some(id);
            }
        }
        self.occupy_anew(request, allocation)
    }

    /// Lets the job go on where it is as one that borrows.
    pub(super) fn lend(&mut self, job: &JobSpec, allocation: &Allocation) -> Option<GroupId> {
        // Who pays for a borrower does not matter: no virtual cluster counts it.
        let vc = self.vc(job.tenant).unwrap_or_default();
        self.map.layout.vcs.get(vc.index())?;
        let request = Request::gang(u64::from(job.id.0), vc, -1, LeafType(0), 1, 1);
        self.occupy_anew(request, allocation)
    }

    /// Puts a group on these GPUs, cut into pods as large as can be: machines, or smaller cells of some of them.
    fn occupy_anew(&mut self, mut request: Request, allocation: &Allocation) -> Option<GroupId> {
        let leaves = self.leaves(allocation)?;
        let levels = leaves
            .iter()
            .map(|(chain, _)| self.map.layout.chain(*chain).node_level);
        let (levels, machines) = (levels.max()?, allocation.shares.len());
        let cuts = (1..=levels).flat_map(|down| (0..machines).rev().map(move |whole| (down, whole)));
        for (down, whole) in std::iter::once((0, machines)).chain(cuts).take(CUTS) {
            let pods = self.cut(&leaves, down, whole);
            request.pod_sets[0].pods = pods.iter().map(|p| p.size).collect();
            if let Some(id) = self.cells.occupy(&request, &pods) {
                return Some(id);
            }
        }
        None
    }

    /// Leaves as pods: the first machines whole, the others cut into cells so many levels further down.
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

    /// Writes down that the job is in a group.
    pub(super) fn enter(&mut self, job: JobKey, id: GroupId) {
        self.groups.insert(job, id);
        self.members.entry(id).or_default().push(job);
        let first = self
            .cells
            .group(id)
            .and_then(|g| leaves_of(&g.pods).first().copied());
        self.first_leaves.extend(first.map(|leaf| (leaf, id)));
    }

    /// Takes the job out of its group; the last one to go gives the leaves back.
    pub(super) fn leave(&mut self, job: JobKey) {
        let Some(id) = self.groups.remove(&job) else {
            return;
        };
        let pods = self.cells.group(id).map_or(&[][..], |g| &g.pods);
        let first = leaves_of(pods).first().copied();
        let home = Home::new(&self.cells, pods);
        self.origins.entry(job).or_insert_with(|| home.clone());
        self.homes.insert(job, home);
        let left = self.members.entry(id).or_default();
        left.retain(|member| *member != job);
        if left.is_empty() {
            self.members.remove(&id);
            first.map(|leaf| self.first_leaves.remove(&leaf));
            self.cells.release(id);
        }
    }

    /// Gives downgraded jobs their place in their virtual cluster back, where it has room for them again. They are not
    /// moved.
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
}

/// Of these sizes of pods those that hold whole bundles, and a bundle by itself.
fn whole(sizes: impl IntoIterator<Item = u32>, bundle: u32) -> Vec<u32> {
    if bundle <= 1 {
        return sizes.into_iter().collect();
    }
    let mut sizes: Vec<u32> = sizes.into_iter().filter(|size| size % bundle == 0).collect();
    if !sizes.contains(&bundle) {
        sizes.push(bundle);
    }
    sizes
}
