//! `dovetail bench`: measures the scheduler on this machine.

use dovetail_bench::{Benchmark, Contender, Options};
use dovetail_console::Failure;

use crate::args::{BenchArg, BenchArgs, ContenderArg};

/// Measures and prints.
///
/// # Errors
/// The benchmark's failure.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let benchmark = match args.what {
        BenchArg::Sim => Benchmark::Sim,
        BenchArg::Grouping => Benchmark::Grouping,
        BenchArg::Cells => Benchmark::Cells,
        BenchArg::Sizing => Benchmark::Sizing,
        BenchArg::Live => Benchmark::Live,
        BenchArg::Kube => Benchmark::Kube,
        BenchArg::Web => Benchmark::Web,
        BenchArg::History => Benchmark::History,
    };
    let options = Options {
        trace: args.trace.clone(),
        short: args.short,
        jobs: args.jobs,
        runs: args.runs,
        only: args.only.iter().copied().map(contender).collect(),
        json: args.json,
    };
    dovetail_bench::run(benchmark, &options)
}

fn contender(arg: ContenderArg) -> Contender {
    match arg {
        ContenderArg::Binder => Contender::Binder,
        ContenderArg::Dovetail => Contender::Dovetail,
        ContenderArg::Gangs => Contender::Gangs,
        ContenderArg::BinderEvents => Contender::BinderEvents,
        ContenderArg::DovetailEvents => Contender::DovetailEvents,
        ContenderArg::KubeScheduler => Contender::KubeScheduler,
    }
}
