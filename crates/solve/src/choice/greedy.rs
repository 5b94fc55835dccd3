//! A first solution: from the floors upwards, always the step with the largest gain for its cost.

use super::dual::Prices;
use super::{Kind, weight};

/// A step of some items of one kind from one point to another.
struct Step {
    kind: usize,
    from: usize,
    to: usize,
    items: u32,
    gain: u64,
    cost: i128,
}

impl Step {
    /// Whether its gain per cost is larger; steps without cost are the best.
    fn beats(&self, other: &Step) -> bool {
        let (mine, theirs) = (i128::from(self.gain), i128::from(other.gain));
        match (self.cost > 0, other.cost > 0) {
            (true, true) => mine * other.cost > theirs * self.cost,
            (false, false) => mine > theirs,
            (mine_costs, _) => !mine_costs,
        }
    }
}

/// Takes steps until no other fits into the remaining capacities.
pub(super) fn fill(
    kinds: &[Kind],
    useful: &[Vec<usize>],
    capacity: [u64; 2],
    prices: &Prices,
    mut chosen: Vec<Vec<u32>>,
) -> Vec<Vec<u32>> {
    loop {
        let used = weight(kinds, &chosen);
        let left = [capacity[0] - used[0], capacity[1] - used[1]];
        let mut best: Option<Step> = None;
        for (k, kind) in kinds.iter().enumerate() {
            for from in (0..kind.points.len()).filter(|p| chosen[k][*p] > 0) {
                for to in useful[k].iter().copied() {
                    let step = step(kind, k, from, to, chosen[k][from], left, prices);
                    if let Some(step) = step.filter(|s| best.as_ref().is_none_or(|b| s.beats(b))) {
                        best = Some(step);
                    }
                }
            }
        }
        let Some(step) = best else {
            return chosen;
        };
        chosen[step.kind][step.from] -= step.items;
        chosen[step.kind][step.to] += step.items;
    }
}

/// The step with as many items as fit; `None` if it gains nothing or does not fit.
fn step(
    kind: &Kind,
    k: usize,
    from: usize,
    to: usize,
    there: u32,
    left: [u64; 2],
    prices: &Prices,
) -> Option<Step> {
    let (before, after) = (&kind.points[from], &kind.points[to]);
    let gain = after.gain.checked_sub(before.gain).filter(|g| *g > 0)?;
    let mut items = u64::from(there);
    for (d, left) in left.into_iter().enumerate() {
        let more = after.weight[d].saturating_sub(before.weight[d]);
        items = items.min(left.checked_div(more).unwrap_or(items));
    }
    let items = items as u32;
    (items > 0).then(|| Step {
        kind: k,
        from,
        to,
        items,
        gain,
        cost: prices.cost(after.weight) - prices.cost(before.weight),
    })
}
