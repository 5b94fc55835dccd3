//! Schedules groups of pods by name, pod by pod: the first pod of a group decides for all of them.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cells::{
    Cells, Explanation, GroupId, GroupState, MachineId, MachineSet, Outcome, PlacementError,
    PlacementOptions, PodSet, Request, Target, join_names,
};

use crate::answer::{Answer, Phase, UserError};
use crate::place::{GroupView, Place, bind_answer};
use crate::pod_spec::{PodGroup, PodSpec};

/// Names of removed groups are dropped when there are more names than this, and four times as many as groups.
const MIN_NAMES: usize = 64;

/// A group that holds or claims cells.
#[derive(Debug, Clone)]
pub(crate) struct GroupRecord {
    pub(crate) id: GroupId,
    /// Request of its first pod.
    pub(crate) spec: PodSpec,
    /// Cell chain of its places.
    pub(crate) chain: String,
    /// Places of its pods. They do not change, even when the configuration does.
    pub(crate) places: Vec<Place>,
    /// The pod on each place.
    pub(crate) pods: Vec<Option<String>>,
    /// Pods that arrived while the group waits for its victims.
    pub(crate) waiting: BTreeSet<String>,
}

/// Groups of pods on cells, by name.
#[derive(Debug, Clone)]
pub struct GroupScheduler {
    pub(crate) cells: Cells,
    pub(crate) groups: BTreeMap<String, GroupRecord>,
    /// Names of groups, by key in the cells.
    pub(crate) names: BTreeMap<u64, String>,
    /// Group and place of each pod that has started.
    pub(crate) pods: BTreeMap<String, (String, usize)>,
    pub(crate) next_key: u64,
}

/// The request of one pod, as Kubernetes sends it.
struct PodRequest<'a> {
    pod: &'a str,
    /// Leaf cells of the pod.
    size: u32,
    phase: Phase,
    /// Machines that may be used; `None` for all.
    machines: Option<MachineSet>,
    commit: bool,
}

impl GroupScheduler {
    /// Returns a scheduler without pods.
    pub fn new(cells: Cells) -> Self {
        Self {
            cells,
            groups: BTreeMap::new(),
            names: BTreeMap::new(),
            pods: BTreeMap::new(),
            next_key: 0,
        }
    }

    /// Returns the cells.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Returns the groups that hold or claim cells, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&str, GroupId)> {
        self.groups
            .iter()
            .map(|(name, record)| (name.as_str(), record.id))
    }

    /// Returns the name of the group with a key; empty if it is unknown.
    pub fn name_of(&self, key: u64) -> &str {
        self.names.get(&key).map_or("", String::as_str)
    }

    /// Returns a group that holds or claims cells.
    pub fn view<'a>(&'a self, name: &'a str) -> Option<GroupView<'a>> {
        let record = self.groups.get(name)?;
        Some(GroupView {
            name,
            group: self.cells.group(record.id)?,
            id: record.id,
            vc: &record.spec.virtual_cluster,
            priority: record.spec.priority,
            chain: &record.chain,
            places: &record.places,
            pods: &record.pods,
            waiting: &record.waiting,
        })
    }

    /// Returns the group of a pod that has started, and the index of its place.
    pub fn place_of(&self, pod: &str) -> Option<(GroupView<'_>, usize)> {
        let (group, at) = self.pods.get(pod)?;
        Some((self.view(group)?, *at))
    }

    /// Decides about one pod. With `commit`, a pod that can start holds its place from now on.
    ///
    /// # Errors
    /// When the request cannot be met.
    pub fn schedule(
        &mut self,
        pod: &str,
        spec: &PodSpec,
        phase: Phase,
        suggested: Option<&[String]>,
        commit: bool,
    ) -> Result<Answer, UserError> {
        let group = spec.group_or_own(pod);
        let size = spec.leaf_cell_number;
        if !group.members.iter().any(|m| m.leaf_cell_number == size) {
            return Err(UserError::NotAMember { size });
        }
        let request = PodRequest {
            pod,
            size,
            phase,
            machines: self.allowed_machines(spec, suggested),
            commit,
        };
        match self.schedule_member(&group.name, &request)? {
            Some(answer) => Ok(answer),
            None => self.schedule_group(&group, spec, &request),
        }
    }

    /// Explains why the group of a pod waits; `None` if it does not.
    pub fn explain(&self, pod: &str, spec: &PodSpec, suggested: Option<&[String]>) -> Option<Explanation> {
        let mut trial = self.clone();
        let request = trial.request(spec, &spec.group_or_own(pod)).ok()?;
        let machines = self.allowed_machines(spec, suggested);
        trial.cells.explain(&request, &options(machines.as_ref()))
    }

    /// Decides about a pod whose group holds or claims cells already; `None` if there is no such group.
    fn schedule_member(&mut self, name: &str, request: &PodRequest<'_>) -> Result<Option<Answer>, UserError> {
        let Some(record) = self.groups.get(name) else {
            return Ok(None);
        };
        let id = record.id;
        let Some(group) = self.cells.group(id) else {
            return Ok(None);
        };
        let is_free = |at: &usize| group.pods[*at].size == request.size && record.pods[*at].is_none();
        let free = (0..group.pods.len()).find(is_free);
        let too_many = || UserError::TooManyPods {
            group: name.to_owned(),
            size: request.size,
        };
        match group.state {
            GroupState::BeingPreempted => Ok(Some(Answer::Wait { reason: None })),
            GroupState::Allocated => {
                let at = free.ok_or_else(too_many)?;
                let mut answer = bind_answer(&self.cells, group, at);
                // Cells that are no longer in the configuration have only a recorded place.
                if let Answer::Bind {
                    node, leaves, chain, ..
                } = &mut answer
                    && node.is_empty()
                {
                    node.clone_from(&record.places[at].node);
                    leaves.clone_from(&record.places[at].leaves);
                    chain.clone_from(&record.chain);
                }
                if request.commit {
                    self.start(request.pod, name, at);
                }
                Ok(Some(answer))
            }
            GroupState::Preempting => {
                let machines = request.machines.as_ref();
                if request.phase == Phase::Preempting && !self.may_keep_claim(id, machines) {
                    self.cells.release(id);
                    self.forget_cancelled();
                    return Ok(None);
                }
                let victims = self.cells.victims(id);
                if !victims.is_empty() {
                    self.add_waiting(name, request.pod);
                    let victims = self.pods_of(&victims);
                    return Ok(Some(Answer::Preempt { victims }));
                }
                let at = free.ok_or_else(too_many)?;
                let answer = bind_answer(&self.cells, group, at);
                if request.commit {
                    self.cells.proceed(id);
                    self.start(request.pod, name, at);
                }
                Ok(Some(answer))
            }
        }
    }

    /// Decides about the first pod of a group, and with it about the whole group.
    fn schedule_group(
        &mut self,
        group: &PodGroup,
        spec: &PodSpec,
        pod: &PodRequest<'_>,
    ) -> Result<Answer, UserError> {
        let request = self.request(spec, group)?;
        let options = options(pod.machines.as_ref());
        let placement = match self.cells.try_place(&request, &options) {
            Ok(placement) => placement,
            Err(PlacementError::Refused(refusal)) => return Err(refusal.into()),
            Err(PlacementError::Wait(reason)) => {
                return Ok(Answer::Wait { reason: Some(reason) });
            }
        };
        match placement.outcome().clone() {
            Outcome::Placed => {
                let pods = &placement.group().pods;
                let at = pods.iter().position(|p| p.size == pod.size).unwrap_or(0);
                let answer = bind_answer(placement.cells(), placement.group(), at);
                if pod.commit {
                    let id = placement.commit();
                    self.record(&group.name, request.key, id, spec);
                    self.start(pod.pod, &group.name, at);
                }
                Ok(answer)
            }
            Outcome::Preempting { victims } => {
                if pod.phase == Phase::Preempting {
                    let id = placement.commit();
                    self.record(&group.name, request.key, id, spec);
                    self.add_waiting(&group.name, pod.pod);
                } else {
                    drop(placement);
                }
                let victims = self.pods_of(&victims);
                Ok(Answer::Preempt { victims })
            }
        }
    }

    /// Whether all machines that a group claims may still be used.
    fn may_keep_claim(&self, id: GroupId, machines: Option<&MachineSet>) -> bool {
        let options = options(machines);
        let pods = self
            .cells
            .group(id)
            .map(|g| g.pods.as_slice())
            .unwrap_or_default();
        pods.iter().all(|pod| {
            let size = self.cells.layout().chain(pod.chain).node_leaves();
            pod.leaves
                .iter()
                .all(|leaf| self.cells.is_node_allowed(pod.chain, leaf / size, &options))
        })
    }

    /// Translates the request of a group from names to ids.
    fn request(&mut self, spec: &PodSpec, group: &PodGroup) -> Result<Request, UserError> {
        let layout = self.cells.layout();
        let priority = i16::try_from(spec.priority).unwrap_or(i16::MAX);
        let Some(vc) = layout.vc_named(&spec.virtual_cluster) else {
            return Err(UserError::UnknownVc {
                found: spec.virtual_cluster.clone(),
                known: join_names(layout.vcs.iter().map(|v| v.name.as_str())),
            });
        };
        let owner = &layout.vcs[vc.index()];
        let target = if !spec.pinned_cell_id.is_empty() {
            let view = owner.pinned.get(&spec.pinned_cell_id);
            Target::Pinned(*view.ok_or_else(|| UserError::UnknownPinnedCell {
                vc: owner.name.clone(),
                found: spec.pinned_cell_id.clone(),
                known: join_names(owner.pinned.keys().map(String::as_str)),
            })?)
        } else if spec.leaf_cell_type.is_empty() {
            Target::Any
        } else {
            let leaf = layout.leaf_type_named(&spec.leaf_cell_type);
            Target::Leaf(leaf.ok_or_else(|| UserError::UnknownLeafType {
                found: spec.leaf_cell_type.clone(),
                known: join_names(layout.leaf_types.iter().map(String::as_str)),
            })?)
        };
        let members = group.members.iter();
        let mut pods: Vec<u32> = members
            .flat_map(|m| std::iter::repeat_n(m.leaf_cell_number, m.pod_number as usize))
            .collect();
        pods.sort_unstable();
        let user = (!spec.user.is_empty()).then(|| self.cells.user_id(&spec.user));
        self.next_key += 1;
        Ok(Request {
            key: self.next_key,
            vc,
            user,
            priority,
            lazy: spec.lazy_preemption_enable,
            may_span_chains: false,
            pod_sets: vec![PodSet { target, pods }],
        })
    }

    /// Returns the machines that a pod may use; `None` for all.
    fn allowed_machines(&self, spec: &PodSpec, suggested: Option<&[String]>) -> Option<MachineSet> {
        let names = suggested.filter(|_| !spec.ignore_k8s_suggested_nodes)?;
        let mut set = MachineSet::new(self.cells.layout().machines.len());
        for machine in names.iter().filter_map(|n| self.cells.layout().machine_named(n)) {
            set.insert(machine);
        }
        Some(set)
    }

    /// Records a group that was just placed.
    fn record(&mut self, name: &str, key: u64, id: GroupId, spec: &PodSpec) {
        self.forget_cancelled();
        self.names.insert(key, name.to_owned());
        let Some(group) = self.cells.group(id) else { return };
        let places: Vec<Place> = (0..group.pods.len())
            .map(|at| Place::of(&self.cells, group, at))
            .collect();
        let chain = group
            .pods
            .first()
            .map(|p| self.cells.layout().chain(p.chain).name.clone());
        self.groups.insert(
            name.to_owned(),
            GroupRecord {
                id,
                spec: spec.clone(),
                chain: chain.unwrap_or_default(),
                pods: vec![None; places.len()],
                places,
                waiting: BTreeSet::new(),
            },
        );
    }

    pub(crate) fn start(&mut self, pod: &str, group: &str, at: usize) {
        if let Some(record) = self.groups.get_mut(group) {
            record.pods[at] = Some(pod.to_owned());
            record.waiting.clear();
        }
        self.pods.insert(pod.to_owned(), (group.to_owned(), at));
    }

    fn add_waiting(&mut self, group: &str, pod: &str) {
        if let Some(record) = self.groups.get_mut(group) {
            record.waiting.insert(pod.to_owned());
        }
    }

    /// Removes groups whose claim was cancelled for a higher priority. Their ids may belong to other groups by now.
    pub(crate) fn forget_cancelled(&mut self) {
        let (cells, names) = (&self.cells, &self.names);
        self.groups.retain(|name, record| {
            let group = cells.group(record.id);
            group.is_some_and(|g| names.get(&g.key) == Some(name))
        });
        self.drop_names();
    }

    /// Drops names of removed groups, except of groups that others were downgraded for.
    fn drop_names(&mut self) {
        if self.names.len() < MIN_NAMES || self.names.len() < 4 * self.groups.len() {
            return;
        }
        let mut used: BTreeSet<u64> = self.cells.groups().map(|(_, g)| g.key).collect();
        used.extend(self.cells.groups().filter_map(|(_, g)| Some(g.downgraded?.by)));
        self.names.retain(|key, _| used.contains(key));
    }

    /// Returns all pods of some groups.
    fn pods_of(&self, groups: &[GroupId]) -> BTreeSet<String> {
        let records = self.groups.values().filter(|r| groups.contains(&r.id));
        records.flat_map(|r| r.pods.iter().flatten().cloned()).collect()
    }

    /// Removes a pod that has ended or was deleted. The group is removed with its last pod.
    pub fn delete(&mut self, pod: &str) {
        if let Some((group, at)) = self.pods.remove(pod) {
            let Some(record) = self.groups.get_mut(&group) else {
                return;
            };
            record.pods[at] = None;
            if record.pods.iter().all(Option::is_none) {
                let id = record.id;
                self.groups.remove(&group);
                self.cells.release(id);
            }
            return;
        }
        let waiting = self
            .groups
            .iter_mut()
            .find_map(|(name, record)| record.waiting.remove(pod).then_some((name, record)));
        if let Some((name, record)) = waiting
            && record.waiting.is_empty()
        {
            let (name, id) = (name.clone(), record.id);
            self.groups.remove(&name);
            self.cells.release(id);
        }
    }

    /// Sets whether a machine is healthy. Returns false if there is no machine of that name.
    pub fn set_health(&mut self, machine: &str, healthy: bool) -> bool {
        match self.cells.layout().machine_named(machine) {
            Some(machine) => {
                self.cells.set_health(machine, healthy);
                true
            }
            None => false,
        }
    }

    /// Makes all machines healthy.
    pub fn set_all_healthy(&mut self) {
        for at in 0..self.cells.layout().machines.len() {
            self.cells.set_health(MachineId(at as u32), true);
        }
    }
}

fn options(machines: Option<&MachineSet>) -> PlacementOptions<'_> {
    PlacementOptions {
        machines,
        ..PlacementOptions::default()
    }
}
