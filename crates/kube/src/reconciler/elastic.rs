//! Elastic pods: pods beyond the minimum of a gang. While the gang runs, each of them is a gang and a job of its own, which runs
//! beside its parent when there is room. When the parent is stopped, they are stopped too.

use dovetail_cluster::{Actor, AttemptId, Fact, JobId, JobState};

use super::gang::{Gang, Member};
use super::{ClusterTransaction, Reconciler, machine, slots, stopping};
use crate::action::{PodId, Removal};
use crate::identity::{GangKey, GangSize, Identity};
use crate::pod_resources::PodResources;

const PARENT_STOPPED: &str = "the gang of the elastic pod was stopped";

/// The attempt beside which an elastic pod was bound, as it is written on the pod: `17/4/1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElasticParent {
    /// Job of the parent.
    pub job: JobId,
    /// Attempt of the parent.
    pub attempt: AttemptId,
    /// Number of the elastic pod, from 1.
    pub number: u32,
}

impl ElasticParent {
    /// Parses the annotation of a pod.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let parent = Self {
            job: parts.next()?.parse().ok()?,
            attempt: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(parent)
    }
}

impl std::fmt::Display for ElasticParent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.job, self.attempt, self.number)
    }
}

fn elastic_key(parent: &GangKey, number: u32) -> GangKey {
    GangKey {
        namespace: parent.namespace.clone(),
        name: format!("{}+{number}", parent.name),
        uid: format!("{}+{number}", parent.uid),
    }
}

fn parent_stopped() -> Removal {
    Removal::now("AttemptEnded", PARENT_STOPPED)
}

impl Gang {
    /// Returns the name of the job.
    pub(super) fn job_name(&self, identity: &Identity) -> String {
        let annotated = identity.job_name.clone();
        match &self.parent {
            None => annotated.unwrap_or_else(|| self.key.to_string()),
            Some(parent) => {
                let name = annotated.unwrap_or_else(|| parent.to_string());
                format!("{name} + {}", self.elastic_number())
            }
        }
    }

    /// Returns the number of an elastic pod among those of its parent.
    fn elastic_number(&self) -> u32 {
        let number = self.key.name.rsplit('+').next();
        number.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Returns how many more elastic pods the gang may have. A native pod group has only a minimum.
    fn elastic_room(&self) -> usize {
        let Some(size) = self.size else { return 0 };
        if self.key.is_pod_group() {
            return usize::MAX;
        }
        if size.min_pods >= size.pods {
            return 0;
        }
        let succeeded = self.succeeded().filter(|m| !self.has_slot(&m.id.uid)).count();
        (size.pods as usize).saturating_sub(self.slots.len() + succeeded + self.elastic.len())
    }
}

/// Returns the gang of a pod: its own, or that of an elastic pod.
pub(super) fn gang_key(r: &mut Reconciler, member: &Member) -> GangKey {
    let (uid, own) = (&member.id.uid, &member.identity.key);
    let known = r.gangs.key_of_pod(uid).and_then(|key| r.gangs.get(key));
    if let Some(elastic) = known.filter(|gang| gang.parent.as_ref() == Some(own)) {
        return elastic.key.clone();
    }
    match member
        .elastic_of
        .filter(|_| known.is_none() && member.occupies_node())
    {
        Some(parent) => create_elastic(r, own, elastic_key(own, parent.number)),
        None => own.clone(),
    }
}

fn create_elastic(r: &mut Reconciler, parent: &GangKey, key: GangKey) -> GangKey {
    let gang = r.gangs.entry(&key);
    gang.parent = Some(parent.clone());
    gang.size = Some(GangSize::ONE);
    r.gangs.entry(parent).elastic.insert(key.clone());
    key
}

/// Makes the pods of a running gang that have no slot elastic, so that each is queued by itself.
pub(super) fn submit_elastic_pods(r: &mut Reconciler, key: &GangKey, tx: &mut impl ClusterTransaction) {
    let gang = &r.gangs[key];
    let waiting = gang.waiting();
    let waiting = waiting.iter().filter(|m| !gang.has_slot(&m.id.uid));
    let waiting: Vec<String> = waiting.map(|m| m.id.uid.clone()).collect();
    // An elastic gang whose pod was preempted continues with the recreated one.
    let is_empty = |key: &&GangKey| r.gangs.get(key).is_some_and(|g| g.members.is_empty());
    let empty = gang.elastic.iter().filter(is_empty).cloned();
    let numbers = 1..=u32::MAX;
    let new = numbers
        .map(|number| elastic_key(key, number))
        .filter(|elastic| !gang.elastic.contains(elastic));
    let keys: Vec<GangKey> = empty
        .chain(new.take(gang.elastic_room().min(waiting.len())))
        .take(waiting.len())
        .collect();
    for (uid, elastic) in waiting.into_iter().zip(keys) {
        let elastic = create_elastic(r, key, elastic);
        r.gangs.move_member(key, &elastic, &uid);
        machine::visit(r, &elastic, tx);
    }
}

/// Checks whether the job of a gang is starting or running.
fn is_active(r: &Reconciler, key: &GangKey, tx: &impl ClusterTransaction) -> bool {
    let state = job_state(r.gangs.get(key), tx);
    matches!(state, Some(JobState::Starting | JobState::Running))
}

fn job_state<'a>(gang: Option<&Gang>, tx: &'a impl ClusterTransaction) -> Option<&'a JobState> {
    let job = tx.state().job(gang?.job?)?;
    Some(&job.state)
}

/// Returns the attempt beside which an elastic pod is bound.
pub(super) fn parent_of(r: &Reconciler, elastic: &Gang) -> Option<ElasticParent> {
    let parent = r.gangs.get(elastic.parent.as_ref()?)?;
    Some(ElasticParent {
        job: parent.job?,
        attempt: parent.attempt?,
        number: elastic.elastic_number(),
    })
}

/// Moves an elastic pod without a job back to its parent if it has ended, or if the parent does not run; returns whether it
/// did.
pub(super) fn rejoin_parent(r: &mut Reconciler, key: &GangKey, tx: &mut impl ClusterTransaction) -> bool {
    let Some(gang) = r.gangs.get(key).filter(|gang| gang.job.is_none()) else {
        return false;
    };
    let Some(parent) = gang.parent.clone() else {
        return false;
    };
    let parent_active = is_active(r, &parent, tx);
    let rejoins = |m: &&Member| m.phase.has_ended() || (m.is_waiting() && !parent_active);
    let members = gang.members.values().filter(rejoins);
    let rejoining: Vec<String> = members.map(|m| m.id.uid.clone()).collect();
    if rejoining.is_empty() {
        return false;
    }
    for uid in rejoining {
        r.gangs.move_member(key, &parent, &uid);
    }
    machine::visit(r, key, tx);
    machine::visit(r, &parent, tx);
    true
}

/// Evicts elastic pods without a pod of their parent attempt: an earlier leader ended while it stopped the gang.
pub(super) fn evict_orphaned_pods(r: &mut Reconciler, tx: &mut impl ClusterTransaction) {
    let is_orphaned = |gang: &Gang| {
        let Some(parent) = gang.parent.as_ref().filter(|_| gang.job.is_some()) else {
            return false;
        };
        let beside = gang.members.values().find_map(|m| m.elastic_of);
        let members = r.gangs.get(parent).into_iter().flat_map(|g| g.members.values());
        let mut bound = members.filter_map(|m| m.bound_as.as_ref());
        !bound.any(|bound| beside.is_some_and(|beside| bound.is_for(beside.job, beside.attempt)))
    };
    for key in r.gangs.keys_where(is_orphaned) {
        evict(r, &key, &parent_stopped(), tx);
    }
}

/// Removes an elastic gang without pods from its parent.
pub(super) fn remove_from_parent(
    r: &mut Reconciler,
    parent: &GangKey,
    elastic: &GangKey,
    tx: &mut impl ClusterTransaction,
) {
    if let Some(gang) = r.gangs.get_mut(parent) {
        gang.elastic.remove(elastic);
        machine::visit(r, parent, tx);
    }
}

/// Visits the elastic pods of a gang that does not run.
pub(super) fn visit_elastic_pods(r: &mut Reconciler, key: &GangKey, tx: &mut impl ClusterTransaction) {
    let elastic: Vec<GangKey> = r.gangs[key].elastic.iter().cloned().collect();
    for key in elastic {
        machine::visit(r, &key, tx);
    }
}

/// Stops an elastic pod whose parent was stopped; returns whether it did. When the parent has ended by itself, its running elastic
/// pods finish.
pub(super) fn stop_with_parent(r: &mut Reconciler, key: &GangKey, tx: &mut impl ClusterTransaction) -> bool {
    let gang = &r.gangs[key];
    let Some(parent) = gang.parent.as_ref().filter(|parent| !is_active(r, parent, tx)) else {
        return false;
    };
    let parent = r.gangs.get(parent);
    let parent_job = parent.and_then(|gang| gang.job);
    let beside = gang.members.values().find_map(|m| m.elastic_of);
    if beside.is_some_and(|beside| Some(beside.job) != parent_job) {
        return false;
    }
    let removal = match (parent_job, job_state(parent, tx)) {
        (Some(job), Some(JobState::Stopping(_))) => stopping::removal(r, job, tx),
        _ => parent_stopped(),
    };
    evict(r, key, &removal, tx);
    true
}

/// Removes the pod of an elastic gang and cancels its job.
fn evict(r: &mut Reconciler, key: &GangKey, removal: &Removal, tx: &mut impl ClusterTransaction) {
    let Some(gang) = r.gangs.get(key) else { return };
    for pod in gang.pods_on_nodes() {
        stopping::remove(r, key, &pod, removal);
    }
    cancel(r, key, PARENT_STOPPED, tx);
    machine::visit(r, key, tx);
}

/// Cancels the job of an elastic gang.
fn cancel(r: &Reconciler, key: &GangKey, reason: &str, tx: &mut impl ClusterTransaction) {
    let gang = r.gangs.get(key);
    let state = job_state(gang, tx);
    if matches!(state, None | Some(JobState::Ended(_) | JobState::Stopping(_))) {
        return;
    }
    if let Some(job) = gang.and_then(|gang| gang.job) {
        tx.record(Fact::Cancelled {
            job,
            by: Actor::kubernetes(reason),
        });
    }
}

/// Returns pods for the vacant slots of a gang: those that wait in it, then its waiting elastic pods.
pub(super) fn fill_vacant_slots(
    r: &mut Reconciler,
    key: &GangKey,
    tx: &mut impl ClusterTransaction,
) -> Vec<(usize, PodId)> {
    let gang = &r.gangs[key];
    let filled = slots::fill_vacant(gang);
    let vacant = |index: &usize| gang.is_vacant(*index) && filled.iter().all(|(taken, _)| taken != index);
    let vacant = (0..gang.slots.len()).filter(vacant);
    let vacant: Vec<PodResources> = vacant.map(|index| gang.slots[index].resources).collect();
    if vacant.is_empty() || gang.elastic.is_empty() {
        return filled;
    }
    for elastic in waiting_elastic(r, gang, vacant, tx) {
        cancel(r, &elastic, "the elastic pod replaces a pod of its gang", tx);
        let uids: Vec<String> = r.gangs[&elastic].members.keys().cloned().collect();
        r.gangs.clear_job(&elastic);
        for uid in uids {
            r.gangs.move_member(&elastic, key, &uid);
        }
        machine::visit(r, &elastic, tx);
    }
    slots::fill_vacant(&r.gangs[key])
}

/// Returns the waiting elastic gangs whose pods fit into vacant slots.
fn waiting_elastic(
    r: &Reconciler,
    gang: &Gang,
    mut vacant: Vec<PodResources>,
    tx: &impl ClusterTransaction,
) -> Vec<GangKey> {
    let is_waiting = |elastic: &&Gang| {
        let state = job_state(Some(elastic), tx);
        let is_queued = matches!(state, None | Some(JobState::Queued | JobState::Held(_)));
        is_queued && elastic.members.values().any(Member::is_waiting)
    };
    let elastic = gang.elastic.iter().filter_map(|key| r.gangs.get(key));
    let mut chosen = Vec::new();
    for elastic in elastic.filter(is_waiting) {
        let resources = elastic.first().map(|m| m.identity.resources);
        if let Some(index) = vacant.iter().position(|slot| Some(*slot) == resources) {
            vacant.swap_remove(index);
            chosen.push(elastic.key.clone());
        }
    }
    chosen
}
