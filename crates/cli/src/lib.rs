//! The command line, a thin layer over the other crates. Flags are parsed to plain data ([`args`]) and passed to one file
//! per command ([`commands`]), which calls a library and prints its results.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line prints")]

pub mod args;
pub mod commands;
pub mod comparison;
pub mod experiment;
pub mod explain;
pub mod kube;
pub mod live;
pub mod part_names;

use std::process::ExitCode;

use clap::Parser;
use dovetail_console::{self as console, Failure};

use args::{Cli, Command};

/// Runs the command the process was called with. Exit codes: 0 done, 1 the work failed, 2 the request was wrong.
pub fn main() -> ExitCode {
    // The agent starts this program as the shim of each task, without the other flags.
    let words: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    if let [first, second, rest @ ..] = words.as_slice()
        && first == "agent"
        && second == "--exec-task"
    {
        return ExitCode::from(u8::try_from(dovetail_agent::shim(rest)).unwrap_or(1));
    }
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{} {failure}", console::error_label());
            failure.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let result = match cli.command {
        Command::Live(command) => return live::run(&command),
        Command::Simulate(args) => commands::simulate::run(args),
        Command::Compare(args) => commands::compare::run(args),
        Command::Forecast(args) => commands::forecast::run(args),
        Command::Trace(args) => commands::trace::run(args),
        Command::Policies(args) => commands::policies::run(&args),
        Command::Profile(args) => commands::profile::run(&args),
        Command::Vc(args) => commands::vc::run(&args),
        Command::Calc(args) => commands::calc::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Reproduce(args) => commands::reproduce::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Kube(args) => return kube::run(&args),
        Command::Convert(args) => commands::convert::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
    };
    result.map(|()| ExitCode::SUCCESS)
}
