//! `dovetail completions SHELL`.

use clap::CommandFactory;
use dovetail_console::{Failure, OrFailure};

use crate::args::{Cli, CompletionsArgs};

/// Prints the completion script.
///
/// # Errors
/// If standard output is not writable.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "dovetail", &mut script);
    std::io::Write::write_all(&mut std::io::stdout(), &script).or_work()
}
