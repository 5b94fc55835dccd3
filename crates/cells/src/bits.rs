//! A bit set with a summary of non-empty words, so that single numbers, ranges and "the first member from here" take a
//! few instructions even among 100,000 numbers.

/// A set of numbers below a fixed bound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    summary: Vec<u64>,
}

/// Returns the bits of one word that lie in `from..to`, both counted from the start of that word.
fn mask(from: usize, to: usize) -> u64 {
    let upto = if to >= 64 { u64::MAX } else { (1 << to) - 1 };
    upto & (u64::MAX << from)
}

impl Bits {
    /// Returns the empty set for numbers below `bound`.
    pub(crate) fn new(bound: usize) -> Self {
        let words = bound.div_ceil(64);
        Self {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
        }
    }

    /// Returns the set of all numbers below `bound`.
    pub(crate) fn full(bound: usize) -> Self {
        let mut set = Self::new(bound);
        set.edit(0, bound, |_, mask| mask);
        set
    }

    /// Whether a number is in the set.
    pub(crate) fn contains(&self, at: u32) -> bool {
        self.words[at as usize / 64] >> (at % 64) & 1 == 1
    }

    /// Adds or removes a number.
    pub(crate) fn set(&mut self, at: u32, member: bool) {
        let (word, bit) = (at as usize / 64, 1u64 << (at % 64));
        let value = &mut self.words[word];
        *value = if member { *value | bit } else { *value & !bit };
        self.summarise(word);
    }

    fn summarise(&mut self, word: usize) {
        let bit = 1 << (word % 64);
        if self.words[word] == 0 {
            self.summary[word / 64] &= !bit;
        } else {
            self.summary[word / 64] |= bit;
        }
    }

    /// Rewrites the numbers of a range word by word: `change(word, mask)` gives the new bits under the mask.
    fn edit(&mut self, from: usize, to: usize, change: impl Fn(usize, u64) -> u64) {
        let mut at = from;
        while at < to {
            let word = at / 64;
            let end = ((word + 1) * 64).min(to);
            let mask = mask(at % 64, end - word * 64);
            self.words[word] = self.words[word] & !mask | change(word, mask) & mask;
            self.summarise(word);
            at = end;
        }
    }

    /// Makes a range equal to the same range of another set.
    pub(crate) fn copy_range(&mut self, other: &Bits, from: u32, to: u32) {
        self.edit(from as usize, to as usize, |word, mask| other.words[word] & mask);
    }

    /// Empties a range.
    pub(crate) fn clear_range(&mut self, from: u32, to: u32) {
        self.edit(from as usize, to as usize, |_, _| 0);
    }

    /// Returns the lowest member in `from..to`.
    pub(crate) fn first_in(&self, from: u32, to: u32) -> Option<u32> {
        if from >= to {
            return None;
        }
        let word = from as usize / 64;
        let here = self.words.get(word)? & (u64::MAX << (from % 64));
        let found = if here != 0 {
            word * 64 + here.trailing_zeros() as usize
        } else {
            let next = self.next_word(word + 1)?;
            next * 64 + self.words[next].trailing_zeros() as usize
        };
        (found < to as usize).then_some(found as u32)
    }

    /// Returns the first non-empty word from `from` on.
    fn next_word(&self, from: usize) -> Option<usize> {
        let mut group = from / 64;
        let mut word = self.summary.get(group)? & (u64::MAX << (from % 64));
        while word == 0 {
            group += 1;
            word = *self.summary.get(group)?;
        }
        Some(group * 64 + word.trailing_zeros() as usize)
    }

    /// Returns the members of a range, lowest first.
    pub(crate) fn iter_in(&self, from: u32, to: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            let found = self.first_in(at, to)?;
            at = found + 1;
            Some(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_behaves_like_a_set_of_numbers(steps in prop::collection::vec((0u8..4, 0u32..9000, 0u32..9000), 1..60)) {
            let bound = 9000;
            let mut bits = Bits::new(bound);
            let other = { let mut b = Bits::full(bound); (0..bound as u32).step_by(3).for_each(|i| b.set(i, false)); b };
            let mut plain = BTreeSet::new();
            for (kind, a, b) in steps {
                let (low, high) = (a.min(b), a.max(b));
                match kind {
                    0 => { bits.set(a, true); plain.insert(a); }
                    1 => { bits.set(a, false); plain.remove(&a); }
                    2 => { bits.clear_range(low, high); plain.retain(|x| !(low..high).contains(x)); }
                    _ => {
                        bits.copy_range(&other, low, high);
                        plain.retain(|x| !(low..high).contains(x));
                        plain.extend((low..high).filter(|x| x % 3 != 0));
                    }
                }
                prop_assert_eq!(bits.first_in(low, high), plain.range(low..high).next().copied());
                prop_assert_eq!(bits.contains(a), plain.contains(&a));
            }
            prop_assert!(bits.iter_in(0, bound as u32).eq(plain.iter().copied()));
        }
    }
}
