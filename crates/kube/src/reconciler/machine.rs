//! The state machine of a gang. Its state follows from its job; each visit performs the step of that state.

use dovetail_cluster::{ClusterState, Hold, JobId, JobState};

use super::gang::Gang;
use super::{ClusterTransaction, Reconciler, active, elastic, queued, stopping, submitted};
use crate::action::Action;
use crate::identity::{GangKey, SizeSource};

/// State of a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GangState {
    /// It has no job: it is submitted when it has enough pods.
    Assembling,
    /// Its job waits until the pods are recreated.
    AwaitingPods(JobId),
    /// Its job is queued or held.
    Queued(JobId),
    /// Its job holds GPUs.
    Active(JobId),
    /// Its job is being stopped.
    Stopping(JobId),
    /// Its job has ended.
    Ended(JobId),
}

impl GangState {
    fn of(gang: &Gang, state: &ClusterState) -> Self {
        let Some(id) = gang.job else {
            return Self::Assembling;
        };
        match state.job(id).map(|job| &job.state) {
            None | Some(JobState::Ended(_)) => Self::Ended(id),
            Some(JobState::Held(Hold::Workload)) => Self::AwaitingPods(id),
            Some(JobState::Queued | JobState::Held(_)) => Self::Queued(id),
            Some(JobState::Starting | JobState::Running) => Self::Active(id),
            Some(JobState::Stopping(_)) => Self::Stopping(id),
        }
    }

    /// Checks whether the job can still run.
    fn is_open(self) -> bool {
        matches!(self, Self::AwaitingPods(_) | Self::Queued(_) | Self::Active(_))
    }
}

/// Visits a gang, and the gangs that this affects.
pub(super) fn visit(r: &mut Reconciler, key: &GangKey, tx: &mut impl ClusterTransaction) {
    r.visits.push_back(key.clone());
    // A visit during a visit is queued, so that no step sees a gang halfway through another step.
    if r.visits.len() > 1 {
        return;
    }
    while let Some(next) = r.visits.front().cloned() {
        step(r, &next, tx);
        r.visits.pop_front();
    }
}

/// Tries again to submit gangs that were refused.
pub(super) fn retry_refused(r: &mut Reconciler, tx: &mut impl ClusterTransaction) {
    for key in r.gangs.keys_where(|gang| gang.refused.is_some()) {
        if let Some(gang) = r.gangs.get_mut(&key) {
            gang.refused = None;
        }
        visit(r, &key, tx);
    }
}

fn step(r: &mut Reconciler, key: &GangKey, tx: &mut impl ClusterTransaction) {
    let Some(gang) = r.gangs.get(key) else {
        return;
    };
    if gang.members.is_empty() && gang.job.is_none() && gang.elastic.is_empty() {
        let parent = r.gangs.remove(key).and_then(|gang| gang.parent);
        if let Some(parent) = parent {
            elastic::remove_from_parent(r, &parent, key, tx);
        }
        return;
    }
    let awaits_size = request_size(r, key);
    if awaits_size || !r.listed || elastic::rejoin_parent(r, key, tx) {
        return;
    }
    stopping::evict_strays(r, key);
    let state = GangState::of(&r.gangs[key], tx.state());
    if !matches!(state, GangState::Active(_)) {
        elastic::visit_elastic_pods(r, key, tx);
    }
    if state.is_open() && elastic::stop_with_parent(r, key, tx) {
        return;
    }
    match state {
        GangState::Assembling => submitted::submit_when_complete(r, key, tx),
        GangState::AwaitingPods(id) => queued::await_pods(r, key, id, tx),
        GangState::Queued(id) => queued::check_pods(r, key, id, tx),
        GangState::Active(id) => active::step(r, key, id, tx),
        GangState::Stopping(id) => stopping::step(r, key, id, tx),
        GangState::Ended(id) => queued::leave_job(r, key, id, tx),
    }
}

/// Sets the size of a gang from its pods, or requests it; returns whether it was requested now.
fn request_size(r: &mut Reconciler, key: &GangKey) -> bool {
    let gang = r.gangs.entry(key);
    if gang.size.is_some() {
        return false;
    }
    match gang.members.values().next().map(|m| m.identity.size.clone()) {
        Some(SizeSource::Known(size)) => gang.size = Some(size),
        Some(SizeSource::LookUp(lookup)) if !gang.size_requested => {
            gang.size_requested = true;
            let gang = key.clone();
            r.actions.push(Action::LookUpSize { gang, lookup });
            return true;
        }
        Some(SizeSource::LookUp(_)) | None => {}
    }
    false
}
