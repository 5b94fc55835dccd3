//! A set of GPU slots of one node.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// GPU slots of one node as bits; one word for up to 64 GPUs, more for a cluster that is one large pool.
#[derive(Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuSet {
    words: SmallVec<[u64; 1]>,
}

impl Clone for GpuSet {
    /// Copies the words as a slice, because every launch copies such sets.
    fn clone(&self) -> Self {
        Self {
            words: SmallVec::from_slice(&self.words),
        }
    }
}

impl GpuSet {
    /// Returns the empty set for a node with `slots` GPUs.
    pub fn empty(slots: u32) -> Self {
        Self {
            words: SmallVec::from_elem(0, (slots as usize).div_ceil(64).max(1)),
        }
    }

    /// Returns the set of all GPUs of a node with `slots` GPUs.
    pub fn full(slots: u32) -> Self {
        let mut set = Self::empty(slots);
        for (i, word) in set.words.iter_mut().enumerate() {
            let left = (slots as usize).saturating_sub(i * 64).min(64);
            *word = if left == 64 { u64::MAX } else { (1 << left) - 1 };
        }
        set
    }

    /// Returns the number of slots.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|w| w.count_ones()).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Whether this slot is in the set.
    pub fn contains(&self, slot: u32) -> bool {
        self.words
            .get(slot as usize / 64)
            .is_some_and(|w| w >> (slot % 64) & 1 == 1)
    }

    /// Adds one slot, which must exist on the node.
    pub fn insert(&mut self, slot: u32) {
        self.words[slot as usize / 64] |= 1 << (slot % 64);
    }

    /// Whether every slot of `other` is in this set.
    pub fn covers(&self, other: &GpuSet) -> bool {
        other
            .words
            .iter()
            .enumerate()
            .all(|(i, w)| w & !self.words.get(i).copied().unwrap_or(0) == 0)
    }

    /// Whether the sets have a slot in common.
    pub fn intersects(&self, other: &GpuSet) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Adds all slots of `other`.
    pub fn add(&mut self, other: &GpuSet) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }

    /// Removes all slots of `other`.
    pub fn remove(&mut self, other: &GpuSet) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= !theirs;
        }
    }

    /// Returns the `count` lowest slots of this set, or all if it has fewer.
    pub fn lowest(&self, count: u32) -> GpuSet {
        let mut taken = GpuSet {
            words: SmallVec::from_elem(0, self.words.len()),
        };
        let mut left = count;
        for (out, word) in taken.words.iter_mut().zip(&self.words) {
            if left == 0 {
                break;
            }
            let here = word.count_ones();
            if here <= left {
                *out = *word;
                left -= here;
                continue;
            }
            let mut rest = *word;
            for _ in 0..left {
                let bit = rest & rest.wrapping_neg();
                *out |= bit;
                rest ^= bit;
            }
            left = 0;
        }
        taken
    }

    /// Returns the slots, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(i, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                Some(i as u32 * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_larger_than_one_word_work_like_small_ones() {
        let mut free = GpuSet::full(130);
        assert_eq!(free.count(), 130);
        let taken = free.lowest(70);
        assert_eq!(taken.count(), 70);
        assert!(free.covers(&taken));
        free.remove(&taken);
        assert_eq!(free.iter().next(), Some(70));
        assert!(!free.intersects(&taken));
        free.add(&taken);
        assert_eq!(free, GpuSet::full(130));
    }
}
