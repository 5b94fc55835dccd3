//! Files of a journal: their names, their headers, and atomic writes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{At, JournalError};
use crate::{Seq, frame};

const MAGIC: &[u8; 8] = b"DOVETAIL";
const VERSION: u32 = 1;
/// Size of the header: magic number, version, and four reserved bytes.
pub(crate) const HEADER_BYTES: u64 = 16;
/// Largest distance of the record numbers in an incomplete tail from the last valid one.
pub(crate) const MAX_SEQ_DISTANCE: Seq = 1 << 24;
/// Number of snapshots that are kept.
const SNAPSHOTS: usize = 2;

pub(crate) fn lock(dir: &Path) -> Result<File, JournalError> {
    let path = dir.join("LOCK");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .at(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(JournalError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(error)) => Err(error).at(&path),
    }
}

fn header() -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// Checks the header of a file. Returns false if the file is too short, as a crash may leave it.
pub(crate) fn has_header(path: &Path, bytes: &[u8]) -> Result<bool, JournalError> {
    let Some(header) = bytes.get(..HEADER_BYTES as usize) else {
        return Ok(false);
    };
    let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    if &header[..8] != MAGIC || version == 0 {
        return Err(JournalError::Damaged {
            path: path.to_owned(),
            at: 0,
            what: "not a journal file".to_owned(),
        });
    }
    if version > VERSION {
        return Err(JournalError::Newer {
            path: path.to_owned(),
            found: version,
            known: VERSION,
        });
    }
    Ok(true)
}

pub(crate) fn open_for_writing(path: &Path) -> Result<File, JournalError> {
    OpenOptions::new().write(true).open(path).at(path)
}

/// Creates a segment for records from `first` on. Returns its path, the file and its length.
pub(crate) fn new_segment(dir: &Path, first: Seq) -> Result<(PathBuf, File, u64), JournalError> {
    let path = dir.join(format!("journal-{first:020}.log"));
    let create = || {
        let mut file = File::create(&path)?;
        file.write_all(&header())?;
        file.sync_all()?;
        Ok(file)
    };
    match create() {
        Ok(file) => {
            sync_dir(dir)?;
            Ok((path, file, HEADER_BYTES))
        }
        Err(error) => {
            // Records continue in the segment before, which must then remain the last one.
            let _ = fs::remove_file(&path);
            Err(error).at(&path)
        }
    }
}

/// Returns the files of one kind with the numbers in their names, in order.
pub(crate) fn numbered(dir: &Path, prefix: &str, suffix: &str) -> Result<Vec<(Seq, PathBuf)>, JournalError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).at(dir)? {
        let path = entry.at(dir)?.path();
        let name = path.file_name().and_then(|n| n.to_str());
        let number = name
            .and_then(|n| n.strip_prefix(prefix)?.strip_suffix(suffix))
            .and_then(|n| n.parse().ok());
        if let Some(number) = number {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

pub(crate) fn segments(dir: &Path) -> Result<Vec<(Seq, PathBuf)>, JournalError> {
    numbered(dir, "journal-", ".log")
}

pub(crate) fn snapshots(dir: &Path) -> Result<Vec<(Seq, PathBuf)>, JournalError> {
    numbered(dir, "snapshot-", ".zst")
}

pub(crate) fn write_snapshot(dir: &Path, seq: Seq, state: &[u8]) -> Result<(), JournalError> {
    let path = dir.join(format!("snapshot-{seq:020}.zst"));
    let packed = zstd::bulk::compress(state, 1).at(&path)?;
    let mut bytes = header().to_vec();
    frame::write(&mut bytes, seq, &packed)?;
    write_atomically(&path, &bytes)
}

/// Returns the contents of a snapshot, or `None` if the file is incomplete.
pub(crate) fn read_snapshot(path: &Path, seq: Seq) -> Result<Option<Vec<u8>>, JournalError> {
    let bytes = fs::read(path).at(path)?;
    if !has_header(path, &bytes)? {
        return Ok(None);
    }
    let found = frame::read(&bytes, HEADER_BYTES as usize).filter(|f| f.seq == seq);
    match found {
        Some(frame) => zstd::stream::decode_all(frame.payload).map(Some).at(path),
        None => Ok(None),
    }
}

/// Writes a file under a temporary name and renames it, so that it is never incomplete.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    let temporary = path.with_extension("tmp");
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    if let Err(error) = write() {
        // If it cannot be deleted, the next snapshot overwrites it.
        let _ = fs::remove_file(&temporary);
        return Err(error).at(path);
    }
    path.parent().map_or(Ok(()), sync_dir)
}

fn sync_dir(dir: &Path) -> Result<(), JournalError> {
    File::open(dir).and_then(|d| d.sync_all()).at(dir)
}

/// Deletes all snapshots except the newest two, and segments that end before the older one.
pub(crate) fn delete_old(dir: &Path) -> Result<(), JournalError> {
    let snapshots = snapshots(dir)?;
    let kept = snapshots.len().saturating_sub(SNAPSHOTS);
    for (_, path) in &snapshots[..kept] {
        fs::remove_file(path).at(path)?;
    }
    // While there is only one snapshot, all records are kept in case it turns out to be damaged.
    let Some((oldest, _)) = snapshots.get(kept).filter(|_| snapshots.len() >= SNAPSHOTS) else {
        return Ok(());
    };
    let segments = segments(dir)?;
    for (segment, next) in segments.iter().zip(segments.iter().skip(1)) {
        if next.0 <= oldest + 1 {
            fs::remove_file(&segment.1).at(&segment.1)?;
        }
    }
    Ok(())
}
