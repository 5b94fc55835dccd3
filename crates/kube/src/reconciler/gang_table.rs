//! All gangs, and their index by pod and by job.

use std::collections::BTreeMap;

use dovetail_cluster::{AttemptId, JobId};
use dovetail_model::NodeId;

use super::gang::{Gang, Member};
use crate::action::PodId;
use crate::identity::GangKey;

/// All gangs, and their index by pod and by job.
#[derive(Debug, Default)]
pub(crate) struct GangTable {
    gangs: BTreeMap<GangKey, Gang>,
    /// Gang of each pod, by uid.
    by_pod: BTreeMap<String, GangKey>,
    by_job: BTreeMap<JobId, GangKey>,
}

impl std::ops::Index<&GangKey> for GangTable {
    type Output = Gang;

    fn index(&self, key: &GangKey) -> &Gang {
        &self.gangs[key]
    }
}

impl GangTable {
    pub(crate) fn get(&self, key: &GangKey) -> Option<&Gang> {
        self.gangs.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &GangKey) -> Option<&mut Gang> {
        self.gangs.get_mut(key)
    }

    /// Returns the gang, which is created if it does not exist.
    pub(super) fn entry(&mut self, key: &GangKey) -> &mut Gang {
        self.gangs
            .entry(key.clone())
            .or_insert_with(|| Gang::new(key.clone()))
    }

    pub(super) fn remove(&mut self, key: &GangKey) -> Option<Gang> {
        self.gangs.remove(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Gang> {
        self.gangs.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Gang> {
        self.gangs.values_mut()
    }

    /// Returns the gangs from a key on, then those before it.
    pub(crate) fn iter_from(&self, key: Option<&GangKey>) -> impl Iterator<Item = &Gang> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let (later, earlier) = match key {
            Some(key) => (
                self.gangs.range((Excluded(key), Unbounded)),
                Some(self.gangs.range((Unbounded, Included(key)))),
            ),
            None => (self.gangs.range::<GangKey, _>(..), None),
        };
        later.chain(earlier.into_iter().flatten()).map(|(_, gang)| gang)
    }

    /// Returns the numbers of pods and gangs.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.by_pod.len(), self.gangs.len())
    }

    pub(super) fn key_of_pod(&self, uid: &str) -> Option<&GangKey> {
        self.by_pod.get(uid)
    }

    pub(super) fn key_of_job(&self, job: JobId) -> Option<&GangKey> {
        self.by_job.get(&job)
    }

    pub(super) fn of_job(&self, job: JobId) -> Option<&Gang> {
        self.get(self.key_of_job(job)?)
    }

    /// Makes a job that of a gang.
    pub(super) fn set_job(&mut self, key: &GangKey, job: JobId) {
        self.entry(key).job = Some(job);
        self.by_job.insert(job, key.clone());
    }

    /// Separates a gang from its job.
    pub(super) fn clear_job(&mut self, key: &GangKey) {
        if let Some(job) = self.entry(key).job.take() {
            self.by_job.remove(&job);
        }
    }

    /// Adds a pod to a gang, or replaces it there.
    pub(super) fn put_member(&mut self, key: &GangKey, member: Member) {
        let uid = member.id.uid.clone();
        self.by_pod.insert(uid.clone(), key.clone());
        self.entry(key).members.insert(uid, member);
    }

    /// Moves a pod from one gang to another.
    pub(super) fn move_member(&mut self, from: &GangKey, to: &GangKey, uid: &str) {
        if let Some(member) = self.entry(from).members.remove(uid) {
            self.put_member(to, member);
        }
    }

    /// Removes a deleted pod and returns its gang. A pod that ended in its slot still counts for the result of the
    /// attempt, so it stays a member.
    pub(super) fn remove_pod(&mut self, uid: &str) -> Option<GangKey> {
        let key = self.by_pod.remove(uid)?;
        let gang = self.entry(&key);
        if let Some(mut member) = gang.members.remove(uid) {
            if !member.phase.has_ended() {
                gang.vacate(uid);
            } else if gang.job.is_some() && gang.has_slot(uid) {
                member.deleting = true;
                gang.members.insert(uid.to_owned(), member);
            }
        }
        Some(key)
    }

    pub(super) fn pod_uids(&self) -> impl Iterator<Item = &String> {
        self.by_pod.keys()
    }

    /// Returns keys of the gangs that match.
    pub(super) fn keys_where(&self, matches: impl Fn(&Gang) -> bool) -> Vec<GangKey> {
        let found = self.gangs.values().filter(|gang| matches(gang));
        found.map(|gang| gang.key.clone()).collect()
    }

    /// Returns keys of the gangs with a pod or a slot on a node.
    pub(super) fn on_node(&self, name: &str, id: Option<NodeId>) -> Vec<GangKey> {
        self.keys_where(|gang| {
            gang.members.values().any(|m| m.node.as_deref() == Some(name))
                || gang.slots.iter().any(|slot| Some(slot.node) == id)
        })
    }

    /// Checks whether pods are on a node, or are being bound to it.
    pub(super) fn use_node(&self, name: &str) -> bool {
        let uses = |m: &Member| {
            (m.occupies_node() && m.node.as_deref() == Some(name)) || m.in_flight.as_deref() == Some(name)
        };
        self.gangs.values().any(|gang| gang.members.values().any(uses))
    }

    /// Returns the pods that were bound to a node for an attempt, in the order of their indexes.
    pub(super) fn pods_of(&self, job: JobId, attempt: AttemptId, node: &str) -> Vec<PodId> {
        let matches = |m: &&Member| {
            let is_bound = m.bound_as.as_ref().is_some_and(|b| b.is_for(job, attempt));
            is_bound && m.node.as_deref() == Some(node)
        };
        let members = self.gangs.values().flat_map(|gang| gang.members.values());
        let mut pods: Vec<&Member> = members.filter(matches).collect();
        pods.sort_by_key(|m| (m.identity.index, m.id.name.clone()));
        pods.into_iter().map(|m| m.id.clone()).collect()
    }
}
