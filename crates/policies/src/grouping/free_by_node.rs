//! A count of free GPUs node by node, to tell whether jobs would fit without placing them.

use std::str::FromStr;

/// Free GPUs by node, filled first fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FreeByNode {
    free: Vec<u32>,
    size: u32,
}

impl FreeByNode {
    /// Takes GPUs on the first node with room, or on idle nodes and one more if one node is not enough. Returns whether they
    /// fit.
    pub(super) fn take(&mut self, gpus: u32) -> bool {
        let whole = if gpus > self.size { gpus / self.size } else { 0 };
        let rest = gpus - whole * self.size;
        let mut chosen: Vec<usize> = (0..self.free.len())
            .filter(|i| self.free[*i] == self.size)
            .take(whole as usize)
            .collect();
        if chosen.len() < whole as usize {
            return false;
        }
        if rest > 0 {
            let last = (0..self.free.len()).find(|i| self.free[*i] >= rest && !chosen.contains(i));
            match last {
                Some(last) => self.free[last] -= rest,
                None => return false,
            }
        }
        chosen.drain(..).for_each(|i| self.free[i] = 0);
        true
    }
}

impl FromStr for FreeByNode {
    type Err = ();

    /// Parses `8x8`: nodes x GPUs.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (nodes, gpus) = text.split_once('x').ok_or(())?;
        match (nodes.trim().parse::<usize>(), gpus.trim().parse::<u32>()) {
            (Ok(nodes @ 1..=1_000_000), Ok(size @ 1..=1_000_000)) => Ok(Self {
                free: vec![size; nodes],
                size,
            }),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_jobs_need_idle_nodes() {
        let mut free_by_node: FreeByNode = "3x8".parse().unwrap();
        assert!(free_by_node.take(1));
        assert!(free_by_node.take(16));
        assert!(!free_by_node.take(8));
        assert!(free_by_node.take(7));
        assert!(!free_by_node.take(1));
        assert!("8".parse::<FreeByNode>().is_err());
        assert!("0x8".parse::<FreeByNode>().is_err());
    }
}
