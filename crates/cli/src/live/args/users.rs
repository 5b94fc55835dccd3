//! Flags of `dovetail user`.

use clap::{Args, Subcommand};

use super::{ClientArgs, OutputArgs};

/// `dovetail user`
#[derive(Debug, Clone, Args)]
pub struct UserArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: UserCommand,
}

/// Commands on users.
#[derive(Debug, Clone, Subcommand)]
pub enum UserCommand {
    /// Add a user, and print its client.yaml
    Add {
        /// Name of the user; if jobs run under the user's account, the name of that account
        name: String,
        /// Make the user an administrator
        #[arg(long)]
        admin: bool,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Remove a user and revoke its token; its jobs continue
    Remove {
        /// Name of the user
        name: String,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
    /// List users
    List {
        /// Output format.
        #[command(flatten)]
        output: OutputArgs,
        /// The scheduler.
        #[command(flatten)]
        client: ClientArgs,
    },
}
