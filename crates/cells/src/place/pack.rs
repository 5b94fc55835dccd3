//! Packs pods of several sizes into bins: exactly for small groups, by a bounded search for large ones.

/// Most steps of the search.
const MAX_STEPS: u32 = 20_000;

/// Returns a bin for each pod, or `None` if no packing was found. `pods` are sizes, largest first. The tightest bins are
/// tried first, so the first attempt is best fit; then come all other combinations, up to a bound.
pub(super) fn pack(rooms: &[u32], pods: &[u32]) -> Option<Vec<usize>> {
    let mut search = Search {
        rooms: rooms.to_vec(),
        order: (0..rooms.len()).collect(),
        chosen: Vec::with_capacity(pods.len()),
        budget: MAX_STEPS,
    };
    let total: u64 = rooms.iter().map(|r| u64::from(*r)).sum();
    let asked: u64 = pods.iter().map(|p| u64::from(*p)).sum();
    (total >= asked && search.run(pods)).then_some(search.chosen)
}

struct Search {
    rooms: Vec<u32>,
    order: Vec<usize>,
    chosen: Vec<usize>,
    budget: u32,
}

impl Search {
    fn run(&mut self, pods: &[u32]) -> bool {
        let Some((&size, rest)) = pods.split_first() else {
            return true;
        };
        let mut candidates: Vec<usize> = self
            .order
            .iter()
            .copied()
            .filter(|b| self.rooms[*b] >= size)
            .collect();
        candidates.sort_by_key(|b| (self.rooms[*b], *b));
        // Bins of equal room are interchangeable, so one of them is enough.
        candidates.dedup_by_key(|b| self.rooms[*b]);
        for bin in candidates {
            if self.budget == 0 {
                return false;
            }
            self.budget -= 1;
            self.rooms[bin] -= size;
            self.chosen.push(bin);
            if self.run(rest) {
                return true;
            }
            self.chosen.pop();
            self.rooms[bin] += size;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packing_that_a_greedy_sweep_misses_is_found() {
        assert_eq!(pack(&[3, 4], &[3, 2, 2]), Some(vec![0, 1, 1]));
        assert_eq!(pack(&[3, 3], &[2, 2, 2]), None);
    }

    /// Tries all ways to put pods into bins.
    fn fits(rooms: &mut Vec<u32>, pods: &[u32]) -> bool {
        let Some((size, rest)) = pods.split_first() else {
            return true;
        };
        (0..rooms.len()).any(|bin| {
            if rooms[bin] < *size {
                return false;
            }
            rooms[bin] -= size;
            let found = fits(rooms, rest);
            rooms[bin] += size;
            found
        })
    }

    proptest! {
        #[test]
        fn small_groups_are_packed_exactly(
            mut rooms in prop::collection::vec(0u32..9, 1..5),
            mut pods in prop::collection::vec(1u32..9, 1..7),
        ) {
            pods.sort_unstable_by(|a, b| b.cmp(a));
            let found = pack(&rooms, &pods);
            prop_assert_eq!(found.is_some(), fits(&mut rooms, &pods));
            if let Some(bins) = found {
                for (bin, size) in bins.iter().zip(&pods) {
                    prop_assert!(rooms[*bin] >= *size);
                    rooms[*bin] -= size;
                }
            }
        }
    }
}
