//! Reading a journal after a stop or a crash.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{At, JournalError};
use crate::files::{self, HEADER_BYTES};
use crate::{Seq, frame};

/// What a journal held when it was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The newest sound snapshot, and the number of the last record it stands for.
    pub snapshot: Option<(Seq, Vec<u8>)>,
    /// The records after it, in order.
    pub records: Vec<(Seq, Vec<u8>)>,
    /// What had to be mended.
    pub repairs: Vec<Repair>,
}

impl Recovered {
    /// The number of the last record; zero before the first.
    pub fn last(&self) -> Seq {
        let snapshot = self.snapshot.as_ref().map_or(0, |(seq, _)| *seq);
        self.records.last().map_or(snapshot, |(seq, _)| *seq)
    }
}

/// Something that was not whole, as a crash leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// The end of a segment was half written. It was never committed.
    TornTail {
        /// The segment.
        path: PathBuf,
        /// Bytes that were cut off.
        bytes: u64,
        /// Where they are now.
        kept_in: PathBuf,
    },
    /// A snapshot is not whole; an older one and the records serve instead.
    BadSnapshot {
        /// The file.
        path: PathBuf,
    },
}

impl std::fmt::Display for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TornTail { path, bytes, kept_in } => write!(
                f,
                "{}: the last {bytes} bytes were half written and never confirmed to anybody; cut off, kept in {}",
                path.display(),
                kept_in.display()
            ),
            Self::BadSnapshot { path } => write!(
                f,
                "{}: this snapshot is not whole; started from an older one and the records since",
                path.display()
            ),
        }
    }
}

/// The last segment, and how long its sound part is.
type Last = Option<(PathBuf, u64)>;

/// Reads everything, and mends the tail.
pub(crate) fn read(dir: &Path) -> Result<(Recovered, Last), JournalError> {
    let mut recovered = Recovered::default();
    for (seq, path) in files::snapshots(dir)?.into_iter().rev() {
        match files::read_snapshot(&path, seq)? {
            Some(state) => {
                recovered.snapshot = Some((seq, state));
                break;
            }
            None => recovered.repairs.push(Repair::BadSnapshot { path }),
        }
    }
    let from = recovered.last() + 1;
    let segments = files::segments(dir)?;
    let mut last = None;
    for (i, (first, path)) in segments.iter().enumerate() {
        let is_last = i + 1 == segments.len();
        // A segment that ends before the snapshot is of no use, and may be older than one that was deleted.
        if segments.get(i + 1).is_some_and(|(next, _)| *next <= from) {
            continue;
        }
        let expected = (recovered.last() + 1).max(*first);
        let gap = *first > recovered.last() + 1;
        if gap {
            return Err(JournalError::Damaged {
                path: path.clone(),
                at: HEADER_BYTES,
                what: format!(
                    "begins with record {first}, but record {} is missing",
                    recovered.last() + 1
                ),
            });
        }
        let bytes = fs::read(path).at(path)?;
        let sound = read_segment(path, &bytes, (*first, expected), is_last, &mut recovered)?;
        last = is_last.then(|| (path.clone(), sound));
    }
    Ok((recovered, last))
}

/// Reads the records from `wanted` on of a segment that begins with `first`; tells how long its sound part is.
fn read_segment(
    path: &Path,
    bytes: &[u8],
    (first, wanted): (Seq, Seq),
    is_last: bool,
    recovered: &mut Recovered,
) -> Result<u64, JournalError> {
    if !files::has_header(path, bytes)? {
        if !is_last {
            return Err(damaged(path, 0, "shorter than its header"));
        }
        let (_, _, length) = files::new_segment(path.parent().unwrap_or(path), first)?;
        return Ok(length);
    }
    let (mut at, mut next) = (HEADER_BYTES as usize, first);
    while at < bytes.len() {
        match frame::read(bytes, at) {
            Some(frame) if frame.seq == next => {
                if frame.seq >= wanted {
                    recovered.records.push((frame.seq, frame.payload.to_vec()));
                }
                (at, next) = (frame.end, next + 1);
            }
            Some(frame) => {
                let what = format!("record {} where {next} should be", frame.seq);
                return Err(damaged(path, at, &what));
            }
            None if !is_last || frame::any_after(bytes, at, next) => {
                let what = format!("record {next} is not sound, but later ones are there");
                return Err(damaged(path, at, &what));
            }
            None => {
                recovered.repairs.push(cut_off(path, bytes, at)?);
                break;
            }
        }
    }
    Ok(at as u64)
}

fn damaged(path: &Path, at: usize, what: &str) -> JournalError {
    JournalError::Damaged {
        path: path.to_owned(),
        at: at as u64,
        what: what.to_owned(),
    }
}

/// Cuts the file off, and keeps what was there in another one.
fn cut_off(path: &Path, bytes: &[u8], at: usize) -> Result<Repair, JournalError> {
    let kept_in = path.with_extension("torn");
    let mut kept = fs::File::create(&kept_in).at(&kept_in)?;
    kept.write_all(&bytes[at..])
        .and_then(|()| kept.sync_all())
        .at(&kept_in)?;
    let file = files::open_for_writing(path)?;
    file.set_len(at as u64).and_then(|()| file.sync_all()).at(path)?;
    Ok(Repair::TornTail {
        path: path.to_owned(),
        bytes: (bytes.len() - at) as u64,
        kept_in,
    })
}
