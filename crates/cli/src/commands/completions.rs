//! `dovetail completions SHELL`.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::failure::{Blame, Failure};

/// Prints the completion script.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "dovetail", &mut script);
    std::io::Write::write_all(&mut std::io::stdout(), &script).or_work()
}
