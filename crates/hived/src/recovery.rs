//! Groups that are running already: read back from their pods after a restart, or carried over to a new configuration.

use std::collections::BTreeSet;

use dovetail_cells::{
    Fate, GUARANTEED_MAX, GroupId, Layout, OPPORTUNISTIC, PodSet, ReconfiguredGroup, Request, RunningPod,
    Target, VcId,
};

use crate::answer::UserError;
use crate::place::Place;
use crate::pod_spec::PodSpec;
use crate::scheduler::{GroupRecord, GroupScheduler};

impl GroupRecord {
    /// Whether its virtual cluster does not exist, so that it borrows until it does.
    fn is_stray(&self, layout: &Layout) -> bool {
        layout.vc_named(&self.spec.virtual_cluster).is_none()
    }
}

impl GroupScheduler {
    /// Adds a pod that is running already. The first pod of a group adds the whole group; the others take one of its
    /// places. `places` are those of the whole group in `chain`; `node` and `leaves` are the pod's own.
    ///
    /// # Errors
    /// When the group has no place left for the pod.
    pub fn adopt(
        &mut self,
        pod: &str,
        spec: &PodSpec,
        chain: &str,
        places: &[Place],
        (node, leaves): (&str, &[i32]),
    ) -> Result<(), UserError> {
        let group = spec.group_or_own(pod);
        let name = group.name.clone();
        let spec = PodSpec {
            affinity_group: Some(group),
            ..spec.clone()
        };
        // A group of that name that has only claims does not run, so it is not the group of this pod.
        let is_claim = |r: &&GroupRecord| r.pods.iter().all(Option::is_none);
        if let Some(id) = self.groups.get(&name).filter(is_claim).map(|r| r.id) {
            self.cells.release(id);
            self.forget_cancelled();
        }
        let size = leaves.len() as u32;
        if !self.groups.contains_key(&name) {
            let mut places = places.to_vec();
            // The pod's own place counts, whatever the places of the group are.
            if !places.iter().any(|place| place.is_at(node, leaves)) {
                places.push(Place {
                    size,
                    node: node.to_owned(),
                    leaves: leaves.to_vec(),
                    kind: String::new(),
                });
            }
            self.adopt_group(&name, &spec, chain, &places);
        }
        let Some(record) = self.groups.get(&name) else {
            return Ok(());
        };
        let free = || (0..record.places.len()).filter(|at| record.pods[*at].is_none());
        let own = free().find(|at| record.places[*at].is_at(node, leaves));
        let of_equal_size = || free().find(|at| record.places[*at].size == size);
        let at = own.or_else(of_equal_size).ok_or(UserError::TooManyPods {
            group: name.clone(),
            size,
        })?;
        self.start(pod, &name, at);
        Ok(())
    }

    /// Adds a running group.
    ///
    /// A group whose virtual cluster does not exist keeps its priority but is downgraded: it counts as a borrower of the
    /// first virtual cluster, and since it has no home there, it stays one.
    fn adopt_group(&mut self, name: &str, spec: &PodSpec, chain: &str, places: &[Place]) {
        let layout = self.cells.layout();
        if layout.vcs.is_empty() {
            return;
        }
        let vc = layout.vc_named(&spec.virtual_cluster);
        let pin = vc.and_then(|vc| layout.vcs[vc.index()].pinned.get(&spec.pinned_cell_id));
        let target = pin.map_or(Target::Any, |view| Target::Pinned(*view));
        let priority = i16::try_from(spec.priority).unwrap_or(OPPORTUNISTIC);
        let user = (!spec.user.is_empty()).then(|| self.cells.user_id(&spec.user));
        self.next_key += 1;
        let request = Request {
            key: self.next_key,
            vc: vc.unwrap_or(VcId(0)),
            user: user.filter(|_| vc.is_some()),
            priority: priority.clamp(OPPORTUNISTIC, GUARANTEED_MAX),
            lazy: spec.lazy_preemption_enable,
            may_span_chains: false,
            pod_sets: vec![PodSet {
                target,
                pods: places.iter().map(|p| p.size).collect(),
            }],
        };
        let pods: Vec<RunningPod<'_>> = places
            .iter()
            .map(|place| RunningPod {
                size: place.size,
                machine: &place.node,
                indices: &place.leaves,
                cell_type: if vc.is_some() { &place.kind } else { "" },
            })
            .collect();
        let id = self.cells.adopt(&request, chain, &pods);
        self.names.insert(request.key, name.to_owned());
        self.groups.insert(
            name.to_owned(),
            GroupRecord {
                id,
                spec: spec.clone(),
                chain: chain.to_owned(),
                places: places.to_vec(),
                pods: vec![None; places.len()],
                waiting: BTreeSet::new(),
            },
        );
    }

    /// Changes the configuration. Returns what happened to each group.
    pub fn reconfigure(&mut self, layout: Layout) -> Vec<(String, ReconfiguredGroup)> {
        let strays = self.groups.values().filter(|r| r.is_stray(self.cells.layout()));
        let strays: Vec<GroupId> = strays.map(|r| r.id).collect();
        let (cells, groups) = self.cells.reconfigured(layout);
        self.cells = cells;
        let mut result = Vec::new();
        let mut readopted = Vec::new();
        for carried in groups {
            let name = self.name_of(carried.key).to_owned();
            let Some(record) = self.groups.get_mut(&name) else {
                continue;
            };
            // Strays are adopted again, since their virtual cluster may exist now.
            let is_stray = strays.contains(&record.id);
            match carried.id {
                Some(id) if !is_stray => record.id = id,
                Some(id) => {
                    self.cells.release(id);
                    readopted.push((name, carried));
                    continue;
                }
                None if carried.fate == Fate::Forgotten => {
                    readopted.push((name, carried));
                    continue;
                }
                None => {
                    self.groups.remove(&name);
                }
            }
            result.push((name, carried));
        }
        for (name, mut carried) in readopted {
            self.readopt(&name, &mut carried);
            result.push((name, carried));
        }
        self.pods.retain(|_, (group, _)| self.groups.contains_key(group));
        result
    }

    /// Adopts a group again that was not carried over.
    fn readopt(&mut self, name: &str, carried: &mut ReconfiguredGroup) {
        let Some(old) = self.groups.remove(name) else {
            return;
        };
        self.adopt_group(name, &old.spec, &old.chain, &old.places);
        let Some(record) = self.groups.get_mut(name) else {
            return;
        };
        record.pods = old.pods;
        carried.id = Some(record.id);
        let is_stray = record.is_stray(self.cells.layout());
        carried.fate = match self.cells.group(record.id) {
            Some(group) if group.effective_priority() >= 0 => Fate::Restored,
            _ if is_stray => Fate::Forgotten,
            _ => Fate::Downgraded,
        };
    }
}
