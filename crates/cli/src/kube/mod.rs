//! Dovetail on Kubernetes.

pub mod args;
mod convert;
pub mod extender;
mod health;
mod page;
mod scheduler;
mod settings;
mod submit;

use crate::failure::Failure;
use args::{Kube, KubeArgs};

/// Runs `dovetail kube`.
///
/// # Errors
/// What the command fails with.
pub fn run(args: &KubeArgs) -> Result<(), Failure> {
    match &args.command {
        Kube::Scheduler(args) => scheduler::run(args),
        Kube::Extender(args) => extender::run(args),
        Kube::Submit(args) => submit::run(args),
        Kube::Convert(args) => convert::run(args),
    }
}
