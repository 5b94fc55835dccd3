//! A set of nodes that finds its lowest member fast: bits with a summary of non-empty words.

use dovetail_model::NodeId;

/// A set of node ids. Insertion, removal and "first" take a few instructions even at 100,000 nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSet {
    words: Vec<u64>,
    summary: Vec<u64>,
    len: usize,
}

impl NodeSet {
    /// Adds a node; nothing happens if it is there.
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

    /// Takes a node out; nothing happens if it is not there.
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

    /// How many nodes are in the set.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The members, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        bits(&self.summary)
            .flat_map(|word| bits_of(self.words[word]).map(move |b| NodeId((word * 64 + b) as u32)))
    }
}

fn bits(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words
        .iter()
        .enumerate()
        .flat_map(|(i, w)| bits_of(*w).map(move |b| i * 64 + b))
}

fn bits_of(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_lowest_first() {
        let mut set = NodeSet::default();
        for n in [70_000, 3, 64, 3, 9_999] {
            set.insert(NodeId(n));
        }
        assert_eq!(set.len(), 4);
        set.remove(NodeId(64));
        set.remove(NodeId(5));
        assert_eq!(set.iter().map(|n| n.0).collect::<Vec<_>>(), [3, 9_999, 70_000]);
    }
}
