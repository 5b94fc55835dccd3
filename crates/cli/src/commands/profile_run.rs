//! `dovetail profile run`: measures how fast a command runs with how many CPUs.

use dovetail_console::Failure;
use dovetail_profiler::Options;

use crate::args::ProfileRunArgs;

/// Measures, prints and writes.
///
/// # Errors
/// Fails when a flag is wrong or the command cannot be measured.
pub fn run(args: &ProfileRunArgs) -> Result<(), Failure> {
    let args = args.clone();
    dovetail_profiler::run(&Options {
        command: args.command,
        model: args.model,
        gpus: args.gpus,
        cpus: args.cpus,
        seconds: args.seconds,
        patience: args.patience,
        pattern: args.pattern,
        progress: args.progress,
        dataset_gb: args.dataset_gb,
        epoch_iterations: args.epoch_iterations,
        cache: args.cache,
        disk_mbps: args.disk_mbps,
        mem_gbps: args.mem_gbps,
        share_cpus: args.share_cpus,
        share_gb: args.share_gb,
        out: args.out,
        svg: args.svg,
        json: args.json,
        quiet: args.quiet,
    })
}
