//! Search for lines that contain a pattern, in a log of any length.

/// Length after which a line is cut, so that a log without line breaks can be searched.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Maximum number of bytes returned of a line.
const MAX_MATCH_BYTES: usize = 1_000;

/// A search through consecutive chunks of a log.
#[derive(Debug)]
pub(crate) struct LineSearch {
    pattern: Vec<u8>,
    /// Beginning of a line whose end has not been read yet.
    pending: Vec<u8>,
    /// Offset of `pending` in the log.
    offset: u64,
}

impl LineSearch {
    /// Starts a search at this offset of the log.
    pub(crate) fn new(pattern: Vec<u8>, offset: u64) -> Self {
        Self {
            pattern,
            pending: Vec::new(),
            offset,
        }
    }

    /// Searches the next chunk, which ends at offset `end`. Returns the matching lines with their offsets.
    pub(crate) fn feed(&mut self, data: &[u8], end: u64) -> Vec<(u64, Vec<u8>)> {
        let begin = end - data.len() as u64;
        if begin != self.offset + self.pending.len() as u64 {
            // The part in between was deleted.
            self.pending.clear();
            self.offset = begin;
        }
        self.pending.extend_from_slice(data);
        let complete = match self.pending.iter().rposition(|b| *b == b'\n') {
            Some(last) => last + 1,
            None if self.pending.len() > MAX_LINE_BYTES => self.pending.len(),
            None => return Vec::new(),
        };
        self.search(complete)
    }

    /// Searches the last line, which may lack a line break.
    pub(crate) fn finish(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.search(self.pending.len())
    }

    /// Searches the first `length` pending bytes and drops them.
    fn search(&mut self, length: usize) -> Vec<(u64, Vec<u8>)> {
        let rest = self.pending.split_off(length);
        let text = std::mem::replace(&mut self.pending, rest);
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(hit) = position(&text, &self.pattern, from) {
            let begin = text[..hit]
                .iter()
                .rposition(|b| *b == b'\n')
                .map_or(0, |at| at + 1);
            let end = text[hit..]
                .iter()
                .position(|b| *b == b'\n')
                .map_or(text.len(), |n| hit + n);
            // Of a long line, the part around the match is returned.
            let shown = match hit - begin > MAX_MATCH_BYTES / 2 {
                true => hit - MAX_MATCH_BYTES / 2,
                false => begin,
            };
            let line = text[shown..end.min(shown + MAX_MATCH_BYTES)].to_vec();
            found.push((self.offset + shown as u64, line));
            from = end + 1;
        }
        self.offset += text.len() as u64;
        found
    }
}

/// Returns the first occurrence of the pattern at or after `from`.
fn position(text: &[u8], pattern: &[u8], from: usize) -> Option<usize> {
    let first = *pattern.first()?;
    let mut at = from;
    while at + pattern.len() <= text.len() {
        at += text[at..=text.len() - pattern.len()]
            .iter()
            .position(|b| *b == first)?;
        if text[at..].starts_with(pattern) {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(text: &[u8], pattern: &str, chunk: usize) -> Vec<(u64, Vec<u8>)> {
        let mut search = LineSearch::new(pattern.as_bytes().to_vec(), 0);
        let (mut found, mut end) = (Vec::new(), 0);
        for chunk in text.chunks(chunk) {
            end += chunk.len() as u64;
            found.extend(search.feed(chunk, end));
        }
        found.extend(search.finish());
        found
    }

    proptest! {
        #[test]
        fn matching_lines_are_found_in_chunks_of_any_size(text in "[ab\n]{0,200}", pattern in "[ab]{1,3}", chunk in 1usize..50) {
            let mut offset = 0;
            let mut expected = Vec::new();
            for line in text.split('\n') {
                if line.contains(&pattern) {
                    expected.push((offset, line.as_bytes().to_vec()));
                }
                offset += line.len() as u64 + 1;
            }
            prop_assert_eq!(matches(text.as_bytes(), &pattern, chunk), expected);
        }
    }

    #[test]
    fn long_lines_are_cut_and_deleted_parts_skipped() {
        let mut text = vec![b'x'; 200_000];
        text[150_000..150_004].copy_from_slice(b"here");
        let found = matches(&text, "here", 1 << 16);
        assert_eq!(found.len(), 1);
        assert!(found[0].1.len() <= MAX_MATCH_BYTES && found[0].1.windows(4).any(|w| w == b"here"));
        let mut search = LineSearch::new(b"b".to_vec(), 0);
        assert!(search.feed(b"a", 1).is_empty());
        assert_eq!(search.feed(b"b\n", 102), [(100, b"b".to_vec())]);
        assert!(matches(b"abc", "", 2).is_empty());
    }
}
