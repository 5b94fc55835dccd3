//! Prices for the two capacities, and the bound that follows from them.

use super::{Kind, Point};

/// Prices are multiples of 1/SCALE, so that they can be integers.
const SCALE: i128 = 1 << 12;

/// Prices per unit of each weight, in multiples of 1/SCALE of a unit of gain, and the bound they imply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// The prices.
    pub(super) price: [i128; 2],
    /// The largest total profit at these prices, in the same unit.
    pub(super) total: i128,
}

impl Prices {
    /// The bound: no choice within the capacities gains more.
    pub fn bound(&self) -> u64 {
        u64::try_from(self.total / SCALE).unwrap_or(u64::MAX)
    }

    /// A gain in the unit of prices.
    pub(super) fn scaled(gain: u64) -> i128 {
        i128::from(gain) * SCALE
    }

    /// The gain of a point less its cost.
    pub(super) fn profit(&self, point: &Point) -> i128 {
        profit(point, self.price)
    }

    /// The cost of these weights.
    pub(super) fn cost(&self, weight: [u64; 2]) -> i128 {
        (0..2).map(|d| self.price[d] * i128::from(weight[d])).sum()
    }
}

fn profit(point: &Point, price: [i128; 2]) -> i128 {
    let cost: i128 = (0..2).map(|d| price[d] * i128::from(point.weight[d])).sum();
    Prices::scaled(point.gain) - cost
}

/// The points of each kind, and its number of items.
struct Offers<'a> {
    kinds: Vec<(i128, Vec<&'a Point>)>,
    capacity: [u64; 2],
}

impl Offers<'_> {
    fn total(&self, price: [i128; 2]) -> i128 {
        let capacity: i128 = (0..2).map(|d| price[d] * i128::from(self.capacity[d])).sum();
        let best = |points: &Vec<&Point>| points.iter().map(|p| profit(p, price)).max();
        let items = self.kinds.iter().map(|(n, points)| n * best(points).unwrap_or(0));
        capacity + items.sum::<i128>()
    }

    /// The best price of the second capacity for a price of the first, and the bound at both.
    fn second(&self, first: i128, most: i128) -> (i128, i128) {
        let (mut low, mut high) = (0, most);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.rises([first, middle]) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        (low, self.total([first, low]))
    }

    /// Whether the bound does not decrease when the second price rises from here: what the items take then fits.
    fn rises(&self, price: [i128; 2]) -> bool {
        let taken = |points: &Vec<&Point>| {
            let best = points
                .iter()
                .map(|p| (profit(p, price), -i128::from(p.weight[1])))
                .max();
            best.map_or(0, |(_, weight)| -weight)
        };
        let all: i128 = self.kinds.iter().map(|(n, points)| n * taken(points)).sum();
        all <= i128::from(self.capacity[1])
    }

    /// A price of one capacity at which every item takes the lightest point in it, whatever the other price.
    fn most(&self, d: usize) -> i128 {
        let steepest = |points: &Vec<&Point>| {
            let gains = || points.iter().map(|p| p.gain);
            let range = gains().max().unwrap_or(0) - gains().min().unwrap_or(0);
            let mut weights: Vec<u64> = points.iter().map(|p| p.weight[d]).collect();
            weights.sort_unstable();
            let steps = weights.windows(2).map(|w| w[1] - w[0]).filter(|step| *step > 0);
            steps
                .min()
                .map_or(0, |step| Prices::scaled(range) / i128::from(step) + 1)
        };
        self.kinds
            .iter()
            .map(|(_, points)| steepest(points))
            .max()
            .unwrap_or(0)
    }
}

/// Finds the prices that minimize the bound. The bound is convex in both, so bisection finds each.
pub fn prices(kinds: &[Kind], useful: &[Vec<usize>], capacity: [u64; 2]) -> Prices {
    let points = |(kind, useful): (&'_ Kind, &'_ Vec<usize>)| {
        let points: Vec<Point> = useful.iter().map(|i| kind.points[*i]).collect();
        (i128::from(kind.count), points)
    };
    let owned: Vec<_> = kinds.iter().zip(useful).map(points).collect();
    let offers = Offers {
        kinds: owned
            .iter()
            .map(|(n, points)| (*n, points.iter().collect()))
            .collect(),
        capacity,
    };
    let [first_most, second_most] = [offers.most(0), offers.most(1)];
    let (mut low, mut high) = (0, first_most);
    while low < high {
        let middle = low + (high - low) / 2;
        if offers.second(middle, second_most).1 <= offers.second(middle + 1, second_most).1 {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let (second, total) = offers.second(low, second_most);
    Prices {
        price: [low, second],
        total,
    }
}
