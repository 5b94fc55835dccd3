//! The files of a journal: their names, their heads, and writing them so that a crash leaves the old or the new one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{At, JournalError};
use crate::{Seq, frame};

const MAGIC: &[u8; 8] = b"DOVETAIL";
const VERSION: u32 = 1;
/// Bytes before the first frame: the magic word, the version, and four for later.
pub(crate) const HEADER_BYTES: u64 = 16;
/// How far numbers of records in a torn tail can be from the last good one.
pub(crate) const NEAR: Seq = 1 << 24;
/// Snapshots that are kept.
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

/// Checks the first bytes of a file; false if it is too short to have them, as a crash may leave it.
pub(crate) fn has_header(path: &Path, bytes: &[u8]) -> Result<bool, JournalError> {
    let Some(header) = bytes.get(..HEADER_BYTES as usize) else {
        return Ok(false);
    };
    let found = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    if &header[..8] != MAGIC || found == 0 {
        return Err(JournalError::Damaged {
            path: path.to_owned(),
            at: 0,
            what: "not a journal file".to_owned(),
        });
    }
    if found > VERSION {
        return Err(JournalError::Newer {
            path: path.to_owned(),
            found,
            known: VERSION,
        });
    }
    Ok(true)
}

pub(crate) fn open_for_writing(path: &Path) -> Result<File, JournalError> {
    OpenOptions::new().write(true).open(path).at(path)
}

/// A segment for records from `first` on; its path, the file at its end, and its length.
pub(crate) fn new_segment(dir: &Path, first: Seq) -> Result<(PathBuf, File, u64), JournalError> {
    let path = dir.join(format!("journal-{first:020}.log"));
    let mut file = File::create(&path).at(&path)?;
    file.write_all(&header())
        .and_then(|()| file.sync_all())
        .at(&path)?;
    sync_dir(dir)?;
    Ok((path, file, HEADER_BYTES))
}

/// Files of one kind with the numbers in their names, in order.
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
    write_whole(&path, &bytes)
}

/// What a snapshot holds; none if the file is not whole.
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

/// Writes a file under another name first, so that it is there whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    let unfinished = path.with_extension("tmp");
    let write = || {
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    if let Err(error) = write() {
        // It is of no use to anybody; if it cannot be deleted either, the next snapshot writes over it.
        let _ = fs::remove_file(&unfinished);
        return Err(error).at(path);
    }
    path.parent().map_or(Ok(()), sync_dir)
}

fn sync_dir(dir: &Path) -> Result<(), JournalError> {
    File::open(dir).and_then(|d| d.sync_all()).at(dir)
}

/// Deletes snapshots but the newest two, and segments that end before the older of them.
pub(crate) fn delete_old(dir: &Path) -> Result<(), JournalError> {
    let snapshots = snapshots(dir)?;
    let kept = snapshots.len().saturating_sub(SNAPSHOTS);
    for (_, path) in &snapshots[..kept] {
        fs::remove_file(path).at(path)?;
    }
    // With one snapshot alone all records stay: should it turn out damaged, they are what is left.
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
