//! The 0/1 knapsack problem, and for each chosen item the best gain of the others without it.
//!
//! If the table is small the solution is exact, by dynamic programming over capacities from both ends of the list, so that
//! leaving out each item in turn costs one row instead of a solution of its own. If the table would be large the solution is
//! greedy by gain per weight, or the best single item if that is more: at least half of the optimum.

/// One item. The gains of all items together must stay below 2^63.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Weight.
    pub weight: u32,
    /// Gain.
    pub gain: u64,
}

/// Items that fit together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packing {
    /// Their indices, ascending.
    pub chosen: Vec<usize>,
    /// Their total gain.
    pub gain: u64,
    /// For each chosen item: the best gain of all others if it did not exist. At least what the others gain in this
    /// packing.
    pub without: Vec<u64>,
    /// Whether the packing is proven optimal.
    pub exact: bool,
}

/// Number of items times capacities up to which the solution is exact: two tables of eight megabytes.
pub const EXACT_CELLS: usize = 1 << 20;

/// Returns the best items that fit into the capacity. Ties go to earlier items.
pub fn pack(items: &[Item], capacity: u32) -> Packing {
    pack_within(items, capacity, EXACT_CELLS)
}

/// Like [`pack`], exact up to this many table cells.
pub fn pack_within(items: &[Item], capacity: u32, exact_cells: usize) -> Packing {
    let weight: u64 = items.iter().map(|i| u64::from(i.weight)).sum();
    if weight <= u64::from(capacity) {
        return all(items);
    }
    let fitting: Vec<usize> = (0..items.len())
        .filter(|i| items[*i].weight <= capacity)
        .collect();
    let kept: Vec<Item> = fitting.iter().map(|i| items[*i]).collect();
    let cells = (kept.len() + 1).saturating_mul(capacity as usize + 1);
    let mut packing = if cells <= exact_cells {
        exact(&kept, capacity as usize)
    } else {
        greedy(&kept, capacity)
    };
    packing.chosen.iter_mut().for_each(|i| *i = fitting[*i]);
    packing
}

/// All items fit, so none takes room from another.
fn all(items: &[Item]) -> Packing {
    let gain: u64 = items.iter().map(|i| i.gain).sum();
    Packing {
        chosen: (0..items.len()).collect(),
        gain,
        without: items.iter().map(|i| gain - i.gain).collect(),
        exact: true,
    }
}

/// Best gains of the first items: one row per number of items, one column per capacity.
fn rows<'a>(items: impl Iterator<Item = &'a Item>, capacity: usize) -> Vec<Vec<u64>> {
    let mut rows = vec![vec![0; capacity + 1]];
    for item in items {
        let weight = item.weight as usize;
        let before = &rows[rows.len() - 1];
        let mut row = before.clone();
        for room in weight..=capacity {
            row[room] = row[room].max(before[room - weight] + item.gain);
        }
        rows.push(row);
    }
    rows
}

fn exact(items: &[Item], capacity: usize) -> Packing {
    let first = rows(items.iter(), capacity);
    let last = rows(items.iter().rev(), capacity);
    let n = items.len();
    let mut packing = Packing {
        gain: last[n][capacity],
        exact: true,
        ..Packing::default()
    };
    let mut room = capacity;
    for (i, item) in items.iter().enumerate() {
        let behind = &last[n - i - 1];
        let weight = item.weight as usize;
        if weight <= room && behind[room - weight] + item.gain == last[n - i][room] {
            packing.chosen.push(i);
            room -= weight;
            let ahead = &first[i];
            let most = (0..=capacity).map(|w| ahead[w] + behind[capacity - w]).max();
            packing.without.push(most.unwrap_or(0));
        }
    }
    packing
}

fn greedy(items: &[Item], capacity: u32) -> Packing {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&items[*a], &items[*b]);
        let left = u128::from(b.gain) * u128::from(a.weight);
        // Weightless items come first whatever their gain: as a fraction they would equal everything.
        let weightless = (b.weight == 0).cmp(&(a.weight == 0));
        weightless.then_with(|| left.cmp(&(u128::from(a.gain) * u128::from(b.weight))))
    });
    let (chosen, gain) = fill(items, &order, capacity, None);
    let without = |i: &usize| {
        let others = gain - items[*i].gain;
        fill(items, &order, capacity, Some(*i)).1.max(others)
    };
    Packing {
        without: chosen.iter().map(without).collect(),
        chosen,
        gain,
        exact: false,
    }
}

/// Takes what fits in this order, or the best single item if it gains more. Ignores item `but`.
fn fill(items: &[Item], order: &[usize], capacity: u32, but: Option<usize>) -> (Vec<usize>, u64) {
    let (mut chosen, mut gain, mut room) = (Vec::new(), 0, capacity);
    let offered = || order.iter().copied().filter(|i| Some(*i) != but);
    for i in offered() {
        if items[i].weight <= room {
            room -= items[i].weight;
            gain += items[i].gain;
            chosen.push(i);
        }
    }
    chosen.sort_unstable();
    match offered().max_by_key(|i| (items[*i].gain, std::cmp::Reverse(*i))) {
        Some(best) if items[best].gain > gain => (vec![best], items[best].gain),
        _ => (chosen, gain),
    }
}
