//! Reads a journal, and repairs what a crash left behind.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{At, JournalError};
use crate::files::{self, HEADER_BYTES};
use crate::{Seq, frame};

/// Contents of a journal.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Newest valid snapshot, with the number of the last record it includes.
    pub snapshot: Option<(Seq, Vec<u8>)>,
    /// Records after the snapshot, in order.
    pub records: Vec<(Seq, Vec<u8>)>,
    /// Repairs that were made.
    pub repairs: Vec<Repair>,
}

impl Recovered {
    /// Returns the number of the last record; zero if there is none.
    pub fn last(&self) -> Seq {
        let snapshot = self.snapshot.as_ref().map_or(0, |(seq, _)| *seq);
        self.records.last().map_or(snapshot, |(seq, _)| *seq)
    }
}

/// A repair of an incomplete file, as a crash leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// An incomplete record at the end of a segment was cut off. It was never committed.
    TornTail {
        /// Path of the segment.
        path: PathBuf,
        /// Number of bytes that were cut off.
        bytes: u64,
        /// File to which they were moved.
        kept_in: PathBuf,
    },
    /// A snapshot is incomplete; an older one and the records after it were used.
    BadSnapshot {
        /// Path of the snapshot.
        path: PathBuf,
    },
}

impl std::fmt::Display for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TornTail { path, bytes, kept_in } => write!(
                f,
                "{}: removed an incomplete record of {bytes} bytes that was never acknowledged; saved in {}",
                path.display(),
                kept_in.display()
            ),
            Self::BadSnapshot { path } => write!(
                f,
                "{}: incomplete snapshot; restored from an older one and the records after it",
                path.display()
            ),
        }
    }
}

/// The last segment, and the length of its valid part.
type LastSegment = Option<(PathBuf, u64)>;

/// Reads all files, and cuts off an incomplete record at the end.
pub(crate) fn read(dir: &Path) -> Result<(Recovered, LastSegment), JournalError> {
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
        // A segment that ends before the snapshot is not needed, and the one after it may be deleted already.
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
        let valid = read_segment(path, &bytes, (*first, expected), is_last, &mut recovered)?;
        last = is_last.then(|| (path.clone(), valid));
    }
    Ok((recovered, last))
}

/// Reads the records from `expected` on of a segment that begins with `first`. Returns the length of its valid part.
fn read_segment(
    path: &Path,
    bytes: &[u8],
    (first, expected): (Seq, Seq),
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
                if frame.seq >= expected {
                    recovered.records.push((frame.seq, frame.payload.to_vec()));
                }
                (at, next) = (frame.end, next + 1);
            }
            Some(frame) => {
                let what = format!("found record {}, expected record {next}", frame.seq);
                return Err(damaged(path, at, &what));
            }
            None if !is_last || frame::any_after(bytes, at, next) => {
                let what = format!("record {next} is invalid, but later ones are valid");
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

/// Truncates a file and saves the removed bytes in another one.
fn cut_off(path: &Path, bytes: &[u8], at: usize) -> Result<Repair, JournalError> {
    let kept_in = path.with_extension("torn");
    let mut saved = fs::File::create(&kept_in).at(&kept_in)?;
    saved
        .write_all(&bytes[at..])
        .and_then(|()| saved.sync_all())
        .at(&kept_in)?;
    let file = files::open_for_writing(path)?;
    file.set_len(at as u64).and_then(|()| file.sync_all()).at(path)?;
    Ok(Repair::TornTail {
        path: path.to_owned(),
        bytes: (bytes.len() - at) as u64,
        kept_in,
    })
}
