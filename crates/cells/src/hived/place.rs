//! Where the pods of a group are: written on pods, read back after a restart, carried over to another configuration.

use std::collections::BTreeSet;

use super::extender::{Entry, Extender, Member, PodGroup, PodSpec, UserError, kind_of};
use crate::adopt::Sighting;
use crate::group::{Group, GroupId, OPPORTUNISTIC};
use crate::layout::{Layout, VcId};
use crate::reconfigure::{Carried, Fate};
use crate::request::{Part, Request, Target};
use crate::state::Cells;

/// Where one pod of a group goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Leaves it asks for.
    pub size: u32,
    /// Its machine.
    pub node: String,
    /// The indices of its leaves there.
    pub leaves: Vec<i32>,
    /// The type of the cell of its virtual cluster; empty for borrowers.
    pub kind: String,
}

impl Place {
    pub(super) fn of(cells: &Cells, group: &Group, at: usize) -> Self {
        let layout = cells.layout();
        let pod = &group.pods[at];
        let node = pod.leaves.first().map(|leaf| layout.machine_of(pod.chain, *leaf));
        let indices = &layout.chain(pod.chain).leaf_indices;
        Self {
            size: pod.size,
            node: node
                .map(|n| layout.machines[n.index()].name.clone())
                .unwrap_or_default(),
            leaves: pod.leaves.iter().map(|l| indices[*l as usize]).collect(),
            kind: kind_of(cells, group, pod).to_owned(),
        }
    }

    fn is_at(&self, node: &str, leaves: &[i32]) -> bool {
        let set = |leaves: &[i32]| leaves.iter().copied().collect::<BTreeSet<_>>();
        self.node == node && set(&self.leaves) == set(leaves)
    }
}

/// A group as it is seen from outside.
#[derive(Debug, Clone, Copy)]
pub struct GroupView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its cells.
    pub group: &'a Group,
    /// Its id.
    pub id: GroupId,
    /// The virtual cluster it was asked for in, which may be gone.
    pub vc: &'a str,
    /// The priority it was asked for with.
    pub priority: i32,
    /// The chain of its places.
    pub chain: &'a str,
    /// Where its pods go.
    pub places: &'a [Place],
    /// The pod on each place.
    pub pods: &'a [Option<String>],
    /// Pods that wait for its victims to go.
    pub waiting: &'a BTreeSet<String>,
}

impl Entry {
    /// Whether its virtual cluster is not there any more, so that it is counted as a borrower of another one.
    fn is_stray(&self, layout: &Layout) -> bool {
        layout.vc_named(&self.spec.virtual_cluster).is_none()
    }
}

impl Extender {
    /// A group that has or claims cells.
    pub fn view<'a>(&'a self, name: &'a str) -> Option<GroupView<'a>> {
        let entry = self.groups.get(name)?;
        Some(GroupView {
            name,
            group: self.cells.group(entry.id)?,
            id: entry.id,
            vc: &entry.spec.virtual_cluster,
            priority: entry.spec.priority,
            chain: &entry.chain,
            places: &entry.places,
            pods: &entry.pods,
            waiting: &entry.waiting,
        })
    }

    /// The group of a pod that has started, and its place there.
    pub fn place_of(&self, pod: &str) -> Option<(GroupView<'_>, usize)> {
        let (group, at) = self.pods.get(pod)?;
        Some((self.view(group)?, *at))
    }

    /// A pod that runs already is known again: it has one of the places of its group, and the first pod brings the whole
    /// group. `places` are those of the whole group in `chain`; `node` and `leaves` are its own.
    ///
    /// # Errors
    /// When the group has no place left for it.
    pub fn adopt(
        &mut self,
        pod: &str,
        spec: &PodSpec,
        chain: &str,
        places: &[Place],
        (node, leaves): (&str, &[i32]),
    ) -> Result<(), UserError> {
        let mut spec = spec.clone();
        let group = spec.affinity_group.get_or_insert_with(|| PodGroup {
            name: pod.to_owned(),
            members: vec![Member {
                pod_number: 1,
                leaf_cell_number: spec.leaf_cell_number,
            }],
        });
        let name = group.name.clone();
        let claims = |e: &Entry| e.pods.iter().all(Option::is_none);
        if let Some(id) = self.groups.get(&name).filter(|e| claims(e)).map(|e| e.id) {
            self.cells.release(id);
            self.forget_cancelled();
        }
        let size = leaves.len() as u32;
        if !self.groups.contains_key(&name) {
            let mut places = places.to_vec();
            // Whatever is said of the group, this pod is there.
            if !places.iter().any(|place| place.is_at(node, leaves)) {
                places.push(Place {
                    size,
                    node: node.to_owned(),
                    leaves: leaves.to_vec(),
                    kind: String::new(),
                });
            }
            self.bring(&name, &spec, chain, &places);
        }
        let Some(entry) = self.groups.get(&name) else {
            return Ok(());
        };
        let free = |at: &usize| entry.pods[*at].is_none();
        let all = 0..entry.places.len();
        let own = all
            .clone()
            .filter(free)
            .find(|at| entry.places[*at].is_at(node, leaves));
        let like = || all.clone().filter(free).find(|at| entry.places[*at].size == size);
        let at = own.or_else(like).ok_or(UserError::TooManyPods {
            group: name.clone(),
            size,
        })?;
        self.start(pod, &name, at);
        Ok(())
    }

    /// Counts a group that runs. One whose virtual cluster is not there runs on as a borrower of the first there is.
    fn bring(&mut self, name: &str, spec: &PodSpec, chain: &str, places: &[Place]) {
        if self.cells.layout().vcs.is_empty() {
            return;
        }
        let layout = self.cells.layout();
        let vc = layout.vc_named(&spec.virtual_cluster);
        let pin = vc.and_then(|vc| layout.vcs[vc.index()].pinned.get(&spec.pinned_cell_id));
        let target = pin.map_or(Target::Any, |view| Target::Pinned(*view));
        let priority = i16::try_from(spec.priority).unwrap_or(OPPORTUNISTIC);
        let user = (!spec.user.is_empty()).then(|| self.cells.user(&spec.user));
        self.next_key += 1;
        let request = Request {
            key: self.next_key,
            vc: vc.unwrap_or(VcId(0)),
            user: user.filter(|_| vc.is_some()),
            priority: vc.map_or(OPPORTUNISTIC, |_| {
                priority.clamp(OPPORTUNISTIC, crate::GUARANTEED_MAX)
            }),
            lazy: spec.lazy_preemption_enable,
            several_chains: false,
            parts: vec![Part {
                target,
                pods: places.iter().map(|p| p.size).collect(),
            }],
        };
        let sightings: Vec<Sighting<'_>> = places
            .iter()
            .map(|place| Sighting {
                size: place.size,
                machine: &place.node,
                indices: &place.leaves,
                kind: &place.kind,
            })
            .collect();
        let id = self.cells.adopt(&request, chain, &sightings);
        self.names.insert(request.key, name.to_owned());
        self.groups.insert(
            name.to_owned(),
            Entry {
                id,
                spec: spec.clone(),
                chain: chain.to_owned(),
                places: places.to_vec(),
                pods: vec![None; places.len()],
                waiting: BTreeSet::new(),
            },
        );
    }

    /// Goes on under another configuration; says what becomes of each group.
    pub fn reconfigure(&mut self, layout: Layout) -> Vec<(String, Carried)> {
        // Groups without a virtual cluster are brought anew: it may be back.
        let strays = self.groups.values().filter(|e| e.is_stray(self.cells.layout()));
        let strays: Vec<GroupId> = strays.map(|e| e.id).collect();
        let (cells, fates) = self.cells.reconfigured(layout);
        self.cells = cells;
        let mut told = Vec::new();
        let mut again = Vec::new();
        for carried in fates {
            let name = self.name_of(carried.key).to_owned();
            let Some(entry) = self.groups.get_mut(&name) else {
                continue;
            };
            let stray = strays.contains(&entry.id);
            match carried.id {
                Some(id) if !stray => entry.id = id,
                Some(id) => {
                    self.cells.release(id);
                    again.push((name.clone(), carried));
                    continue;
                }
                None if carried.fate == Fate::Forgotten => {
                    again.push((name.clone(), carried));
                    continue;
                }
                None => {
                    self.groups.remove(&name);
                }
            }
            told.push((name, carried));
        }
        for (name, mut carried) in again {
            if let Some(entry) = self.groups.remove(&name) {
                self.bring(&name, &entry.spec, &entry.chain, &entry.places);
                if let Some(new) = self.groups.get_mut(&name) {
                    new.pods = entry.pods;
                    carried.id = Some(new.id);
                    let is_back = !new.is_stray(self.cells.layout());
                    carried.fate = match self.cells.group(new.id) {
                        Some(group) if group.effective() >= 0 => Fate::Restored,
                        _ if is_back => Fate::Downgraded,
                        _ => Fate::Forgotten,
                    };
                }
            }
            told.push((name, carried));
        }
        self.pods.retain(|_, (group, _)| self.groups.contains_key(group));
        told
    }
}
