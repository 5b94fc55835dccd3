//! Checks the multiple-choice knapsack against brute force.

mod programs;

use dovetail_solve::choice::pack::{gain, pack};
use dovetail_solve::choice::{BUDGET, Choice, Kind, Point, choose};
use programs::{capacities, filled, kinds};
use proptest::prelude::*;

/// The largest gain over all points of all items.
fn brute_force(kinds: &[Kind], capacity: [u64; 2]) -> u64 {
    let items: Vec<&Kind> = kinds
        .iter()
        .flat_map(|k| std::iter::repeat_n(k, k.count as usize))
        .collect();
    fn go(items: &[&Kind], left: [u64; 2]) -> Option<u64> {
        let Some((first, rest)) = items.split_first() else {
            return Some(0);
        };
        let with = |p: &Point| {
            let left = [
                left[0].checked_sub(p.weight[0])?,
                left[1].checked_sub(p.weight[1])?,
            ];
            Some(p.gain + go(rest, left)?)
        };
        first.points.iter().filter_map(with).max()
    }
    go(&items, capacity).expect("the floors fit")
}

fn assert_valid(kinds: &[Kind], capacity: [u64; 2], choice: &Choice) {
    for (kind, chosen) in kinds.iter().zip(&choice.chosen) {
        assert_eq!(chosen.iter().sum::<u32>(), kind.count, "every item has one point");
    }
    let weight = choice.weight(kinds);
    assert!(
        (0..2).all(|d| weight[d] <= capacity[d]),
        "{weight:?} of {capacity:?}"
    );
    let gain: u64 = kinds
        .iter()
        .zip(&choice.chosen)
        .flat_map(|(k, c)| k.points.iter().zip(c))
        .map(|(p, n)| p.gain * u64::from(*n))
        .sum();
    assert_eq!(gain, choice.gain);
    assert!(choice.gain <= choice.bound);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn matches_brute_force(kinds in kinds(9, 4, 2), extra in [0..25u64, 0..25u64]) {
        let capacity = capacities(&kinds, extra);
        let choice = choose(&kinds, capacity, BUDGET).expect("the floors fit");
        assert_valid(&kinds, capacity, &choice);
        let best = brute_force(&kinds, capacity);
        prop_assert!(choice.exact);
        prop_assert_eq!(choice.gain, best);
    }

    #[test]
    fn without_a_budget_the_choice_is_valid_and_bounded(kinds in kinds(1000, 12, 30), extra in [0..9000u64, 0..9000u64]) {
        let capacity = capacities(&kinds, extra);
        let poor = choose(&kinds, capacity, 0).expect("the floors fit");
        assert_valid(&kinds, capacity, &poor);
        let rich = choose(&kinds, capacity, 1 << 14).expect("the floors fit");
        assert_valid(&kinds, capacity, &rich);
        prop_assert_eq!(poor.bound, rich.bound);
        prop_assert!(rich.gain >= poor.gain || !poor.exact);
        if poor.exact && rich.exact {
            prop_assert_eq!(poor.gain, rich.gain);
        }
    }

    #[test]
    fn no_choice_if_the_floors_do_not_fit(kinds in kinds(9, 3, 3)) {
        let capacity = capacities(&kinds, [0, 0]);
        prop_assert!(choose(&kinds, capacity, BUDGET).is_some());
        if capacity[0] > 0 {
            prop_assert!(choose(&kinds, [capacity[0] - 1, capacity[1]], BUDGET).is_none());
        }
    }
}

#[test]
fn an_empty_program_has_an_empty_choice() {
    let choice = choose(&[], [0, 0], BUDGET).expect("an empty program fits");
    assert!(choice.exact && choice.gain == 0 && choice.chosen.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bins_stay_within_capacity_and_items_at_or_above_their_floor(
        bins in 1..12u32,
        seed in prop::collection::vec((any::<u8>(), any::<u8>()), 1..30),
    ) {
        let (kinds, slots, bins) = filled(bins, &seed);
        let all = bins.iter().fold([0, 0], |a: [u64; 2], b| [a[0] + b.capacity[0], a[1] + b.capacity[1]]);
        let choice = choose(&kinds, all, BUDGET).expect("the floors fit");
        let packed = pack(&kinds, &slots, &choice, &bins).expect("the slots suffice");
        prop_assert_eq!(packed.len(), kinds.len());
        for (i, bin) in bins.iter().enumerate() {
            let mut used = ([0u64; 2], 0);
            for item in &packed {
                for (_, here) in item.bins.iter().filter(|(b, _)| *b == i) {
                    let weight = kinds[item.kind].points[item.point].weight;
                    (0..2).for_each(|d| used.0[d] += (weight[d] * u64::from(*here)) / u64::from(slots[item.kind]));
                    used.1 += here;
                }
            }
            prop_assert!(used.1 <= bin.slots && (0..2).all(|d| used.0[d] <= bin.capacity[d]), "{:?}", used);
        }
        for item in &packed {
            prop_assert_eq!(item.bins.iter().map(|b| b.1).sum::<u32>(), slots[item.kind]);
        }
        let placed = gain(&kinds, &packed);
        let floors: u64 = kinds.iter().map(|k| k.points[k.floor].gain).sum();
        prop_assert!(floors <= placed && placed <= choice.bound);
    }
}
