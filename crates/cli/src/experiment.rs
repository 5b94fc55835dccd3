//! Errors and notices of experiments as the command line shows them: settings are flags.

use dovetail_console::Failure;
use dovetail_experiment::{ExperimentError, Notice};

/// Returns the failure of the request or of the work, with the names of flags.
pub fn failure(error: ExperimentError) -> Failure {
    match &error {
        ExperimentError::InvalidSetting { .. }
        | ExperimentError::EmptyList { .. }
        | ExperimentError::UnknownVirtualCluster { .. }
        | ExperimentError::ExcessiveGuarantees { .. }
        | ExperimentError::MissingShare { .. } => Failure::request(format!("--{error}")),
        ExperimentError::Conflict { key, other } => {
            Failure::request(format!("--{key} cannot be used with --{other}"))
        }
        ExperimentError::Requires { key, other } => Failure::request(format!("--{key} requires --{other}")),
        ExperimentError::UnknownJob { .. } => Failure::request(format!("--explain {error}")),
        _ if error.is_failed_work() => Failure::Work(error.into()),
        _ => Failure::Request(error.into()),
    }
}

/// Prints what a person should know before a run starts.
pub fn print_notice(notice: &Notice) {
    match notice {
        Notice::Note(note) => eprintln!("note: {note}"),
        Notice::ShortTimeSlices(warning) => eprintln!(
            "warning: {warning}; use a longer time slice (quantum of las, first limit of tiresias) or a lower --restart-cost"
        ),
    }
}
