//! `dovetail reproduce`: runs a published experiment.

use dovetail_console::Failure;
use dovetail_reproduce::Options;

use crate::args::ReproduceArgs;

/// Runs the named experiment, or lists all of them.
///
/// # Errors
/// Fails when the name is unknown, data is missing, or a published statement does not hold.
pub fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    let options = Options {
        out: args.out.clone(),
        data: args.data.clone(),
        seed: args.seed,
        full: args.full,
        json: args.json,
        quiet: args.quiet,
    };
    dovetail_reproduce::run(args.name.as_deref(), &options)
}
