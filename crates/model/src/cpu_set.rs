//! A set of CPUs of one node, by the numbers of the operating system.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// A set of CPUs of one node. Its text is a list as Linux writes it: `0-11,24-35`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet {
    /// Bits; the last word is not zero, so that equal sets have equal words.
    words: SmallVec<[u64; 2]>,
}

impl CpuSet {
    /// CPU numbers are below this.
    pub const LIMIT: u32 = 1 << 16;

    /// Returns the CPUs `first` to `first + count - 1`.
    pub fn range(first: u32, count: u32) -> Self {
        (first..first + count).collect()
    }

    /// Returns the number of CPUs.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|w| w.count_ones()).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether this CPU is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        let word = self.words.get(cpu as usize / 64);
        word.is_some_and(|w| w >> (cpu % 64) & 1 == 1)
    }

    /// Adds one CPU.
    pub fn insert(&mut self, cpu: u32) {
        let word = cpu as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    /// Adds all CPUs of `other`.
    pub fn add(&mut self, other: &CpuSet) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }

    /// Removes all CPUs of `other`.
    pub fn remove(&mut self, other: &CpuSet) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= !theirs;
        }
        self.trim();
    }

    /// Returns the CPUs that are in both sets.
    pub fn common(&self, other: &CpuSet) -> CpuSet {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        let mut common = CpuSet {
            words: words.collect(),
        };
        common.trim();
        common
    }

    /// Returns the `count` lowest CPUs of this set, or all if it has fewer.
    pub fn lowest(&self, count: u32) -> CpuSet {
        self.iter().take(count as usize).collect()
    }

    /// Returns the CPUs, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(i, word)| {
            let bits = std::iter::successors(Some(*word), |w| Some(w & w.wrapping_sub(1)));
            bits.take_while(|w| *w != 0)
                .map(move |w| i as u32 * 64 + w.trailing_zeros())
        })
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        let mut set = Self::default();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

/// A text that is not a list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid CPU list {part:?}: expected CPU numbers such as `0-11,24-35`, from 0 to {max}", max = CpuSet::LIMIT - 1)]
pub struct CpuSetError {
    part: String,
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let mut set = Self::default();
        for part in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse().ok().filter(|n| *n < Self::LIMIT);
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => (first..=last).for_each(|cpu| set.insert(cpu)),
                _ => {
                    let part = part.to_owned();
                    return Err(CpuSetError { part });
                }
            }
        }
        Ok(set)
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuSetError;

    fn try_from(text: String) -> Result<Self, CpuSetError> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> Self {
        set.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_and_printed_as_linux_writes_them() {
        for text in ["", "0", "0-11,24-35", "3,5,7-8", "63-64", "127-128,65535"] {
            let set: CpuSet = text.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(set.to_string(), text);
            assert_eq!(set.iter().count() as u32, set.count());
        }
        assert_eq!(
            " 2 - 3 , 1\n".parse::<CpuSet>().map(|s| s.to_string()),
            Ok("1-3".to_owned())
        );
        for text in ["a", "1-", "-1", "3-2", "65536", "1,,2", "1-2-3"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn sets_with_the_same_cpus_are_equal() {
        let mut set = CpuSet::range(60, 10);
        set.remove(&CpuSet::range(64, 6));
        assert_eq!(set, CpuSet::range(60, 4));
        assert_eq!(set.common(&CpuSet::range(62, 90)), CpuSet::range(62, 2));
        set.remove(&CpuSet::range(0, 100));
        assert!(set.is_empty() && set == CpuSet::default());
        set.add(&CpuSet::range(100, 2));
        assert_eq!(
            (set.count(), set.contains(101), set.contains(5)),
            (2, true, false)
        );
        assert_eq!(CpuSet::range(3, 90).lowest(70), CpuSet::range(3, 70));
    }
}
