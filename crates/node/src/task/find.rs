//! Looking for words in a log of any length, piece by piece.

/// A line is cut after so much, so that a log without line breaks is looked through too.
const LONGEST_LINE: usize = 64 << 10;
/// So much of a line is told.
const SHOWN: usize = 1_000;

/// Looks for words, and remembers the line that a piece ended in.
#[derive(Debug)]
pub(crate) struct Finder {
    words: Vec<u8>,
    /// The line that has not ended yet.
    held: Vec<u8>,
    /// Where it begins.
    at: u64,
}

impl Finder {
    /// Looks for these words from a place on.
    pub(crate) fn new(words: Vec<u8>, at: u64) -> Self {
        Self {
            words,
            held: Vec::new(),
            at,
        }
    }

    /// The next piece, and where it ends; the lines with the words, and where they begin.
    pub(crate) fn feed(&mut self, data: &[u8], end: u64) -> Vec<(u64, Vec<u8>)> {
        let begin = end - data.len() as u64;
        if begin != self.at + self.held.len() as u64 {
            // Something in between was deleted.
            self.held.clear();
            self.at = begin;
        }
        self.held.extend_from_slice(data);
        let whole = match self.held.iter().rposition(|b| *b == b'\n') {
            Some(last) => last + 1,
            None if self.held.len() > LONGEST_LINE => self.held.len(),
            None => return Vec::new(),
        };
        self.look(whole)
    }

    /// The end of the log: what is left is a line too.
    pub(crate) fn rest(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.look(self.held.len())
    }

    /// Looks through the first so many bytes of what is held, and lets them go.
    fn look(&mut self, whole: usize) -> Vec<(u64, Vec<u8>)> {
        let rest = self.held.split_off(whole);
        let text = std::mem::replace(&mut self.held, rest);
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(hit) = position(&text, &self.words, from) {
            let begin = text[..hit]
                .iter()
                .rposition(|b| *b == b'\n')
                .map_or(0, |at| at + 1);
            let end = text[hit..]
                .iter()
                .position(|b| *b == b'\n')
                .map_or(text.len(), |n| hit + n);
            // Of a very long line the part around the words is told.
            let shown = match hit - begin > SHOWN / 2 {
                true => hit - SHOWN / 2,
                false => begin,
            };
            let line = text[shown..end.min(shown + SHOWN)].to_vec();
            found.push((self.at + shown as u64, line));
            from = end + 1;
        }
        self.at += text.len() as u64;
        found
    }
}

/// Where the words are first found, from a place on.
fn position(text: &[u8], words: &[u8], from: usize) -> Option<usize> {
    let first = *words.first()?;
    let mut at = from;
    while at + words.len() <= text.len() {
        at += text[at..=text.len() - words.len()]
            .iter()
            .position(|b| *b == first)?;
        if text[at..].starts_with(words) {
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

    fn all(text: &[u8], words: &str, piece: usize) -> Vec<(u64, Vec<u8>)> {
        let mut finder = Finder::new(words.as_bytes().to_vec(), 0);
        let (mut found, mut end) = (Vec::new(), 0);
        for piece in text.chunks(piece) {
            end += piece.len() as u64;
            found.extend(finder.feed(piece, end));
        }
        found.extend(finder.rest());
        found
    }

    proptest! {
        #[test]
        fn lines_with_the_words_are_found_however_the_log_is_cut(text in "[ab\n]{0,200}", words in "[ab]{1,3}", piece in 1usize..50) {
            let mut at = 0;
            let mut wanted = Vec::new();
            for line in text.split('\n') {
                if line.contains(&words) {
                    wanted.push((at, line.as_bytes().to_vec()));
                }
                at += line.len() as u64 + 1;
            }
            prop_assert_eq!(all(text.as_bytes(), &words, piece), wanted);
        }
    }

    #[test]
    fn long_lines_are_cut_and_gaps_passed_over() {
        let mut text = vec![b'x'; 200_000];
        text[150_000..150_004].copy_from_slice(b"here");
        let found = all(&text, "here", 1 << 16);
        assert_eq!(found.len(), 1);
        assert!(found[0].1.len() <= SHOWN && found[0].1.windows(4).any(|w| w == b"here"));
        let mut finder = Finder::new(b"b".to_vec(), 0);
        assert!(finder.feed(b"a", 1).is_empty());
        assert_eq!(finder.feed(b"b\n", 102), [(100, b"b".to_vec())]);
        assert!(all(b"abc", "", 2).is_empty());
    }
}
