//! `dovetail convert`: converts job files of other systems.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_jobfile::JobFile;
use dovetail_openpai::{Mode, Remark};

use crate::args::{ConvertArgs, ConvertFrom, ConvertPaiArgs, FileForm};

/// Runs `dovetail convert`.
///
/// # Errors
/// If the file is not readable or invalid; every error is listed with its path.
pub fn run(args: &ConvertArgs) -> Result<(), Failure> {
    match &args.from {
        ConvertFrom::Pai(args) => pai(args),
    }
}

fn pai(args: &ConvertPaiArgs) -> Result<(), Failure> {
    let (text, name) = read(&args.file)?;
    let mode = match args.lenient {
        true => Mode::Lenient,
        false => Mode::Strict,
    };
    let file = JobFile::from_openpai(&text, mode).map_err(|faults| {
        let lines: Vec<String> = faults.0.iter().map(|fault| format!("{name}: {fault}")).collect();
        Failure::request(lines.join("\n"))
    })?;
    if !args.quiet {
        print_remarks(&file.ignored);
    }
    let keys = file.keys();
    console::print(match args.output {
        _ if args.json => serde_json::to_string_pretty(&keys).or_work()?,
        FileForm::Json => serde_json::to_string_pretty(&keys).or_work()?,
        FileForm::Yaml => serde_saphyr::to_string(&keys).or_work()?.trim_end().to_owned(),
    })
}

/// Prints the remarks about a job file, one per line.
pub fn print_remarks(remarks: &[Remark]) {
    for remark in remarks {
        eprintln!("note: {remark}");
    }
}

/// Reads a file and returns its text and name; `-` is standard input.
///
/// # Errors
/// If the file is not readable.
pub fn read(path: &Path) -> Result<(String, String), Failure> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).or_request()?;
        return Ok((text, "standard input".to_owned()));
    }
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .with_context(|| name.clone())
        .or_request()?;
    Ok((text, name))
}
