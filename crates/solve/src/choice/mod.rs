//! One point for each item, with two capacities: the multiple-choice knapsack in two dimensions.
//!
//! Items of one kind have the same points and count together, so that a thousand items of ten kinds cost little more
//! than ten. Three steps:
//!
//! 1. **A bound** ([`dual`]): the two capacities get prices, and every item takes the point that is best at these prices.
//!    The prices at which that is least say how much there can be at most; it is what the linear program would say.
//! 2. **A first answer** (`greedy`): from the floors upwards, always the most gain for its price.
//! 3. **The search** (`search`): at these prices every point has a loss against the best of its item. A better answer
//!    has a total loss below the gap between bound and answer, so only few points can be part of one. Those are
//!    searched through, item by item, keeping what no other partial answer beats.
//!
//! The answer is exact unless the search had to throw away partial answers; the bound holds in any case.

pub mod dual;
mod greedy;
pub mod pack;
mod search;

/// What an item can have: what that weighs in both dimensions, and what it brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// Weights; below 2^40.
    pub weight: [u64; 2],
    /// Gain; below 2^40.
    pub gain: u64,
}

/// Items that can have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// How many items.
    pub count: u32,
    /// What each of them can have; not empty.
    pub points: Vec<Point>,
    /// The point every item can have at the same time.
    pub floor: usize,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choice {
    /// For each kind, how many of its items have each of its points.
    pub chosen: Vec<Vec<u32>>,
    /// What all of them bring.
    pub gain: u64,
    /// What the linear program says: no answer brings more.
    pub bound: u64,
    /// Whether no answer brings more than this one.
    pub exact: bool,
}

impl Choice {
    /// How far the answer may be from the best, in millionths of the bound; zero where it is the best.
    pub fn gap_ppm(&self) -> u64 {
        if self.exact {
            return 0;
        }
        let missing = u128::from(self.bound - self.gain) * 1_000_000;
        (missing / u128::from(self.bound.max(1))) as u64
    }

    /// What the chosen points weigh.
    pub fn weight(&self, kinds: &[Kind]) -> [u64; 2] {
        weight(kinds, &self.chosen)
    }
}

/// Partial answers that are looked at by default.
pub const BUDGET: usize = 1 << 20;

/// One point for each item so that the weights stay within the capacities and the gain is largest; none where not even
/// the floors fit. `budget` limits how many partial answers are kept, all items together; with more of them the answer
/// is exact more often.
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

    /// All items at the point with the largest gain, among those at the one that weighs least.
    fn at_best(&self) -> Vec<u32> {
        let key = |i: &usize| {
            let point = &self.points[*i];
            (std::cmp::Reverse(point.gain), point.weight, *i)
        };
        let best = (0..self.points.len()).min_by_key(key);
        self.all_at(best.unwrap_or(self.floor))
    }

    /// Points that no other of its points beats in gain and both weights; of equal ones the first.
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
