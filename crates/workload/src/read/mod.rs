//! Trace readers: one file per format, all streaming; `.gz` and `.zst` are decompressed.

mod blox;
mod builder;
mod cell;
mod gavel;
mod gavel_steps;
mod helios;
mod itp;
mod lines;
mod muri;
mod native;
mod openb;
mod philly;
mod pollux;
mod synergy;
mod table;
mod tiresias;

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use crate::compression;
use crate::error::{Place, TraceError};
use crate::format::Format;
use crate::job::Workload;

pub(crate) use cell::{Cell, MAX_GPUS};
#[cfg(test)]
pub(crate) use synergy::MODELS as SYNERGY_MODELS;
pub(crate) use synergy::iteration_time as synergy_iteration_time;
pub(crate) use table::Table;

/// Number of bytes used to detect the format.
const HEAD: usize = 16 * 1024;

/// A decompressed stream of text from its beginning, with its name in errors.
pub(crate) struct Input<'a> {
    file: String,
    source: String,
    compressed: bool,
    reader: BufReader<Box<dyn Read + 'a>>,
}

/// Reads a trace file. Without a format, it is detected by its first bytes and its header.
pub fn read(path: impl AsRef<Path>, format: Option<Format>) -> Result<Workload, TraceError> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let open = || -> std::io::Result<File> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(std::io::Error::other("is a directory; expected a trace file"));
        }
        Ok(file)
    };
    let file = open().map_err(|reason| TraceError::Open {
        file: name.clone(),
        reason,
    })?;
    read_from(file, &name, format)
}

/// Reads a trace from a stream; `name` is its name in errors.
pub fn read_from(reader: impl Read, name: &str, format: Option<Format>) -> Result<Workload, TraceError> {
    let (input, head) = open(reader, name)?;
    if head.iter().all(u8::is_ascii_whitespace) {
        return Err(TraceError::Empty {
            file: name.to_owned(),
        });
    }
    let format = match format {
        Some(format) => format,
        None => Format::detect(name, &head)?,
    };
    match format {
        Format::Native | Format::NativeJsonl => native::read(input, &head),
        Format::Philly => philly::read(input),
        Format::Muri => muri::read(input),
        Format::Synergy => synergy::read(input, &head),
        Format::Blox => blox::read(input),
        Format::Itp => itp::read(input),
        Format::Pollux => pollux::read(input),
        Format::Helios => helios::read(input),
        Format::Openb => openb::read(input),
        Format::Gavel => gavel::read(input),
        Format::Tiresias => tiresias::read(input),
    }
}

/// Decompresses a stream if its first bytes are those of gzip or zstd, and returns the beginning of the text with it.
pub(crate) fn open<'a>(mut reader: impl Read + 'a, name: &str) -> Result<(Input<'a>, Vec<u8>), TraceError> {
    let broken = |reason| TraceError::Broken {
        file: name.to_owned(),
        reason,
        hint: "",
    };
    let magic = peek(&mut reader, 4).map_err(broken)?;
    let gzip = magic.starts_with(&compression::GZIP);
    let zstd = magic == compression::ZSTD;
    for (suffix, kind, found) in [(".gz", "gzip", gzip), (".zst", "zstd", zstd)] {
        if name.ends_with(suffix) && !found && !magic.is_empty() {
            let problem = format!("not a {kind} file, although its name ends in {suffix}");
            return Err(TraceError::Unsupported {
                file: name.to_owned(),
                problem,
            });
        }
    }

    let raw = Cursor::new(magic).chain(reader);
    let mut text: Box<dyn Read + 'a> = if gzip {
        Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(raw)))
    } else if zstd {
        Box::new(zstd::Decoder::new(raw).map_err(broken)?)
    } else {
        Box::new(raw)
    };
    let mut input = Input {
        file: name.to_owned(),
        source: Path::new(name)
            .file_name()
            .map_or(name.to_owned(), |f| f.to_string_lossy().into_owned()),
        compressed: gzip || zstd,
        reader: BufReader::new(Box::new(std::io::empty())),
    };
    let head = peek(&mut text, HEAD).map_err(|e| input.broken(e))?;
    let whole = Cursor::new(head.clone()).chain(text);
    input.reader = BufReader::with_capacity(64 * 1024, Box::new(whole));
    Ok((input, head))
}

/// Reads the first bytes of a stream; fewer only if it ends.
fn peek(reader: &mut impl Read, count: usize) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(count);
    reader.take(count as u64).read_to_end(&mut head)?;
    Ok(head)
}

impl Input<'_> {
    /// Returns the error for a failed read.
    pub(crate) fn broken(&self, reason: std::io::Error) -> TraceError {
        broken(&self.file, self.compressed, reason)
    }
}

pub(crate) fn broken(file: &str, compressed: bool, reason: std::io::Error) -> TraceError {
    let hint = if compressed {
        "; the compressed file is damaged or truncated"
    } else {
        ""
    };
    TraceError::Broken {
        file: file.to_owned(),
        reason,
        hint,
    }
}

/// Returns the line of a JSON error.
pub(crate) fn json_place(error: &serde_json::Error) -> Place {
    Place::Line(error.line() as u64)
}
