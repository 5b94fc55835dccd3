//! Dovetail on Kubernetes.

pub mod args;
mod convert;
mod exec;
pub mod extender;
mod health;
mod scheduler;
mod settings;
mod submit;

use std::process::ExitCode;

use dovetail_console::Failure;

use args::{Kube, KubeArgs};

/// Runs `dovetail kube`. The exit code of `exec` is that of the command.
///
/// # Errors
/// The error of the command.
pub fn run(args: &KubeArgs) -> Result<ExitCode, Failure> {
    let result = match &args.command {
        Kube::Scheduler(args) => scheduler::run(args),
        Kube::Extender(args) => extender::run(args),
        Kube::Submit(args) => submit::run(args),
        Kube::Convert(args) => convert::run(args),
        Kube::Exec(args) => return exec::run(args),
    };
    result.map(|()| ExitCode::SUCCESS)
}
