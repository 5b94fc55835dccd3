//! Checks that all virtual clusters can get the cells they own at the same time.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use crate::layout::{Chain, ChainId, Layout};

/// Slots of one level: their number, and how many each virtual cluster owns.
type Owned<'a> = (u64, BTreeMap<&'a str, u64>);

/// Checks every chain: pinned cells where they are, then all other cells from the top level down.
pub(super) fn check(layout: &Layout, findings: &mut Findings) {
    for at in 0..layout.chains.len() {
        if let Some(what) = shortage(layout, ChainId(at as u32)) {
            findings.fault("virtualClusters", what);
        }
    }
}

/// Describes the highest level of a chain at which the virtual clusters own more cells than there are.
fn shortage(layout: &Layout, id: ChainId) -> Option<String> {
    let chain = layout.chain(id);
    let mut owned: Vec<Owned<'_>> = vec![Default::default(); chain.types.len()];
    let mut pinned: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); chain.types.len()];
    for slot in layout.slots.iter().filter(|s| s.chain == id) {
        if let Some(cell) = slot.pinned {
            pinned[slot.level].insert(cell);
            continue;
        }
        let (sum, by_owner) = &mut owned[slot.level];
        *sum += 1;
        *by_owner.entry(&layout.vcs[slot.vc.index()].name).or_default() += 1;
    }
    let free = free_beside(chain, &pinned);
    let mut from_above = 0;
    for level in (0..=chain.top()).rev() {
        let (sum, by_owner) = &owned[level];
        let available = from_above + free[level];
        if *sum > available {
            let owners = by_owner.iter().map(|(vc, n)| format!("{vc} {n}"));
            return Some(format!(
                "chain {}, level {} ({}): virtual clusters own {sum} cells ({}), but only {available} are available \
                 beside pinned and larger cells",
                chain.name,
                level + 1,
                chain.types[level],
                owners.collect::<Vec<_>>().join(", ")
            ));
        }
        from_above = (available - sum) * u64::from(chain.fanout[level]);
    }
    None
}

/// Returns the number of largest cells without a pinned cell in them, by level.
fn free_beside(chain: &Chain, pinned: &[BTreeSet<u32>]) -> Vec<u64> {
    let mut split: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); pinned.len()];
    for (level, cells) in pinned.iter().enumerate() {
        for cell in cells {
            for (above, split) in split.iter_mut().enumerate().skip(level + 1) {
                split.insert(chain.ancestor(*cell, level, above));
            }
        }
    }
    let mut free = vec![0; pinned.len()];
    for level in 0..pinned.len() {
        let taken = (split[level].len() + pinned[level].len()) as u64;
        let offered = match split.get(level + 1) {
            Some(above) => above.len() as u64 * u64::from(chain.fanout[level + 1]),
            None => u64::from(chain.cells[level]),
        };
        free[level] = offered - taken;
    }
    free
}
