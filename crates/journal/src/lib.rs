//! A durable log with snapshots, from which a scheduler restores its state after a crash.
//!
//! Records are numbered byte strings. [`Journal::append`] collects them and [`Journal::commit`] makes them durable with one
//! write to the disk. A snapshot replaces all records up to its number; files that only older snapshots need are then
//! deleted, except those of the previous one.
//!
//! Committed records are never lost silently: an incomplete record at the end, as a crash leaves it, is cut off, saved in a
//! file next to the journal and reported. Damage before the end is an error.

mod error;
mod files;
mod frame;
mod recover;

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub use error::JournalError;
pub use recover::{Recovered, Repair};

use error::At;

/// Number of a record; the first is 1.
pub type Seq = u64;

/// Size at which a new segment is started, so that old segments can be deleted.
const SEGMENT_BYTES: u64 = 64 << 20;

/// A journal that is open for writing. No other process can open it at the same time.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    /// Locked while the journal is open.
    _lock: File,
    path: PathBuf,
    file: File,
    /// Length of the durable part of the segment.
    durable_bytes: u64,
    /// Number of the last durable record.
    durable: Seq,
    /// Frames that are not written yet.
    pending: Vec<u8>,
    next: Seq,
    segment_bytes: u64,
}

impl Journal {
    /// Opens the journal in a folder, which is created if it does not exist, and reads its contents.
    ///
    /// # Errors
    /// If another process has it open, a file is damaged or was written by a newer version, or the disk fails.
    pub fn open(dir: &Path) -> Result<(Self, Recovered), JournalError> {
        std::fs::create_dir_all(dir).at(dir)?;
        let lock = files::lock(dir)?;
        let (recovered, last) = recover::read(dir)?;
        let durable = recovered.last();
        let (path, file, durable_bytes) = match last {
            Some((path, bytes)) => {
                let mut file = files::open_for_writing(&path)?;
                file.seek(SeekFrom::Start(bytes)).at(&path)?;
                (path, file, bytes)
            }
            None => files::new_segment(dir, durable + 1)?,
        };
        let journal = Self {
            dir: dir.to_owned(),
            _lock: lock,
            path,
            file,
            durable_bytes,
            durable,
            pending: Vec::new(),
            next: durable + 1,
            segment_bytes: SEGMENT_BYTES,
        };
        Ok((journal, recovered))
    }

    /// Sets the size at which a new segment is started.
    #[must_use]
    pub fn with_segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Adds a record, which becomes durable with the next [`Journal::commit`]. Returns its number.
    ///
    /// # Errors
    /// If the record is too large.
    pub fn append(&mut self, payload: &[u8]) -> Result<Seq, JournalError> {
        let seq = self.next;
        frame::write(&mut self.pending, seq, payload)?;
        self.next += 1;
        Ok(seq)
    }

    /// Makes all added records durable. On an error none of them is durable; [`Journal::discard`] must succeed before that
    /// is certain, and is called here once.
    ///
    /// # Errors
    /// If the disk is full or fails.
    pub fn commit(&mut self) -> Result<(), JournalError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = self
            .file
            .write_all(&self.pending)
            .and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            self.discard()?;
            return Err(error).at(&self.path);
        }
        self.durable_bytes += self.pending.len() as u64;
        self.durable = self.next - 1;
        self.pending.clear();
        if self.durable_bytes > self.segment_bytes {
            // The records are durable. If the new segment cannot be created, the next commit tries again.
            let _ = self.start_segment();
        }
        Ok(())
    }

    /// Removes all records that were added and are not committed, also from the disk: they will never be read.
    ///
    /// # Errors
    /// If the file cannot be truncated; then it is not certain whether the records are in it.
    pub fn discard(&mut self) -> Result<(), JournalError> {
        self.pending.clear();
        self.next = self.durable + 1;
        self.file
            .set_len(self.durable_bytes)
            .and_then(|()| self.file.seek(SeekFrom::Start(self.durable_bytes)))
            .and_then(|_| self.file.sync_data())
            .at(&self.path)
    }

    /// Checks whether this many bytes can be written now, by writing them and removing them again.
    ///
    /// # Errors
    /// If the disk is full or fails.
    pub fn check_writable(&mut self, bytes: usize) -> Result<(), JournalError> {
        // Zeros are not a valid frame: if the process ends here, they are cut off as an incomplete record.
        let written = self
            .file
            .write_all(&vec![0; bytes.max(1)])
            .and_then(|()| self.file.sync_data());
        self.discard()?;
        written.at(&self.path)
    }

    /// Reads the newest snapshot and all durable records after it.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    pub fn read(&self) -> Result<Recovered, JournalError> {
        let (recovered, _) = recover::read(&self.dir)?;
        Ok(recovered)
    }

    fn start_segment(&mut self) -> Result<(), JournalError> {
        (self.path, self.file, self.durable_bytes) = files::new_segment(&self.dir, self.next)?;
        Ok(())
    }

    /// Returns the number of the last durable record; zero if there is none.
    pub fn last(&self) -> Seq {
        self.durable
    }

    /// Writes a snapshot that replaces all records so far, and deletes files that only older snapshots need.
    ///
    /// # Errors
    /// If the disk is full or fails; the journal remains valid then.
    pub fn snapshot(&mut self, state: &[u8]) -> Result<(), JournalError> {
        self.commit()?;
        files::write_snapshot(&self.dir, self.durable, state)?;
        if self.durable_bytes > files::HEADER_BYTES {
            self.start_segment()?;
        }
        files::delete_old(&self.dir)
    }
}
