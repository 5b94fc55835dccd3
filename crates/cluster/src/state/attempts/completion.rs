//! Completion rules: when the instances of a job's roles decide the outcome of an attempt.

use crate::fact::TaskEnd;
use crate::request::Role;
use crate::state::jobs::{Attempt, Verdict};

/// Returns whether a role has succeeded or failed, or `None` while its rules decide neither.
pub(in crate::state) fn decide(role: &Role, failed: u32, succeeded: u32) -> Option<bool> {
    let is_reached = |limit: Option<u32>, count: u32| limit.is_some_and(|n| n > 0 && count >= n);
    if is_reached(role.failures_allowed(), failed) {
        return Some(false);
    }
    is_reached(role.successes_needed(), succeeded).then_some(true)
}

/// Returns whether an attempt with roles is complete and, if not, the failure that ended it. All its tasks have ended.
pub(super) fn outcome(attempt: &Attempt, ends: &[TaskEnd]) -> (bool, Option<TaskEnd>) {
    let lost = ends
        .iter()
        .find(|end| end.platform_error.is_some() && !end.was_stopped);
    match (&attempt.verdict, &attempt.cause, lost) {
        (Some(Verdict::Succeeded(_)), _, _) => (true, None),
        (Some(Verdict::Failed(_, end)), _, _) => {
            let is_same = |e: &&TaskEnd| (e.exit_code, e.signal) == (end.exit_code, end.signal);
            let failed = TaskEnd {
                exit_code: end.exit_code,
                signal: end.signal,
                log_tail: ends
                    .iter()
                    .find(is_same)
                    .map(|e| e.log_tail.clone())
                    .unwrap_or_default(),
                out_of_memory: ends.iter().any(|e| e.out_of_memory),
                ..TaskEnd::default()
            };
            (false, Some(failed))
        }
        (None, _, Some(lost)) => (false, Some(lost.clone())),
        (None, Some(_), None) => (false, None),
        // No rule decided and all processes have ended: a success.
        (None, None, None) => (!ends.iter().any(|end| end.was_stopped), None),
    }
}
