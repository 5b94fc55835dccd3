//! Checks the knapsack against brute force.

use dovetail_solve::knapsack::{Item, Packing, pack, pack_within};
use proptest::prelude::*;

/// The largest gain over all subsets of items.
fn brute_force(items: &[Item], capacity: u32) -> u64 {
    let value = |set: u32| {
        let chosen = (0..items.len()).filter(|i| set & (1 << i) != 0);
        let (weight, gain) = chosen.fold((0u64, 0), |(w, g), i| {
            (w + u64::from(items[i].weight), g + items[i].gain)
        });
        (weight <= u64::from(capacity)).then_some(gain)
    };
    (0..1u32 << items.len()).filter_map(value).max().unwrap_or(0)
}

fn without(items: &[Item], i: usize) -> Vec<Item> {
    let others = items.iter().enumerate().filter(|(j, _)| *j != i);
    others.map(|(_, item)| *item).collect()
}

/// Checks that the chosen items fit and have the stated gain.
fn assert_valid(items: &[Item], capacity: u32, packing: &Packing) {
    let weight: u64 = packing.chosen.iter().map(|i| u64::from(items[*i].weight)).sum();
    let gain: u64 = packing.chosen.iter().map(|i| items[*i].gain).sum();
    assert!(weight <= u64::from(capacity));
    assert_eq!(gain, packing.gain);
    assert!(packing.chosen.windows(2).all(|w| w[0] < w[1]));
    assert_eq!(packing.chosen.len(), packing.without.len());
    for (i, without) in packing.chosen.iter().zip(&packing.without) {
        assert!(*without >= gain - items[*i].gain);
    }
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let item = (0u32..12, 0u64..40).prop_map(|(weight, gain)| Item { weight, gain });
    prop::collection::vec(item, 0..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn matches_brute_force(items in items(), capacity in 0u32..30) {
        let packing = pack(&items, capacity);
        assert_valid(&items, capacity, &packing);
        prop_assert!(packing.exact);
        prop_assert_eq!(packing.gain, brute_force(&items, capacity));
        for (i, most) in packing.chosen.iter().zip(&packing.without) {
            prop_assert_eq!(*most, brute_force(&without(&items, *i), capacity));
        }
    }

    #[test]
    fn greedy_gains_at_least_half_of_the_optimum(items in items(), capacity in 0u32..30) {
        let packing = pack_within(&items, capacity, 0);
        assert_valid(&items, capacity, &packing);
        prop_assert!(2 * packing.gain >= brute_force(&items, capacity));
    }
}

#[test]
fn items_without_weight_and_gain_do_not_affect_others() {
    let item = |weight, gain| Item { weight, gain };
    let items = [
        item(3, 0),
        item(4, 0),
        item(10, 2),
        item(0, 0),
        item(1, 35),
        item(1, 34),
    ];
    assert!(pack_within(&items, 13, 0).gain >= 69);
}

#[test]
fn ties_go_to_earlier_items() {
    let same = [Item { weight: 2, gain: 5 }; 4];
    let packing = pack(&same, 5);
    assert_eq!((packing.chosen, packing.without), (vec![0, 1], vec![10, 10]));
}
