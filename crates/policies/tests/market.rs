//! The auction's market, checked against exhaustive search.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_policies::discipline::auction::{Bid, hold};
use dovetail_testkit::any::cases;
use proptest::prelude::*;

/// The largest product of all values over every set of winners.
fn best_product(bids: &[Bid], gpus: u32) -> f64 {
    let product = |set: u32| {
        let wins = |i: &usize| set & (1 << i) != 0;
        let used: u32 = (0..bids.len()).filter(wins).map(|i| bids[i].gpus).sum();
        let values = (0..bids.len()).map(|i| if wins(&i) { bids[i].with } else { bids[i].without });
        (used <= gpus).then(|| values.product::<f64>())
    };
    (0..1u32 << bids.len()).filter_map(product).fold(0.0, f64::max)
}

/// The value of every bidder under the awards, before payments.
fn values(bids: &[Bid], gpus: u32) -> Vec<f64> {
    let mut values: Vec<f64> = bids.iter().map(|b| b.without).collect();
    hold(bids, gpus)
        .iter()
        .for_each(|a| values[a.bid] = bids[a.bid].with);
    values
}

/// The final value of bidder `i`: the part it keeps of its true value, or its value without a gang.
fn outcome(truth: &[Bid], submitted: &[Bid], i: usize, gpus: u32) -> f64 {
    let won = hold(submitted, gpus).into_iter().find(|award| award.bid == i);
    won.map_or(truth[i].without, |award| award.kept * truth[i].with)
}

fn bids() -> impl Strategy<Value = Vec<Bid>> {
    let bid = (1u32..9, 0.01f64..10.0, 1.01f64..4.0).prop_map(|(gpus, without, factor)| Bid {
        gpus,
        with: without * factor,
        without,
    });
    prop::collection::vec(bid, 1..8)
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn winners_maximize_the_product_of_all_values(bids in bids(), gpus in 1u32..20) {
        let product: f64 = values(&bids, gpus).iter().product();
        prop_assert!((product / best_product(&bids, gpus) - 1.0).abs() < 1e-6);
        let used: u32 = hold(&bids, gpus).iter().map(|a| bids[a.bid].gpus).sum();
        prop_assert!(used <= gpus);
    }

    #[test]
    fn a_winner_keeps_what_its_presence_leaves_the_others(bids in bids(), gpus in 1u32..20) {
        let with: Vec<f64> = values(&bids, gpus);
        for award in hold(&bids, gpus) {
            prop_assert!(award.kept > 0.0 && award.kept <= 1.0);
            let others: Vec<Bid> = (0..bids.len()).filter(|i| *i != award.bid).map(|i| bids[i]).collect();
            let beside: f64 = (0..bids.len()).filter(|i| *i != award.bid).map(|i| with[i]).product();
            let expected = beside / best_product(&others, gpus);
            prop_assert!((award.kept / expected - 1.0).abs() < 1e-6, "{} and {}", award.kept, expected);
            // No winner pays so much that losing would have been better.
            prop_assert!(award.kept * bids[award.bid].with >= bids[award.bid].without * (1.0 - 1e-6));
        }
    }

    #[test]
    fn no_bidder_gains_by_bidding_more_or_less_than_the_truth(
        bids in bids(), gpus in 1u32..20, bidder: prop::sample::Index, factor in 0.05f64..20.0,
    ) {
        let i = bidder.index(bids.len());
        let mut submitted = bids.clone();
        submitted[i].with = (bids[i].with * factor).max(bids[i].without);
        let (honest, untruthful) = (outcome(&bids, &bids, i, gpus), outcome(&bids, &submitted, i, gpus));
        prop_assert!(untruthful <= honest * (1.0 + 1e-6), "{} instead of {}", untruthful, honest);
    }
}
