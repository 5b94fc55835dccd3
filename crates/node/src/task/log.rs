//! The log of a task: files named after the byte they begin with, so that any place is found without reading.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The files of a log, oldest first: where each begins, and how long it is now.
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

/// Writes a log. There is one for each task, in its shim.
pub(crate) struct LogWriter {
    dir: PathBuf,
    file: Option<File>,
    start: u64,
    bytes: u64,
    segment_bytes: u64,
    keep_bytes: u64,
    /// Bytes that were not written because the disk said no.
    lost: u64,
}

impl LogWriter {
    /// A log in this folder; goes on where an earlier one ended.
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

    /// Adds to the log. A full disk loses words, and never stops the task; the log says so when there is room again.
    pub(crate) fn write(&mut self, data: &[u8]) {
        if self.lost > 0 {
            let note = format!("\n[dovetail: {} bytes lost, the disk was full]\n", self.lost);
            if self.put(note.as_bytes()).is_ok() {
                self.lost = 0;
            }
        }
        for piece in data.chunks(usize::try_from(self.segment_bytes).unwrap_or(usize::MAX)) {
            if self.put(piece).is_err() {
                self.lost += piece.len() as u64;
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
            // A write that stops half way is counted by what is there.
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

    /// Makes what was written durable.
    pub(crate) fn sync(&mut self) {
        if let Some(file) = &self.file {
            // The log is best effort: how the task ended is told even so.
            let _ = file.sync_all();
        }
    }
}

/// Where the log ends.
pub(crate) fn end(dir: &Path) -> io::Result<u64> {
    Ok(files(dir)?.last().map_or(0, |(start, bytes, _)| start + bytes))
}

/// Where to begin for an offset as it is asked for: negative counts from the end.
pub(crate) fn begin(dir: &Path, offset: i64) -> io::Result<u64> {
    match u64::try_from(offset) {
        Ok(offset) => Ok(offset),
        Err(_) => Ok(end(dir)?.saturating_sub(offset.unsigned_abs())),
    }
}

/// Reads at most so many bytes of the log in a folder from an offset on, negative from the end; where they end.
///
/// # Errors
/// When the folder or a file of it cannot be read.
pub fn read_from(dir: &Path, offset: i64, most: usize) -> io::Result<(Vec<u8>, u64)> {
    read(dir, begin(dir, offset)?, most)
}

/// Reads at most so many bytes from an offset on, and says where they end. What was deleted is skipped. Nothing is
/// read at the end.
pub(crate) fn read(dir: &Path, offset: u64, most: usize) -> io::Result<(Vec<u8>, u64)> {
    for (start, bytes, path) in files(dir)? {
        if offset >= start + bytes {
            continue;
        }
        let from = offset.max(start);
        let mut file = match File::open(&path) {
            // Deleted meanwhile: the next one is older than what was asked for.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        file.seek(SeekFrom::Start(from - start))?;
        let mut data = Vec::new();
        file.take(most as u64).read_to_end(&mut data)?;
        let end = from + data.len() as u64;
        return Ok((data, end));
    }
    Ok((Vec::new(), offset))
}

/// The last words, cut to whole characters.
pub(crate) fn tail(dir: &Path, most: usize) -> String {
    let read_tail = || -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        let mut at = end(dir)?.saturating_sub(most as u64);
        loop {
            let (data, next) = read(dir, at, most)?;
            if data.is_empty() {
                return Ok(all);
            }
            all.extend(data);
            at = next;
        }
    };
    let bytes = read_tail().unwrap_or_default();
    let bytes = &bytes[bytes.len().saturating_sub(most)..];
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
    fn a_rotated_log_reads_as_one_from_any_offset() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogWriter::open(dir.path(), 10, 1000);
        let text: Vec<u8> = (0..95u8).collect();
        for piece in text.chunks(4) {
            log.write(piece);
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
    fn only_so_much_is_kept_and_reading_skips_what_is_gone() {
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
    fn a_writer_goes_on_where_another_ended() {
        let dir = tempfile::tempdir().unwrap();
        LogWriter::open(dir.path(), 100, 1000).write(b"abc");
        LogWriter::open(dir.path(), 100, 1000).write(b"def");
        assert_eq!(all_from(dir.path(), 1), b"bcdef");
    }

    #[test]
    fn last_words_begin_with_a_whole_character() {
        let dir = tempfile::tempdir().unwrap();
        LogWriter::open(dir.path(), 100, 1000).write("aäöü".as_bytes());
        assert_eq!(tail(dir.path(), 3), "ü");
        assert_eq!(tail(dir.path(), 100), "aäöü");
    }

    #[test]
    fn a_huge_log_opens_at_its_end() {
        // A file with a hole has ten gigabytes and takes no room.
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
    fn files_that_are_no_log_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("log.x"), "no").unwrap();
        fs::write(dir.path().join("spec.json"), "no").unwrap();
        assert_eq!(end(dir.path()).unwrap(), 0);
        assert_eq!(tail(dir.path(), 9), "");
    }
}
