//! `dovetail convert`: job files of other systems as ours.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use dovetail_openpai::{Mode, Remark};
use dovetail_web::JobFile;

use crate::args::{ConvertArgs, ConvertFrom, ConvertPaiArgs, FileForm};
use crate::failure::{Blame, Failure};
use crate::show;

/// Runs it.
///
/// # Errors
/// When the file cannot be read, or is not what it should be: every mistake with its path.
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
    let converted = dovetail_web::convert(&text, mode).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(|fault| format!("{name}: {fault}")).collect();
        Failure::request(lines.join("\n"))
    })?;
    let file = JobFile::from(converted);
    if !args.quiet {
        tell(&file.ignored);
    }
    let keys = file.keys();
    show::print(match args.output {
        _ if args.json => serde_json::to_string_pretty(&keys).or_work()?,
        FileForm::Json => serde_json::to_string_pretty(&keys).or_work()?,
        FileForm::Yaml => serde_saphyr::to_string(&keys).or_work()?.trim_end().to_owned(),
    })
}

/// Says what was left out of a file, or is not quite the same, a line each.
pub fn tell(remarks: &[Remark]) {
    for remark in remarks {
        eprintln!("note: {remark}");
    }
}

/// The text of a file and what to call it; `-` is standard input.
///
/// # Errors
/// When it cannot be read.
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
