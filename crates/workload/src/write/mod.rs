//! Writes workloads. The native formats keep everything; for the others, losses are reported.

mod foreign;
mod loss;
mod native;

use std::io::Write;

use crate::compression;
use crate::format::Format;
use crate::job::Workload;

/// A workload that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Writing to the output failed.
    #[error("cannot write: {0}")]
    Io(#[from] std::io::Error),
    /// The format needs data that a workload does not have.
    #[error("cannot write a workload as {format}: {reason}; expected one of {}", writable().join(", "))]
    Unsupported {
        /// The format.
        format: Format,
        /// Why it cannot be written.
        reason: &'static str,
    },
}

impl From<csv::Error> for WriteError {
    fn from(error: csv::Error) -> Self {
        match error.into_kind() {
            csv::ErrorKind::Io(error) => Self::Io(error),
            other => Self::Io(std::io::Error::other(format!("{other:?}"))),
        }
    }
}

fn writable() -> Vec<&'static str> {
    let formats = Format::ALL.into_iter().filter(|f| cannot_write(*f).is_none());
    formats.map(Format::name).collect()
}

/// Returns why a format can only be read; `None` if it can be written.
pub fn cannot_write(format: Format) -> Option<&'static str> {
    match format {
        Format::Philly => Some("the format is a log of attempts on machines"),
        Format::Openb => Some("the format is a log of pods with their creation and deletion"),
        Format::Gavel => Some("every job needs a command and steps of a known job type"),
        Format::Native
        | Format::NativeJsonl
        | Format::Muri
        | Format::Synergy
        | Format::Blox
        | Format::Itp
        | Format::Pollux
        | Format::Helios
        | Format::Tiresias => None,
    }
}

/// Writes a workload, and returns what the format cannot represent.
pub fn write(workload: &Workload, format: Format, out: impl Write) -> Result<Vec<String>, WriteError> {
    if let Some(reason) = cannot_write(format) {
        return Err(WriteError::Unsupported { format, reason });
    }
    let mut out = std::io::BufWriter::with_capacity(1 << 16, out);
    let lost = match format {
        Format::Native => native::write_csv(workload, &mut out)?,
        Format::NativeJsonl => native::write_jsonl(workload, &mut out)?,
        _ => foreign::write(workload, format, &mut out)?,
    };
    out.flush()?;
    Ok(lost)
}

/// Returns the content of a file with this name, compressed if the name says so, and what the format cannot represent.
///
/// # Errors
/// If the format can only be read, or the compressor fails.
pub fn encode(workload: &Workload, format: Format, name: &str) -> Result<(Vec<u8>, Vec<String>), WriteError> {
    let mut bytes = Vec::new();
    let lost = write(workload, format, &mut bytes)?;
    Ok((compression::compress(bytes, name)?, lost))
}
