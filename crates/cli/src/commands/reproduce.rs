//! `dovetail reproduce`: runs a published experiment.

use dovetail_console::Failure;
use dovetail_experiment::split_policies;
use dovetail_reproduce::{Options, TESTBED};
use dovetail_testbed::LiveOptions;

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
    match args.name.as_deref() {
        name if !args.live.live => dovetail_reproduce::run(name, &options),
        Some(TESTBED) => run_live(args, &options),
        Some(name) => {
            dovetail_reproduce::find(name)?;
            Err(Failure::request(format!(
                "--live: {name} runs in the simulator only; on a live cluster there is {TESTBED}"
            )))
        }
        None => Err(Failure::request(format!(
            "--live requires the name of an experiment: {TESTBED}"
        ))),
    }
}

fn run_live(args: &ReproduceArgs, options: &Options) -> Result<(), Failure> {
    let live = &args.live;
    let policies: Vec<String> = live
        .policies
        .iter()
        .flat_map(|text| split_policies(text))
        .collect();
    if policies.is_empty() {
        return Err(Failure::request("--policies: expected at least one policy"));
    }
    let report = dovetail_testbed::run(&LiveOptions {
        data: args.data.clone(),
        jobs: live.jobs,
        scale: live.scale,
        policies,
        nodes: live.nodes,
        gpus: live.gpus,
        cluster: live.on.clone(),
        synthetic: live.synthetic,
        trainer: live.trainer.clone(),
        python: live.python.clone(),
        quiet: args.quiet,
    })?;
    dovetail_reproduce::show(dovetail_reproduce::find(TESTBED)?, &report, options)
}
