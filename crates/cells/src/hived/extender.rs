//! Pods that come one by one. The first pod of a group decides for all; the others get what was decided.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::explain::Explanation;
use crate::group::{GroupId, GroupState};
use crate::layout::MachineId;
use crate::request::{Denied, MachineSet, Outcome, Part, Refusal, Request, Target, Terms, Wait};
use crate::state::Cells;

use super::place::Place;

/// What a pod asks for, as HiveD's annotation says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The virtual cluster.
    pub virtual_cluster: String,
    /// −1 to 1000.
    pub priority: i32,
    /// The user, for limits per user; not known to HiveD.
    pub user: String,
    /// A pinned cell, or empty.
    pub pinned_cell_id: String,
    /// The kind of leaf, or empty for any.
    pub leaf_cell_type: String,
    /// Leaves of this pod.
    pub leaf_cell_number: u32,
    /// Whether the group may be downgraded instead of stopped.
    pub lazy_preemption_enable: bool,
    /// Whether machines that Kubernetes does not suggest may be used too.
    pub ignore_k8s_suggested_nodes: bool,
    /// Its group; a group of its own if there is none.
    pub affinity_group: Option<PodGroup>,
}

impl Default for PodSpec {
    fn default() -> Self {
        Self {
            virtual_cluster: String::new(),
            priority: 0,
            user: String::new(),
            pinned_cell_id: String::new(),
            leaf_cell_type: String::new(),
            leaf_cell_number: 0,
            lazy_preemption_enable: false,
            ignore_k8s_suggested_nodes: true,
            affinity_group: None,
        }
    }
}

/// A group of pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodGroup {
    /// Its name.
    pub name: String,
    /// Its pods by size.
    pub members: Vec<Member>,
}

/// Pods of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// How many.
    pub pod_number: u32,
    /// Leaves of each.
    pub leaf_cell_number: u32,
}

/// Whether Kubernetes only asks, or is ready to delete pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It only asks: nothing is claimed.
    Filtering,
    /// Victims will be deleted: cells are claimed.
    Preempting,
}

/// What becomes of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It starts here.
    Bind {
        /// The machine.
        node: String,
        /// The indices of its leaves there.
        leaves: Vec<i32>,
        /// The chain.
        chain: String,
        /// The types of the cells its group is given from; an empty name for borrowers.
        preassigned: BTreeSet<String>,
    },
    /// These pods have to go first.
    Preempt {
        /// Their names.
        victims: BTreeSet<String>,
    },
    /// It has to wait.
    Wait {
        /// Why; none if its own group is being stopped.
        why: Option<Wait>,
    },
}

/// A pod that asks for something that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// There is no such virtual cluster.
    #[error("virtual cluster {found:?} does not exist; expected one of {known}")]
    NoVc {
        /// What was asked for.
        found: String,
        /// Those there are.
        known: String,
    },
    /// The virtual cluster has no such pinned cell.
    #[error("virtual cluster {vc} has no pinned cell {found:?}; expected one of {known}")]
    NoPin {
        /// The virtual cluster.
        vc: String,
        /// What was asked for.
        found: String,
        /// Those it has.
        known: String,
    },
    /// There is no such kind of leaf.
    #[error("leaf cell type {found:?} does not exist; expected one of {known}")]
    NoLeafType {
        /// What was asked for.
        found: String,
        /// Those there are.
        known: String,
    },
    /// The group does not hold this pod.
    #[error("affinityGroup.members has no pod with {size} leaf cells, but this pod asks for {size}")]
    NotAMember {
        /// Leaves the pod asks for.
        size: u32,
    },
    /// The group has all its pods already.
    #[error("all pods with {size} leaf cells of group {group} are there already; expected no further one")]
    TooManyPods {
        /// The group.
        group: String,
        /// Leaves of the pod.
        size: u32,
    },
    /// The request makes no sense.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A group by name, and which of its pods have come.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) id: GroupId,
    /// What its first pod asked for.
    pub(super) spec: PodSpec,
    /// The chain of its places.
    pub(super) chain: String,
    /// Where its pods go: what was decided first stays, also when the configuration changes.
    pub(super) places: Vec<Place>,
    /// The pod on each place of the group.
    pub(super) pods: Vec<Option<String>>,
    /// Pods that came while the group waits for its victims.
    pub(super) waiting: BTreeSet<String>,
}

/// Cells behind names.
#[derive(Debug, Clone)]
pub struct Extender {
    pub(super) cells: Cells,
    pub(super) groups: BTreeMap<String, Entry>,
    pub(super) names: BTreeMap<u64, String>,
    pub(super) pods: BTreeMap<String, (String, usize)>,
    pub(super) next_key: u64,
}

impl Extender {
    /// No pods yet.
    pub fn new(cells: Cells) -> Self {
        Self {
            cells,
            groups: BTreeMap::new(),
            names: BTreeMap::new(),
            pods: BTreeMap::new(),
            next_key: 0,
        }
    }

    /// The cells.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    /// The groups that have or claim cells, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&str, GroupId)> {
        self.groups.iter().map(|(name, entry)| (name.as_str(), entry.id))
    }

    /// The name behind a key.
    pub fn name_of(&self, key: u64) -> &str {
        self.names.get(&key).map_or("", String::as_str)
    }

    /// Decides about one pod. With `keep` a pod that can start is counted as started.
    ///
    /// # Errors
    /// When the pod asks for something that cannot be.
    pub fn schedule(
        &mut self,
        pod: &str,
        spec: &PodSpec,
        phase: Phase,
        suggested: Option<&[String]>,
        keep: bool,
    ) -> Result<Answer, UserError> {
        let group = spec.affinity_group.clone().unwrap_or_else(|| alone(pod, spec));
        let machines = suggested
            .filter(|_| !spec.ignore_k8s_suggested_nodes)
            .map(|names| self.machines(names));
        let size = spec.leaf_cell_number;
        if !group.members.iter().any(|m| m.leaf_cell_number == size) {
            return Err(UserError::NotAMember { size });
        }
        if let Some(answer) = self.known_group(pod, &group.name, size, phase, machines.as_ref(), keep)? {
            return Ok(answer);
        }
        let request = self.request(spec, &group)?;
        let terms = Terms {
            machines: machines.as_ref(),
            lost: None,
            ..Terms::default()
        };
        let attempt = match self.cells.attempt(&request, &terms) {
            Ok(attempt) => attempt,
            Err(Denied::Refused(refusal)) => return Err(refusal.into()),
            Err(Denied::Waits(why)) => return Ok(Answer::Wait { why: Some(why) }),
        };
        match attempt.outcome().clone() {
            Outcome::Placed => {
                let at = attempt
                    .group()
                    .pods
                    .iter()
                    .position(|p| p.size == size)
                    .unwrap_or(0);
                let answer = bind_answer(attempt.cells(), attempt.group(), at);
                if keep {
                    let id = attempt.commit();
                    self.forget_cancelled();
                    self.remember(&group.name, request.key, id, spec);
                    self.start(pod, &group.name, at);
                }
                Ok(answer)
            }
            Outcome::Preempting { victims } => {
                if phase == Phase::Preempting {
                    let id = attempt.commit();
                    self.forget_cancelled();
                    self.remember(&group.name, request.key, id, spec);
                    self.groups.entry(group.name).and_modify(|e| {
                        e.waiting.insert(pod.to_owned());
                    });
                } else {
                    drop(attempt);
                }
                Ok(Answer::Preempt {
                    victims: self.pods_of(&victims),
                })
            }
        }
    }

    /// Why the group of a pod waits; nothing if it does not.
    pub fn explain(&self, pod: &str, spec: &PodSpec, suggested: Option<&[String]>) -> Option<Explanation> {
        let mut trial = self.clone();
        let group = spec.affinity_group.clone().unwrap_or_else(|| alone(pod, spec));
        let request = trial.request(spec, &group).ok()?;
        let machines = suggested
            .filter(|_| !spec.ignore_k8s_suggested_nodes)
            .map(|names| self.machines(names));
        let terms = Terms {
            machines: machines.as_ref(),
            lost: None,
            ..Terms::default()
        };
        trial.cells.explain(&request, &terms)
    }

    /// The answer for a pod whose group has or claims cells already.
    fn known_group(
        &mut self,
        pod: &str,
        group: &str,
        size: u32,
        phase: Phase,
        machines: Option<&MachineSet>,
        keep: bool,
    ) -> Result<Option<Answer>, UserError> {
        let Some(entry) = self.groups.get(group) else {
            return Ok(None);
        };
        let id = entry.id;
        let Some(known) = self.cells.group(id) else {
            return Ok(None);
        };
        let free = (0..known.pods.len()).find(|at| known.pods[*at].size == size && entry.pods[*at].is_none());
        match known.state {
            GroupState::Allocated => {
                let Some(at) = free else {
                    let group = group.to_owned();
                    return Err(UserError::TooManyPods { group, size });
                };
                let mut answer = bind_answer(&self.cells, known, at);
                // What has vanished from the configuration is still where the rest of the group is.
                if let Answer::Bind {
                    node, leaves, chain, ..
                } = &mut answer
                    && node.is_empty()
                {
                    node.clone_from(&entry.places[at].node);
                    leaves.clone_from(&entry.places[at].leaves);
                    chain.clone_from(&entry.chain);
                }
                if keep {
                    self.start(pod, group, at);
                }
                Ok(Some(answer))
            }
            GroupState::BeingPreempted => Ok(Some(Answer::Wait { why: None })),
            GroupState::Preempting => {
                if phase == Phase::Preempting && !self.still_good(id, machines) {
                    self.cells.release(id);
                    self.forget_cancelled();
                    return Ok(None);
                }
                let victims = self.cells.victims(id);
                if !victims.is_empty() {
                    self.groups.entry(group.to_owned()).and_modify(|e| {
                        e.waiting.insert(pod.to_owned());
                    });
                    return Ok(Some(Answer::Preempt {
                        victims: self.pods_of(&victims),
                    }));
                }
                let Some(at) = free else {
                    let group = group.to_owned();
                    return Err(UserError::TooManyPods { group, size });
                };
                let answer = bind_answer(&self.cells, known, at);
                if keep {
                    self.cells.proceed(id);
                    self.start(pod, group, at);
                }
                Ok(Some(answer))
            }
        }
    }

    /// Whether all machines a group claims may still be used.
    fn still_good(&self, id: GroupId, machines: Option<&MachineSet>) -> bool {
        let terms = Terms {
            machines,
            ..Terms::default()
        };
        let pods = self
            .cells
            .group(id)
            .map(|g| g.pods.as_slice())
            .unwrap_or_default();
        pods.iter().all(|pod| {
            let size = self.cells.layout.chain(pod.chain).node_leaves();
            pod.leaves
                .iter()
                .all(|leaf| self.cells.allowed(pod.chain, leaf / size, &terms))
        })
    }

    pub(super) fn request(&mut self, spec: &PodSpec, group: &PodGroup) -> Result<Request, UserError> {
        let layout = self.cells.layout();
        let priority = i16::try_from(spec.priority).unwrap_or(i16::MAX);
        let Some(vc) = layout.vc_named(&spec.virtual_cluster) else {
            return Err(UserError::NoVc {
                found: spec.virtual_cluster.clone(),
                known: crate::types::listed(layout.vcs.iter().map(|v| v.name.as_str())),
            });
        };
        let owner = &layout.vcs[vc.index()];
        let target = if !spec.pinned_cell_id.is_empty() {
            let view = owner.pinned.get(&spec.pinned_cell_id);
            Target::Pinned(*view.ok_or_else(|| UserError::NoPin {
                vc: owner.name.clone(),
                found: spec.pinned_cell_id.clone(),
                known: crate::types::listed(owner.pinned.keys().map(String::as_str)),
            })?)
        } else if spec.leaf_cell_type.is_empty() {
            Target::Any
        } else {
            let leaf = layout.leaf_type_named(&spec.leaf_cell_type);
            Target::Leaf(leaf.ok_or_else(|| UserError::NoLeafType {
                found: spec.leaf_cell_type.clone(),
                known: crate::types::listed(layout.leaf_types.iter().map(String::as_str)),
            })?)
        };
        let mut pods: Vec<u32> = Vec::new();
        for member in &group.members {
            pods.extend(std::iter::repeat_n(
                member.leaf_cell_number,
                member.pod_number as usize,
            ));
        }
        pods.sort_unstable();
        let user = (!spec.user.is_empty()).then(|| self.cells.user(&spec.user));
        self.next_key += 1;
        Ok(Request {
            key: self.next_key,
            vc,
            user,
            priority,
            lazy: spec.lazy_preemption_enable,
            several_chains: false,
            parts: vec![Part { target, pods }],
        })
    }

    fn machines(&self, names: &[String]) -> MachineSet {
        let mut set = MachineSet::new(self.cells.layout().machines.len());
        for machine in names.iter().filter_map(|n| self.cells.layout().machine_named(n)) {
            set.insert(machine);
        }
        set
    }

    fn remember(&mut self, name: &str, key: u64, id: GroupId, spec: &PodSpec) {
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
            Entry {
                id,
                spec: spec.clone(),
                chain: chain.unwrap_or_default(),
                pods: vec![None; places.len()],
                places,
                waiting: BTreeSet::new(),
            },
        );
    }

    pub(super) fn start(&mut self, pod: &str, group: &str, at: usize) {
        if let Some(entry) = self.groups.get_mut(group) {
            entry.pods[at] = Some(pod.to_owned());
            entry.waiting.clear();
        }
        self.pods.insert(pod.to_owned(), (group.to_owned(), at));
    }

    /// Groups whose claim was given up for a higher priority are not known any more. An id may already be another's.
    pub(super) fn forget_cancelled(&mut self) {
        let cells = &self.cells;
        let names = &self.names;
        self.groups.retain(|name, entry| {
            cells
                .group(entry.id)
                .is_some_and(|g| names.get(&g.key) == Some(name))
        });
        self.drop_names();
    }

    /// Names nobody can ask for any more go, but those of groups that others were downgraded for stay.
    fn drop_names(&mut self) {
        if self.names.len() < 64 || self.names.len() < 4 * self.groups.len() {
            return;
        }
        let mut kept: BTreeSet<u64> = self.cells.groups().map(|(_, g)| g.key).collect();
        kept.extend(self.cells.groups().filter_map(|(_, g)| Some(g.downgraded?.by)));
        self.names.retain(|key, _| kept.contains(key));
    }

    /// All pods of some groups.
    fn pods_of(&self, groups: &[GroupId]) -> BTreeSet<String> {
        let of = self.groups.values().filter(|e| groups.contains(&e.id));
        of.flat_map(|e| e.pods.iter().flatten().cloned()).collect()
    }

    /// A pod has ended or was deleted. With its last pod the group goes.
    pub fn delete(&mut self, pod: &str) {
        if let Some((group, at)) = self.pods.remove(pod) {
            let Some(entry) = self.groups.get_mut(&group) else {
                return;
            };
            entry.pods[at] = None;
            if entry.pods.iter().all(Option::is_none) {
                let id = entry.id;
                self.groups.remove(&group);
                self.cells.release(id);
            }
            return;
        }
        let waiting = self
            .groups
            .iter_mut()
            .find_map(|(n, e)| e.waiting.remove(pod).then_some((n, e)));
        if let Some((name, entry)) = waiting
            && entry.waiting.is_empty()
        {
            let (name, id) = (name.clone(), entry.id);
            self.groups.remove(&name);
            self.cells.release(id);
        }
    }

    /// A machine broke or came back. False if there is none of that name.
    pub fn set_health(&mut self, machine: &str, healthy: bool) -> bool {
        match self.cells.layout().machine_named(machine) {
            Some(machine) => {
                self.cells.set_health(machine, healthy);
                true
            }
            None => false,
        }
    }

    /// As HiveD starts: every machine is healthy.
    pub fn all_healthy(&mut self) {
        for at in 0..self.cells.layout().machines.len() {
            self.cells.set_health(MachineId(at as u32), true);
        }
    }
}

/// A pod that is a group of its own.
fn alone(pod: &str, spec: &PodSpec) -> PodGroup {
    PodGroup {
        name: pod.to_owned(),
        members: vec![Member {
            pod_number: 1,
            leaf_cell_number: spec.leaf_cell_number,
        }],
    }
}

/// The type of the cell a pod is given from; empty for borrowers.
pub(super) fn kind_of<'a>(cells: &'a Cells, group: &crate::group::Group, pod: &crate::group::Pod) -> &'a str {
    match pod.home {
        Some((_, level)) if group.effective() >= 0 => &cells.layout().chain(pod.chain).types[level],
        _ => "",
    }
}

fn bind_answer(cells: &Cells, group: &crate::group::Group, at: usize) -> Answer {
    let layout = cells.layout();
    let pod = &group.pods[at];
    let chain = layout.chain(pod.chain);
    let node = pod.leaves.first().map(|leaf| layout.machine_of(pod.chain, *leaf));
    let preassigned = group.pods.iter().map(|p| kind_of(cells, group, p).to_owned());
    Answer::Bind {
        node: node
            .map(|n| layout.machines[n.index()].name.clone())
            .unwrap_or_default(),
        leaves: pod
            .leaves
            .iter()
            .map(|l| chain.leaf_indices[*l as usize])
            .collect(),
        chain: chain.name.clone(),
        preassigned: preassigned.collect(),
    }
}
