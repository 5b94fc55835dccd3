//! Picks the leaves of a pod on a machine: those closest to each other.

use smallvec::SmallVec;

use crate::layout::{Chain, Level};

/// Picks `size` leaves in a cell: first with the smallest common cell, then with the fewest occupied leaves, then where
/// the least room is left over. `rank` returns `None` for a leaf that is not available, 0 for a free one, and 1 for one
/// whose occupant must be preempted. Returns `None` if there are not enough leaves.
pub(super) fn pick_leaves(
    chain: &Chain,
    (level, index): (Level, u32),
    size: u32,
    rank: impl Fn(u32) -> Option<u8>,
) -> Option<SmallVec<[u32; 8]>> {
    let range = chain.inside(index, level, 0);
    let start = range.start;
    let ranks: SmallVec<[Option<u8>; 16]> = range.map(&rank).collect();
    let count = |l: Level, cell: u32| -> (u32, u32) {
        let inside = chain.inside(cell, l, 0);
        let ranks = &ranks[(inside.start - start) as usize..(inside.end - start) as usize];
        let available = ranks.iter().flatten().count() as u32;
        let occupied = ranks.iter().flatten().filter(|r| **r > 0).count() as u32;
        (available, occupied)
    };
    for l in 0..=level {
        if chain.leaves[l] < size {
            continue;
        }
        let mut best: Option<(SmallVec<[u32; 8]>, u32)> = None;
        for cell in chain.inside(index, level, l) {
            let (available, occupied) = count(l, cell);
            if available < size {
                continue;
            }
            let mut key: SmallVec<[u32; 8]> = SmallVec::new();
            key.push(size.saturating_sub(available - occupied));
            key.push(available);
            for above in l + 1..=level {
                key.push(count(above, chain.ancestor(cell, l, above)).0);
            }
            if best.as_ref().is_none_or(|(k, _)| key < *k) {
                best = Some((key, cell));
            }
        }
        let Some((key, cell)) = best else { continue };
        let only_free = key[0] == 0;
        let usable = |leaf: u32| rank(leaf).filter(|r| !only_free || *r == 0);
        let inside = chain.inside(cell, l, 0);
        if l == 0 || key[1] == size {
            return Some(
                inside
                    .filter(|leaf| usable(*leaf).is_some())
                    .take(size as usize)
                    .collect(),
            );
        }
        return Some(fill(chain, (l, cell), size, &usable));
    }
    None
}

/// Takes leaves child by child, children with the most usable leaves first, so that the rest stays together.
fn fill(
    chain: &Chain,
    (level, index): (Level, u32),
    size: u32,
    usable: &dyn Fn(u32) -> Option<u8>,
) -> SmallVec<[u32; 8]> {
    let below = level - 1;
    let mut children: SmallVec<[(u32, u32); 8]> = chain
        .inside(index, level, below)
        .map(|child| {
            let leaves = chain.inside(child, below, 0);
            (
                leaves.filter(|leaf| usable(*leaf).is_some()).count() as u32,
                child,
            )
        })
        .collect();
    children.sort_by_key(|(available, child)| (std::cmp::Reverse(*available), *child));
    let mut taken = SmallVec::new();
    for (available, child) in children {
        let missing = size - taken.len() as u32;
        if missing == 0 {
            break;
        }
        if available <= missing {
            let leaves = chain.inside(child, below, 0);
            taken.extend(leaves.filter(|leaf| usable(*leaf).is_some()));
        } else if let Some(leaves) = pick_leaves(chain, (below, child), missing, usable) {
            taken.extend(leaves);
        }
    }
    taken.sort_unstable();
    taken
}
