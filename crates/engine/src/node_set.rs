//! A set of nodes as a bitmap with a summary of its non-empty words.

use dovetail_model::NodeId;
use serde::{Deserialize, Serialize};

/// A set of nodes. Insertion, removal and finding the lowest member take a few instructions even with 100,000 nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<NodeId>", into = "Vec<NodeId>")]
pub struct NodeSet {
    words: Vec<u64>,
    summary: Vec<u64>,
    len: usize,
}

impl NodeSet {
    /// Adds a node, if it is not in the set.
    pub fn insert(&mut self, node: NodeId) {
        let word = node.0 as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
            self.summary.resize(word / 64 + 1, 0);
        }
        let bit = 1 << (node.0 % 64);
        if self.words[word] & bit == 0 {
            self.words[word] |= bit;
            self.summary[word / 64] |= 1 << (word % 64);
            self.len += 1;
        }
    }

    /// Removes a node, if it is in the set.
    pub fn remove(&mut self, node: NodeId) {
        let word = node.0 as usize / 64;
        let bit = 1 << (node.0 % 64);
        if word < self.words.len() && self.words[word] & bit != 0 {
            self.words[word] &= !bit;
            if self.words[word] == 0 {
                self.summary[word / 64] &= !(1 << (word % 64));
            }
            self.len -= 1;
        }
    }

    /// Whether a node is in the set.
    pub fn contains(&self, node: NodeId) -> bool {
        let word = self.words.get(node.0 as usize / 64);
        word.is_some_and(|word| word >> (node.0 % 64) & 1 == 1)
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the members, lowest first.
    pub fn iter(&self) -> Members<'_> {
        Members {
            words: &self.words,
            summary: &self.summary,
            ..Members::default()
        }
    }
}

impl Extend<NodeId> for NodeSet {
    fn extend<I: IntoIterator<Item = NodeId>>(&mut self, nodes: I) {
        nodes.into_iter().for_each(|node| self.insert(node));
    }
}

impl From<Vec<NodeId>> for NodeSet {
    fn from(nodes: Vec<NodeId>) -> Self {
        let mut set = Self::default();
        set.extend(nodes);
        set
    }
}

impl From<NodeSet> for Vec<NodeId> {
    fn from(set: NodeSet) -> Self {
        set.iter().collect()
    }
}

/// The members of a [`NodeSet`], lowest first.
#[derive(Debug, Clone, Default)]
pub struct Members<'a> {
    words: &'a [u64],
    summary: &'a [u64],
    /// Number of summary words begun.
    begun: usize,
    /// What is left of the last summary word: one bit for each non-empty word.
    words_left: u64,
    /// The word begun last, and what is left of it: one bit for each member.
    word: usize,
    left: u64,
}

impl Iterator for Members<'_> {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        while self.left == 0 {
            if self.words_left == 0 {
                self.words_left = *self.summary.get(self.begun)?;
                self.begun += 1;
            } else {
                self.word = (self.begun - 1) * 64 + take_lowest(&mut self.words_left);
                self.left = self.words[self.word];
            }
        }
        let bit = take_lowest(&mut self.left);
        Some(NodeId((self.word * 64 + bit) as u32))
    }
}

/// Clears the lowest bit and returns its number.
fn take_lowest(bits: &mut u64) -> usize {
    let lowest = bits.trailing_zeros() as usize;
    *bits &= *bits - 1;
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_iterated_lowest_first() {
        let mut set = NodeSet::default();
        for n in [70_000, 3, 64, 3, 9_999] {
            set.insert(NodeId(n));
        }
        assert_eq!(set.len(), 4);
        set.remove(NodeId(64));
        set.remove(NodeId(5));
        assert!(set.contains(NodeId(9_999)) && !set.contains(NodeId(64)) && !set.contains(NodeId(1 << 20)));
        assert_eq!(set.iter().map(|n| n.0).collect::<Vec<_>>(), [3, 9_999, 70_000]);
    }
}
