//! The log of a task. Each file is named after the offset of its first byte, so that any offset is found without reading.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Returns the files of a log, oldest first: offset, current length and path.
fn files(dir: &Path) -> io::Result<Vec<(u64, u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(start) = name.to_str().and_then(|n| n.strip_prefix("log.")) else {
            continue;
        };
        if let Ok(start) = start.parse::<u64>() {
            let bytes = entry.metadata().map_or(0, |m| m.len());
            found.push((start, bytes, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Writes the log of a task. The shim of the task owns it.
pub(crate) struct LogWriter {
    dir: PathBuf,
    file: Option<File>,
    start: u64,
    bytes: u64,
    segment_bytes: u64,
    keep_bytes: u64,
    /// Number of bytes that could not be written.
    lost: u64,
}

impl LogWriter {
    /// Opens the log in this folder. Writing continues where an earlier writer ended.
    pub(crate) fn open(dir: &Path, segment_bytes: u64, keep_bytes: u64) -> Self {
        let end = end(dir).unwrap_or(0);
        Self {
            dir: dir.to_owned(),
            file: None,
            start: end,
            bytes: 0,
            segment_bytes: segment_bytes.max(1),
            keep_bytes,
            lost: 0,
        }
    }

    /// Appends to the log. On a full disk, output is lost but the task continues; a note in the log follows as soon as there
    /// is space again.
    pub(crate) fn write(&mut self, data: &[u8]) {
        if self.lost > 0 {
            let note = format!(
                "\n[dovetail: {} bytes of output lost: the disk was full]\n",
                self.lost
            );
            if self.put(note.as_bytes()).is_ok() {
                self.lost = 0;
            }
        }
        for chunk in data.chunks(usize::try_from(self.segment_bytes).unwrap_or(usize::MAX)) {
            if self.put(chunk).is_err() {
                self.lost += chunk.len() as u64;
            }
        }
    }

    fn put(&mut self, data: &[u8]) -> io::Result<()> {
        if self.file.is_some() && self.bytes + data.len() as u64 > self.segment_bytes {
            self.start += self.bytes;
            self.bytes = 0;
            self.file = None;
        }
        if self.file.is_none() {
            let path = self.dir.join(format!("log.{:020}", self.start));
            let new = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(path)?;
            self.file = Some(new);
            self.drop_oldest()?;
        }
        if let Some(file) = &mut self.file {
            // A partial write counts with the bytes that were written.
            let written = file.write_all(data);
            self.bytes = file.metadata()?.len();
            written?;
        }
        Ok(())
    }

    fn drop_oldest(&self) -> io::Result<()> {
        let files = files(&self.dir)?;
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (start, bytes, path) in files {
            if total + self.segment_bytes <= self.keep_bytes || start == self.start {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
        }
        Ok(())
    }

    /// Flushes the log to disk.
    pub(crate) fn sync(&mut self) {
        if let Some(file) = &self.file {
            // The log is best effort; the end of the task is reported regardless.
            let _ = file.sync_all();
        }
    }
}

/// Returns the offset of the end of the log.
pub(crate) fn end(dir: &Path) -> io::Result<u64> {
    Ok(files(dir)?.last().map_or(0, |(start, bytes, _)| start + bytes))
}

/// Returns the absolute offset for a requested one; a negative offset counts from the end.
pub(crate) fn begin(dir: &Path, offset: i64) -> io::Result<u64> {
    match u64::try_from(offset) {
        Ok(offset) => Ok(offset),
        Err(_) => Ok(end(dir)?.saturating_sub(offset.unsigned_abs())),
    }
}

/// Reads at most `max` bytes of the log in a folder from an offset on; a negative offset counts from the end. Returns the
/// bytes and the offset of their end.
///
/// # Errors
/// When the folder or one of its files cannot be read.
pub fn read_from(dir: &Path, offset: i64, max: usize) -> io::Result<(Vec<u8>, u64)> {
    read(dir, begin(dir, offset)?, max)
}

/// Reads at most `max` bytes from an offset on, and returns them with the offset of their end. Deleted parts are skipped.
/// At the end of the log no bytes are returned.
pub(crate) fn read(dir: &Path, offset: u64, max: usize) -> io::Result<(Vec<u8>, u64)> {
    for (start, bytes, path) in files(dir)? {
        if offset >= start + bytes {
            continue;
        }
        let from = offset.max(start);
        let mut file = match File::open(&path) {
            // The file was deleted in the meantime; reading continues with the next one.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        file.seek(SeekFrom::Start(from - start))?;
        let mut data = Vec::new();
        file.take(max as u64).read_to_end(&mut data)?;
        let end = from + data.len() as u64;
        return Ok((data, end));
    }
    Ok((Vec::new(), offset))
}

/// Returns the last `max` bytes of the log, cut to whole characters.
pub(crate) fn tail(dir: &Path, max: usize) -> String {
    let read_tail = || -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        let mut at = end(dir)?.saturating_sub(max as u64);
        loop {
            let (data, next) = read(dir, at, max)?;
            if data.is_empty() {
                return Ok(all);
            }
            all.extend(data);
            at = next;
        }
    };
    let bytes = read_tail().unwrap_or_default();
    let bytes = &bytes[bytes.len().saturating_sub(max)..];
    let whole = bytes.iter().take(3).take_while(|b| **b & 0xC0 == 0x80).count();
    String::from_utf8_lossy(&bytes[whole..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_from(dir: &Path, mut at: u64) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let (data, next) = read(dir, at, 7).unwrap();
            if data.is_empty() {
                return all;
            }
            all.extend(data);
            at = next;
        }
    }

    #[test]
    fn a_rotated_log_is_read_from_any_offset() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogWriter::open(dir.path(), 10, 1000);
        let text: Vec<u8> = (0..95u8).collect();
        for chunk in text.chunks(4) {
            log.write(chunk);
        }
        assert!(files(dir.path()).unwrap().len() > 8);
        assert_eq!(end(dir.path()).unwrap(), 95);
        for at in 0..=95 {
            assert_eq!(all_from(dir.path(), at as u64), &text[at..], "from {at}");
        }
        assert_eq!(begin(dir.path(), -5).unwrap(), 90);
        assert_eq!(begin(dir.path(), -500).unwrap(), 0);
        assert_eq!(read(dir.path(), 1000, 7).unwrap(), (Vec::new(), 1000));
    }

    #[test]
    fn old_files_are_deleted_and_skipped_when_reading() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogWriter::open(dir.path(), 10, 30);
        for i in 0..20u8 {
            log.write(&[i; 10]);
        }
        let kept: u64 = files(dir.path()).unwrap().iter().map(|f| f.1).sum();
        assert_eq!(kept, 30);
        assert_eq!(end(dir.path()).unwrap(), 200);
        let (data, at) = read(dir.path(), 0, 100).unwrap();
        assert_eq!((data, at), (vec![17; 10], 180));
    }

    #[test]
    fn a_writer_continues_where_another_ended() {
        let dir = tempfile::tempdir().unwrap();
        LogWriter::open(dir.path(), 100, 1000).write(b"abc");
        LogWriter::open(dir.path(), 100, 1000).write(b"def");
        assert_eq!(all_from(dir.path(), 1), b"bcdef");
    }

    #[test]
    fn the_tail_begins_with_a_whole_character() {
        let dir = tempfile::tempdir().unwrap();
        LogWriter::open(dir.path(), 100, 1000).write("aäöü".as_bytes());
        assert_eq!(tail(dir.path(), 3), "ü");
        assert_eq!(tail(dir.path(), 100), "aäöü");
    }

    #[test]
    fn a_log_of_ten_gigabytes_is_opened_at_its_end() {
        // A sparse file occupies no space.
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("log.0")).unwrap();
        file.set_len(10_000_000_000).unwrap();
        let mut log = LogWriter::open(dir.path(), 1 << 20, 1 << 40);
        log.write(b"the end");
        let from = begin(dir.path(), -7).unwrap();
        assert_eq!(
            read(dir.path(), from, 100).unwrap(),
            (b"the end".to_vec(), 10_000_000_007)
        );
        assert_eq!(tail(dir.path(), 7), "the end");
    }

    #[test]
    fn other_files_are_not_read_as_logs() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("log.x"), "no").unwrap();
        fs::write(dir.path().join("spec.json"), "no").unwrap();
        assert_eq!(end(dir.path()).unwrap(), 0);
        assert_eq!(tail(dir.path(), 9), "");
    }
}
