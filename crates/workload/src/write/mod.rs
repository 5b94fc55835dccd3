//! Writing workloads. The native formats keep everything; for the others, what is lost is said.

mod foreign;
mod loss;
mod native;

use std::io::Write;

use crate::format::Format;
use crate::job::Workload;

/// A workload that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output cannot take it.
    #[error("cannot write: {0}")]
    Io(#[from] std::io::Error),
    /// The format has no place for what every workload has.
    #[error("a workload cannot be written as {format}: {why}; expected one of {}", writable().join(", "))]
    Unsupported {
        /// The format.
        format: Format,
        /// What it would need.
        why: &'static str,
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

/// Why a format is only read, `None` if it is written too.
pub fn cannot_write(format: Format) -> Option<&'static str> {
    match format {
        Format::Philly => Some("it is a log of attempts on machines"),
        Format::Openb => Some("it is a log of pods with their creation and deletion"),
        Format::Gavel => Some("it names a command and steps of one of its job types for each job"),
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

/// Writes a workload and returns what of it the format has no place for.
pub fn write(workload: &Workload, format: Format, out: impl Write) -> Result<Vec<String>, WriteError> {
    if let Some(why) = cannot_write(format) {
        return Err(WriteError::Unsupported { format, why });
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
