//! Dovetail on Kubernetes.

pub mod args;
pub mod extender;

use crate::failure::Failure;
use args::{Kube, KubeArgs};

/// Runs `dovetail kube`.
///
/// # Errors
/// What the command fails with.
pub fn run(args: &KubeArgs) -> Result<(), Failure> {
    match &args.command {
        Kube::Extender(args) => extender::run(args),
    }
}
