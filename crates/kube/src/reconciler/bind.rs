//! Bindings of the pods in slots.

use dovetail_cluster::{AttemptId, JobId};

use super::gang::{Gang, TaskSlot};
use super::{ClusterTransaction, Reconciler, elastic, resize};
use crate::action::{Action, Bind};
use crate::annotations;
use crate::gang_history::BoundHistory;
use crate::identity::GangKey;
use crate::plan::{Plan, gpus_text};

/// Requests the bindings of the pods in these slots. The plan of a gang is written before the first binding.
pub(super) fn bind_slots(
    r: &mut Reconciler,
    key: &GangKey,
    (job, attempt): (JobId, AttemptId),
    slots: &[usize],
    tx: &impl ClusterTransaction,
) {
    if !resize::has_room(r, key, slots) {
        let now = tx.state().now();
        r.gangs.entry(key).awaits_room.get_or_insert(now);
        return;
    }
    r.gangs.entry(key).awaits_room = None;
    let gang = &r.gangs[key];
    let history = history(job, tx);
    let binds: Vec<Bind> = slots
        .iter()
        .filter_map(|index| bind(r, gang, (job, attempt, &history), &gang.slots[*index]))
        .collect();
    let Some(first) = binds.first() else { return };
    let plan = (gang.slots.len() > 1).then(|| {
        let plan = Plan::of(job, attempt, gang, &|slot| r.nodes.name(slot.node));
        (first.pod.clone(), plan.to_string())
    });
    let gang = r.gangs.entry(key);
    for bind in &binds {
        if let Some(member) = gang.members.get_mut(&bind.pod.uid) {
            member.in_flight = Some(bind.node.clone());
            resize::sent(member, bind.resize.as_ref());
        }
    }
    r.actions.push(Action::Launch {
        job,
        attempt,
        gang: key.to_string(),
        plan,
        binds,
    });
}

/// Returns the annotations about the past of a job.
fn history(job: JobId, tx: &impl ClusterTransaction) -> Vec<(&'static str, String)> {
    let Some(record) = tx.state().job(job) else {
        return Vec::new();
    };
    let history = BoundHistory::of(record).and_then(|history| serde_json::to_string(&history).ok());
    let mut annotations: Vec<_> = history
        .into_iter()
        .map(|text| (annotations::HISTORY, text))
        .collect();
    if record.progress.checkpoint > 0 {
        annotations.push((annotations::RESUME_STEP, record.progress.checkpoint.to_string()));
    }
    annotations
}

fn bind(
    r: &Reconciler,
    gang: &Gang,
    (job, attempt, history): (JobId, AttemptId, &[(&'static str, String)]),
    slot: &TaskSlot,
) -> Option<Bind> {
    let member = gang.pod_in(slot)?;
    let gpus = gpus_text(&slot.gpus);
    let mut annotations = vec![
        (annotations::JOB, job.to_string()),
        (annotations::ATTEMPT, attempt.to_string()),
        (annotations::GPUS, gpus.clone()),
    ];
    annotations.extend_from_slice(history);
    if member.identity.hived {
        annotations.push((dovetail_hived::ISOLATION, gpus));
    }
    if let Some(parent) = elastic::parent_of(r, gang) {
        annotations.push((annotations::ELASTIC_OF, parent.to_string()));
    }
    let node = r.nodes.name(slot.node);
    let claims = r
        .devices
        .allocate(&member.id.namespace, &member.claims, &node, slot)?;
    let resize = resize::at_binding(r, member, slot);
    Some(Bind {
        pod: member.id.clone(),
        node,
        annotations,
        claims,
        resize,
    })
}
