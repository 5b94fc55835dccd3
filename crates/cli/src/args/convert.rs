//! Flags of `dovetail convert`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `dovetail convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The system that the file is from.
    #[command(subcommand)]
    pub from: ConvertFrom,
}

/// Systems whose job files can be converted.
#[derive(Debug, Subcommand)]
pub enum ConvertFrom {
    /// Convert an OpenPAI job file (protocol version 2); differences are listed on standard error
    Pai(ConvertPaiArgs),
}

/// `dovetail convert pai`.
#[derive(Debug, Args)]
pub struct ConvertPaiArgs {
    /// Job file, - for standard input
    #[arg(value_name = "JOB.yaml")]
    pub file: PathBuf,
    /// Output format
    #[arg(short, long, value_name = "FORM", default_value = "yaml")]
    pub output: FileForm,
    /// Same as -o json
    #[arg(long)]
    pub json: bool,
    /// Drop unknown keys and keep unresolved templates instead of rejecting the file
    #[arg(long)]
    pub lenient: bool,
    /// Do not list differences
    #[arg(long, short)]
    pub quiet: bool,
}

/// Formats of a job file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum FileForm {
    /// YAML
    #[default]
    Yaml,
    /// JSON
    Json,
}
