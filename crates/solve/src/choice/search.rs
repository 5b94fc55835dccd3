//! The search for a better solution among the points that can be part of one.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use super::dual::Prices;
use super::{Choice, Kind, Point, gain};

/// A partial solution: points for the items so far.
#[derive(Debug, Clone, Copy)]
struct Partial {
    weight: [u64; 2],
    gain: u64,
    /// How much less than the best profit at these prices, in the unit of prices.
    loss: i128,
    /// Its predecessor in the previous layer, and the point of its last item.
    parent: u32,
    point: u32,
}

/// One item whose point is not determined yet.
struct OpenItem {
    kind: usize,
    points: Vec<usize>,
}

struct LayeredSearch<'a> {
    kinds: &'a [Kind],
    capacity: [u64; 2],
    prices: &'a Prices,
    items: Vec<OpenItem>,
    /// The smallest and largest weight of the items from each index on.
    rest: Vec<[[u64; 2]; 2]>,
    /// The largest loss of a better solution.
    allowed: i128,
    exact: bool,
}

/// Returns a better solution than `first`, or `first`.
pub(super) fn improve(
    kinds: &[Kind],
    useful: &[Vec<usize>],
    capacity: [u64; 2],
    prices: &Prices,
    first: Choice,
    budget: usize,
) -> Choice {
    let allowed = prices.total - Prices::scaled(first.gain + 1);
    if allowed < 0 {
        return Choice { exact: true, ..first };
    }
    // A point is excluded if its item alone would lose more than that.
    let mut settled: Vec<Vec<u32>> = kinds.iter().map(|k| vec![0; k.points.len()]).collect();
    let mut start = Partial {
        weight: [0; 2],
        gain: 0,
        loss: 0,
        parent: 0,
        point: 0,
    };
    let mut items = Vec::new();
    for (k, kind) in kinds.iter().enumerate() {
        let best = best_profit(kind, &useful[k], prices);
        let fits = |i: &usize| best - prices.profit(&kind.points[*i]) <= allowed;
        let points: Vec<usize> = useful[k].iter().copied().filter(fits).collect();
        if let [only] = points[..] {
            settled[k][only] = kind.count;
            let point = &kind.points[only];
            start.gain += point.gain * u64::from(kind.count);
            (0..2).for_each(|d| start.weight[d] += point.weight[d] * u64::from(kind.count));
        } else {
            let item = || OpenItem {
                kind: k,
                points: points.clone(),
            };
            items.extend((0..kind.count).map(|_| item()));
        }
    }
    let mut search = LayeredSearch {
        rest: rest(kinds, &items),
        kinds,
        capacity,
        prices,
        items,
        allowed,
        exact: true,
    };
    let most = (budget / search.items.len().max(1)).max(16);
    let found = search.run(start, most);
    let exact = search.exact;
    match found {
        None => Choice { exact, ..first },
        Some(path) => {
            for (item, point) in search.items.iter().zip(path) {
                settled[item.kind][point as usize] += 1;
            }
            let gain = gain(kinds, &settled);
            Choice {
                bound: first.bound,
                chosen: settled,
                gain,
                exact,
            }
        }
    }
}

fn best_profit(kind: &Kind, useful: &[usize], prices: &Prices) -> i128 {
    let profits = useful.iter().map(|i| prices.profit(&kind.points[*i]));
    profits.max().unwrap_or(0)
}

/// For each item, the smallest and largest weight of it and all items behind it.
fn rest(kinds: &[Kind], items: &[OpenItem]) -> Vec<[[u64; 2]; 2]> {
    let mut rest = vec![[[0; 2]; 2]; items.len() + 1];
    for (i, item) in items.iter().enumerate().rev() {
        let weights = |d: usize| {
            item.points
                .iter()
                .map(move |p| kinds[item.kind].points[*p].weight[d])
        };
        let [least, most] = rest[i + 1];
        rest[i] = [
            [0, 1].map(|d| least[d] + weights(d).min().unwrap_or(0)),
            [0, 1].map(|d| most[d] + weights(d).max().unwrap_or(0)),
        ];
    }
    rest
}

impl LayeredSearch<'_> {
    /// The points of the items in the best solution that loses no more than is allowed.
    fn run(&mut self, start: Partial, most: usize) -> Option<Vec<u32>> {
        let mut layers = vec![vec![start]];
        for i in 0..self.items.len() {
            let next = self.extend(&layers[i], i, most);
            if next.is_empty() {
                return None;
            }
            layers.push(next);
        }
        let last = layers.last()?;
        let fits = |p: &&Partial| self.least_loss(p, self.items.len()).is_some();
        let mut best = last.iter().filter(fits).max_by_key(|p| p.gain)?;
        let mut path = Vec::with_capacity(self.items.len());
        for layer in layers.iter().rev().skip(1) {
            path.push(best.point);
            best = &layer[best.parent as usize];
        }
        path.reverse();
        Some(path)
    }

    /// The smallest loss of this partial solution once the items from `next` on have points; `None` if that exceeds what is
    /// allowed, or they do not fit.
    fn least_loss(&self, partial: &Partial, next: usize) -> Option<i128> {
        let mut loss = partial.loss;
        for d in 0..2 {
            let [least, most] = self.rest[next].map(|w| w[d] + partial.weight[d]);
            if least > self.capacity[d] {
                return None;
            }
            loss += self.prices.price[d] * i128::from(self.capacity[d].saturating_sub(most));
        }
        (loss <= self.allowed).then_some(loss)
    }

    /// All partial solutions with one more item, without dominated ones.
    fn extend(&mut self, layer: &[Partial], i: usize, most: usize) -> Vec<Partial> {
        let item = &self.items[i];
        let kind = &self.kinds[item.kind];
        let best = item.points.iter().map(|p| self.prices.profit(&kind.points[*p]));
        let best = best.max().unwrap_or(0);
        let mut next = Vec::new();
        for (parent, before) in layer.iter().enumerate() {
            for index in &item.points {
                let point: &Point = &kind.points[*index];
                let partial = Partial {
                    weight: [
                        before.weight[0] + point.weight[0],
                        before.weight[1] + point.weight[1],
                    ],
                    gain: before.gain + point.gain,
                    loss: before.loss + best - self.prices.profit(point),
                    parent: parent as u32,
                    point: *index as u32,
                };
                if let Some(loss) = self.least_loss(&partial, i + 1) {
                    next.push((loss, partial));
                }
            }
        }
        let mut next = undominated(next);
        if next.len() > most {
            self.exact = false;
            next.sort_by_key(|(loss, p)| (*loss, p.weight));
            next.truncate(most);
        }
        next.into_iter().map(|(_, partial)| partial).collect()
    }
}

/// Keeps the partial solutions that no other one dominates in gain and both weights.
fn undominated(mut all: Vec<(i128, Partial)>) -> Vec<(i128, Partial)> {
    all.sort_by_key(|(_, p)| (p.weight, std::cmp::Reverse(p.gain)));
    // By the second weight: the largest gain of any solution that is no heavier in either; it increases with the weight.
    let mut stairs: BTreeMap<u64, u64> = BTreeMap::new();
    all.retain(|(_, p)| {
        let below = stairs.range(..=p.weight[1]).next_back();
        if below.is_some_and(|(_, gain)| *gain >= p.gain) {
            return false;
        }
        let above = stairs.range((Excluded(p.weight[1]), Unbounded));
        let dominated: Vec<u64> = above
            .take_while(|(_, g)| **g <= p.gain)
            .map(|(w, _)| *w)
            .collect();
        for heavier in dominated {
            stairs.remove(&heavier);
        }
        stairs.insert(p.weight[1], p.gain);
        true
    });
    debug_assert!(
        stairs
            .range((Included(0), Unbounded))
            .is_sorted_by(|a, b| a.1 < b.1)
    );
    all
}
