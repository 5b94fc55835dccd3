//! Reports how the pods of an attempt ended.

use dovetail_cluster::{AttemptId, Fact, JobId, JobState, TaskEnd};
use dovetail_model::NodeId;

use super::completion::{self, Verdict};
use super::gang::{Gang, Member, PodPhase};
use super::{ClusterTransaction, Reconciler};

/// Reports how the current attempt of a job ended, node by node.
pub(super) fn report_ends(r: &Reconciler, job: JobId, tx: &mut impl ClusterTransaction) {
    let Some(record) = tx.state().job(job) else { return };
    let was_stopped = matches!(record.state, JobState::Stopping(_));
    let Some(attempt) = record.attempt().filter(|a| a.end.is_none()) else {
        return;
    };
    let attempt_id: AttemptId = attempt.id;
    let gang = r.gangs.of_job(job).filter(|_| !was_stopped);
    let nodes = attempt.allocation.shares.iter().map(|share| share.node);
    let mut ends: Vec<(NodeId, TaskEnd)> = nodes
        .map(|node| (node, gang.map_or_else(stopped, |gang| end_on(gang, node))))
        .collect();
    // A failure is reported before the ends that follow from it.
    ends.sort_by_key(|(_, end)| end.was_stopped);
    for (node, end) in ends {
        tx.record(Fact::TaskEnded {
            job,
            attempt: attempt_id,
            node,
            end: Box::new(end),
        });
    }
}

fn stopped() -> TaskEnd {
    TaskEnd {
        was_stopped: true,
        ..TaskEnd::default()
    }
}

/// Returns how the pods of a gang on a node ended, as one task.
fn end_on(gang: &Gang, node: NodeId) -> TaskEnd {
    let verdict = completion::verdict(gang);
    if verdict == Some(Verdict::Succeeded) {
        return TaskEnd::default();
    }
    let slots = gang.slots.iter().filter(|slot| slot.node == node);
    let mut end = TaskEnd::default();
    for member in slots.map(|slot| gang.pod_in(slot)) {
        match member.map(|m| (m, m.phase)) {
            Some((_, PodPhase::Succeeded)) => {}
            Some((m, PodPhase::Failed(_))) if verdict.is_some() && m.deleting => end = stopped(),
            Some((m, PodPhase::Failed(code))) => return failed(m, code),
            // The controller deletes the remaining pods of a failed gang.
            Some((_, PodPhase::Pending | PodPhase::Running)) | None if verdict == Some(Verdict::Failed) => {
                end = stopped();
            }
            Some((_, PodPhase::Pending | PodPhase::Running)) | None => {
                end.platform_error = Some("a pod was deleted, but not by the scheduler".to_owned());
                end.refused = true;
            }
        }
    }
    end
}

fn failed(member: &Member, code: i32) -> TaskEnd {
    let exit_code = if code == 0 { 1 } else { code };
    if let Some(rejection) = &member.rejection {
        let node = member.node.as_deref().unwrap_or_default();
        return TaskEnd {
            exit_code,
            platform_error: Some(format!("node {node} rejected pod {}: {rejection}", member.id)),
            // The node is not to blame: it may just be full.
            refused: true,
            ..TaskEnd::default()
        };
    }
    TaskEnd {
        exit_code,
        log_tail: format!("pod {} failed", member.id),
        ..TaskEnd::default()
    }
}
