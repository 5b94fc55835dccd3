//! The second phase: whole items into bins with slots, and in each bin the best points that fit there.
//!
//! A choice for all bins together is a bound, not a solution: the last bins may have no room for its points. Items are
//! distributed by the weights of their chosen points, the widest first and then the heaviest, each into the bin that it leaves
//! emptiest. Then every bin is an exact choice of its own.

use super::{Choice, Kind, choose};

/// A bin: slots, and capacities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bin {
    /// Slots.
    pub slots: u32,
    /// Capacities.
    pub capacity: [u64; 2],
}

/// An item with its point and its bins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedItem {
    /// Its kind.
    pub kind: usize,
    /// Its point.
    pub point: usize,
    /// Bins with the number of slots it has there; more than one only if no bin had enough slots.
    pub bins: Vec<(usize, u32)>,
}

/// Puts every item of a choice into bins; `slots` states how many an item of each kind needs. Returns `None` if there are
/// not enough slots, or the floors do not fit.
///
/// An item that must be split over bins gets its floor.
pub fn pack(kinds: &[Kind], slots: &[u32], chosen: &Choice, bins: &[Bin]) -> Option<Vec<PackedItem>> {
    let mut room = Room::new(bins);
    let mut packed = Vec::new();
    let mut items: Vec<Vec<usize>> = vec![Vec::new(); bins.len()];
    for (kind, point) in assignment_order(kinds, slots, chosen, bins) {
        let mut item = PackedItem {
            kind,
            point,
            bins: Vec::new(),
        };
        let wide = slots[kind];
        match room.best(wide, kinds[kind].points[point].weight) {
            Some(bin) => {
                room.take(bin, wide, kinds[kind].points[point].weight);
                item.bins.push((bin, wide));
                items[bin].push(packed.len());
            }
            None => {
                item.point = kinds[kind].floor;
                item.bins = room.split(wide, kinds[kind].points[item.point].weight)?;
            }
        }
        packed.push(item);
    }
    for (bin, items) in items.iter().enumerate() {
        settle(kinds, room.beside_split(bin)?, items, &mut packed)?;
    }
    Some(packed)
}

/// The total gain of packed items.
pub fn gain(kinds: &[Kind], packed: &[PackedItem]) -> u64 {
    packed.iter().map(|p| kinds[p.kind].points[p.point].gain).sum()
}

/// Chooses the best points for the items of one bin.
fn settle(kinds: &[Kind], capacity: [u64; 2], items: &[usize], packed: &mut [PackedItem]) -> Option<()> {
    let mut order: Vec<usize> = items.to_vec();
    order.sort_by_key(|i| packed[*i].kind);
    let mut here: Vec<(usize, Kind)> = Vec::new();
    for item in &order {
        let kind = packed[*item].kind;
        match here.last_mut().filter(|(k, _)| *k == kind) {
            Some((_, known)) => known.count += 1,
            None => here.push((
                kind,
                Kind {
                    count: 1,
                    ..kinds[kind].clone()
                },
            )),
        }
    }
    let here: Vec<Kind> = here.into_iter().map(|(_, kind)| kind).collect();
    let choice = choose(&here, capacity, super::BUDGET)?;
    let points = choice.chosen.iter().flat_map(|counts| {
        let each = counts.iter().enumerate();
        each.flat_map(|(point, count)| std::iter::repeat_n(point, *count as usize))
    });
    for (item, point) in order.iter().zip(points) {
        packed[*item].point = point;
    }
    Some(())
}

/// Items with their chosen points: the widest first, then the heaviest.
fn assignment_order(kinds: &[Kind], slots: &[u32], chosen: &Choice, bins: &[Bin]) -> Vec<(usize, usize)> {
    let all: [u128; 2] = [0, 1].map(|d| {
        let sum: u128 = bins.iter().map(|b| u128::from(b.capacity[d])).sum();
        sum.max(1)
    });
    let mut items = Vec::new();
    for (k, counts) in chosen.chosen.iter().enumerate() {
        for (point, count) in counts.iter().enumerate() {
            let weight = kinds[k].points[point].weight;
            // The fraction of all capacity in the scarcer weight, in units of 2^-40.
            let heavy = (0..2).map(|d| (u128::from(weight[d]) << 40) / all[d]).max();
            items.extend((0..*count).map(|_| (slots[k], heavy, k, point)));
        }
    }
    items.sort_by(|a, b| {
        b.0.cmp(&a.0)
            .then(b.1.cmp(&a.1))
            .then((a.2, a.3).cmp(&(b.2, b.3)))
    });
    items.into_iter().map(|(_, _, k, point)| (k, point)).collect()
}

/// Remaining slots and capacities of the bins.
struct Room<'a> {
    bins: &'a [Bin],
    slots: Vec<u32>,
    /// Weights of the items distributed to each bin, which may exceed its capacity.
    assigned: Vec<[u64; 2]>,
    /// Weights of parts of split items, which are final.
    split: Vec<[u64; 2]>,
}

impl<'a> Room<'a> {
    fn new(bins: &'a [Bin]) -> Self {
        Self {
            bins,
            slots: bins.iter().map(|b| b.slots).collect(),
            assigned: vec![[0; 2]; bins.len()],
            split: vec![[0; 2]; bins.len()],
        }
    }

    /// The bin that is emptiest with this item in it, of those with enough slots.
    fn best(&self, slots: u32, weight: [u64; 2]) -> Option<usize> {
        let fullness = |i: usize| {
            let share = |d: usize| {
                let used = u128::from(self.assigned[i][d] + weight[d]) << 40;
                used / u128::from(self.bins[i].capacity[d].max(1))
            };
            share(0).max(share(1))
        };
        let fitting = (0..self.bins.len()).filter(|i| self.slots[*i] >= slots);
        fitting.min_by_key(|i| (fullness(*i), *i))
    }

    fn take(&mut self, bin: usize, slots: u32, weight: [u64; 2]) {
        self.slots[bin] -= slots;
        (0..2).for_each(|d| self.assigned[bin][d] += weight[d]);
    }

    /// Puts an item into several bins, those with the most free slots first.
    fn split(&mut self, slots: u32, weight: [u64; 2]) -> Option<Vec<(usize, u32)>> {
        let mut order: Vec<usize> = (0..self.bins.len()).filter(|i| self.slots[*i] > 0).collect();
        order.sort_by_key(|i| (std::cmp::Reverse(self.slots[*i]), *i));
        let mut left = slots;
        let mut parts = Vec::new();
        for bin in order {
            let here = self.slots[bin].min(left);
            if here == 0 {
                break;
            }
            left -= here;
            let part = weight.map(|w| (w * u64::from(here)).div_ceil(u64::from(slots)));
            self.take(bin, here, part);
            (0..2).for_each(|d| self.split[bin][d] += part[d]);
            parts.push((bin, here));
        }
        (left == 0).then_some(parts)
    }

    /// The capacity of a bin less the parts of split items.
    fn beside_split(&self, bin: usize) -> Option<[u64; 2]> {
        let [a, b] = [0, 1].map(|d| self.bins[bin].capacity[d].checked_sub(self.split[bin][d]));
        Some([a?, b?])
    }
}
