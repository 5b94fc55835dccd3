//! Line numbers by byte offset. The CSV reader's own count is wrong for blank lines and CRLF.

use std::collections::VecDeque;
use std::io::Read;

/// A reader that records where lines end, ahead of its consumer.
pub(super) struct Lines<R> {
    inner: R,
    offset: u64,
    /// Ends of lines that have been read but not passed.
    ends: VecDeque<u64>,
    passed: u64,
}

impl<R> Lines<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            offset: 0,
            ends: VecDeque::new(),
            passed: 0,
        }
    }

    /// Returns the line, from 1, of the last byte before `end`, and drops the lines before it.
    pub(super) fn line_before(&mut self, end: u64) -> u64 {
        while self.ends.front().is_some_and(|at| at + 1 < end) {
            self.ends.pop_front();
            self.passed += 1;
        }
        self.passed + 1
    }
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let ends = buffer[..count]
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n');
        self.ends.extend(ends.map(|(i, _)| self.offset + i as u64));
        self.offset += count as u64;
        Ok(count)
    }
}
