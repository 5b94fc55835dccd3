//! The knapsack against trying everything.

use dovetail_solve::knapsack::{Item, Packing, pack, pack_within};
use proptest::prelude::*;

/// The most that items can bring, by trying every subset.
fn brute(items: &[Item], capacity: u32) -> u64 {
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

/// What is chosen fits, and brings what is said.
fn assert_sound(items: &[Item], capacity: u32, packing: &Packing) {
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
    fn as_good_as_trying_everything(items in items(), capacity in 0u32..30) {
        let packing = pack(&items, capacity);
        assert_sound(&items, capacity, &packing);
        prop_assert!(packing.exact);
        prop_assert_eq!(packing.gain, brute(&items, capacity));
        for (i, most) in packing.chosen.iter().zip(&packing.without) {
            prop_assert_eq!(*most, brute(&without(&items, *i), capacity));
        }
    }

    #[test]
    fn greedy_has_half_of_the_best(items in items(), capacity in 0u32..30) {
        let packing = pack_within(&items, capacity, 0);
        assert_sound(&items, capacity, &packing);
        prop_assert!(2 * packing.gain >= brute(&items, capacity));
    }
}

#[test]
fn what_weighs_and_brings_nothing_does_not_mix_up_the_others() {
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
fn among_equals_the_earlier_are_taken() {
    let same = [Item { weight: 2, gain: 5 }; 4];
    let packing = pack(&same, 5);
    assert_eq!((packing.chosen, packing.without), (vec![0, 1], vec![10, 10]));
}
