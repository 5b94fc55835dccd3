//! Failures of tasks: what caused them, and how they are described.

use crate::fact::TaskEnd;

/// What caused a failure.
pub(super) enum FailureCause {
    /// The job itself.
    User,
    /// The platform, with a description.
    Platform(String),
}

/// Signals that are sent from outside the job: not counted as a failure of the job.
const EXTERNAL_SIGNALS: [i32; 2] = [9, 15];

/// Returns whether a task failed.
pub(super) fn has_failed(end: &TaskEnd) -> bool {
    end.exit_code != 0 || end.signal != 0 || end.platform_error.is_some() || end.out_of_memory
}

/// Returns what caused a failure.
pub(super) fn cause(end: &TaskEnd) -> FailureCause {
    match &end.platform_error {
        Some(_) if end.refused => FailureCause::User,
        Some(error) => FailureCause::Platform(error.clone()),
        None if end.out_of_memory => FailureCause::User,
        None if EXTERNAL_SIGNALS.contains(&end.signal) => FailureCause::Platform(describe(end)),
        None => FailureCause::User,
    }
}

/// Describes the end of a task that failed.
pub(super) fn describe(end: &TaskEnd) -> String {
    match (&end.platform_error, end.signal, end.exit_code) {
        (Some(error), _, _) => error.clone(),
        _ if end.out_of_memory => "out of memory: it used more than its allocation".to_owned(),
        (None, 0, code) => format!("exit code {code}"),
        (None, 9, _) => "killed (signal 9), but not by the scheduler".to_owned(),
        (None, 11, _) => "segmentation fault (signal 11)".to_owned(),
        (None, 6, _) => "aborted (signal 6)".to_owned(),
        (None, signal, _) => format!("ended by signal {signal}"),
    }
}
