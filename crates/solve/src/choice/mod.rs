//! One point for each item within two capacities: the multiple-choice knapsack problem in two dimensions.
//!
//! Items of one kind have the same points and are counted together, so a thousand items of ten kinds cost little more than
//! ten items. Three steps:
//!
//! 1. **A bound** ([`dual`]): the two capacities get prices, and every item takes its most profitable point at these prices.
//!    The prices that minimize the total give the bound; it equals that of the linear program.
//! 2. **A first solution** (`greedy`): from the floors upwards, always the largest gain for its cost.
//! 3. **The search** (`search`): at these prices every point loses something against the best point of its item. The total
//!    loss of a better solution is below the gap between the bound and the first solution, so only few points can be part of
//!    one. The search goes through those, item by item, and keeps the partial solutions that no other one dominates.
//!
//! The solution is exact unless the search had to drop partial solutions; the bound holds in any case.

pub mod dual;
mod greedy;
pub mod pack;
mod search;

/// One option of an item: its weights in both dimensions, and its gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// Weights; below 2^40.
    pub weight: [u64; 2],
    /// Gain; below 2^40.
    pub gain: u64,
}

/// Items with the same points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Number of items.
    pub count: u32,
    /// Options of each of them; not empty.
    pub points: Vec<Point>,
    /// The point that all items can have at the same time.
    pub floor: usize,
}

/// A solution.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choice {
    /// For each kind, how many of its items have each of its points.
    pub chosen: Vec<Vec<u32>>,
    /// The total gain.
    pub gain: u64,
    /// The optimum of the linear program: no solution gains more.
    pub bound: u64,
    /// Whether the solution is proven optimal.
    pub exact: bool,
}

impl Choice {
    /// Largest distance from the optimum, in millionths of the bound; zero if the solution is optimal.
    pub fn gap_ppm(&self) -> u64 {
        if self.exact {
            return 0;
        }
        let missing = u128::from(self.bound - self.gain) * 1_000_000;
        (missing / u128::from(self.bound.max(1))) as u64
    }

    /// The total weights of the chosen points.
    pub fn weight(&self, kinds: &[Kind]) -> [u64; 2] {
        weight(kinds, &self.chosen)
    }
}

/// Default number of partial solutions that are kept.
pub const BUDGET: usize = 1 << 20;

/// Chooses one point for each item so that the weights stay within the capacities and the gain is largest; `None` if not
/// even the floors fit. `budget` limits how many partial solutions are kept for all items together; with a larger one the
/// solution is exact more often.
pub fn choose(kinds: &[Kind], capacity: [u64; 2], budget: usize) -> Option<Choice> {
    let floors: Vec<Vec<u32>> = kinds.iter().map(Kind::at_floor).collect();
    let used = weight(kinds, &floors);
    if (0..2).any(|d| used[d] > capacity[d]) {
        return None;
    }
    let best = kinds.iter().map(Kind::at_best).collect::<Vec<_>>();
    let used = weight(kinds, &best);
    if (0..2).all(|d| used[d] <= capacity[d]) {
        let gain = gain(kinds, &best);
        return Some(Choice {
            chosen: best,
            gain,
            bound: gain,
            exact: true,
        });
    }
    let useful: Vec<Vec<usize>> = kinds.iter().map(Kind::useful).collect();
    let prices = dual::prices(kinds, &useful, capacity);
    let chosen = greedy::fill(kinds, &useful, capacity, &prices, floors);
    let first = Choice {
        gain: gain(kinds, &chosen),
        bound: prices.bound(),
        exact: false,
        chosen,
    };
    Some(search::improve(kinds, &useful, capacity, &prices, first, budget))
}

impl Kind {
    fn all_at(&self, point: usize) -> Vec<u32> {
        let mut counts = vec![0; self.points.len()];
        counts[point] = self.count;
        counts
    }

    fn at_floor(&self) -> Vec<u32> {
        self.all_at(self.floor)
    }

    /// All items at the point with the largest gain; of equal ones the lightest.
    fn at_best(&self) -> Vec<u32> {
        let key = |i: &usize| {
            let point = &self.points[*i];
            (std::cmp::Reverse(point.gain), point.weight, *i)
        };
        let best = (0..self.points.len()).min_by_key(key);
        self.all_at(best.unwrap_or(self.floor))
    }

    /// Points that no other point dominates in gain and both weights; of equal ones the first.
    fn useful(&self) -> Vec<usize> {
        let beats = |a: usize, b: usize| {
            let (p, q) = (&self.points[a], &self.points[b]);
            let no_worse = p.gain >= q.gain && (0..2).all(|d| p.weight[d] <= q.weight[d]);
            no_worse && (p != q || a < b)
        };
        let all = 0..self.points.len();
        all.clone()
            .filter(|b| !all.clone().any(|a| a != *b && beats(a, *b)))
            .collect()
    }
}

fn weight(kinds: &[Kind], chosen: &[Vec<u32>]) -> [u64; 2] {
    let mut sum = [0; 2];
    for (kind, counts) in kinds.iter().zip(chosen) {
        for (point, count) in kind.points.iter().zip(counts) {
            (0..2).for_each(|d| sum[d] += point.weight[d] * u64::from(*count));
        }
    }
    sum
}

fn gain(kinds: &[Kind], chosen: &[Vec<u32>]) -> u64 {
    let of = |(kind, counts): (&Kind, &Vec<u32>)| -> u64 {
        let each = kind.points.iter().zip(counts);
        each.map(|(point, count)| point.gain * u64::from(*count)).sum()
    };
    kinds.iter().zip(chosen).map(of).sum()
}
