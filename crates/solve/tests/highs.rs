//! Checks the multiple-choice knapsack and its bins against HiGHS: `make test-highs`.

#[path = "programs/highs.rs"]
mod highs;
mod programs;
#[path = "programs/tally.rs"]
mod tally;

use dovetail_solve::choice::BUDGET;
use dovetail_solve::choice::pack::{gain, pack};
use programs::{capacities, filled, kinds};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tally::Tally;

/// Draws `count` values, the same in every run.
fn drawn<S: Strategy>(count: usize, of: &S) -> Vec<S::Value> {
    let mut runner = TestRunner::deterministic();
    let one = |_| of.new_tree(&mut runner).expect("nothing is filtered").current();
    (0..count).map(one).collect()
}

#[test]
fn the_solver_and_highs_agree_on_random_programs() {
    for (name, count, strategy, extra) in [
        ("small", 400, kinds(9, 4, 2).boxed(), 25_u64),
        ("one item of each kind", 200, kinds(1000, 8, 1).boxed(), 900),
        ("many items", 200, kinds(1000, 12, 30).boxed(), 9000),
    ] {
        let mut tally = Tally::default();
        for (kinds, extra) in drawn(count, &(strategy, [0..extra, 0..extra])) {
            tally.check(&kinds, capacities(&kinds, extra), BUDGET);
        }
        tally.report(&format!("random, {name}"));
    }
}

#[test]
fn choices_that_fit_whole_into_bins_also_fit_in_parts() {
    let mut tally = Tally::default();
    let (mut whole_count, mut part_count) = (0, 0);
    let seeds = (
        1..12_u32,
        prop::collection::vec((any::<u8>(), any::<u8>()), 1..30),
    );
    let all = drawn(150, &seeds);
    for (bins, seed) in &all {
        let (kinds, slots, bins) = filled(*bins, seed);
        let capacity = [0, 1].map(|d| bins.iter().map(|b| b.capacity[d]).sum());
        let choice = tally.check(&kinds, capacity, BUDGET);
        let packed = pack(&kinds, &slots, &choice, &bins).expect("the slots suffice");
        let whole = gain(&kinds, &packed) == choice.gain && packed.iter().all(|p| p.bins.len() == 1);
        let parts = highs::spreads(&kinds, &slots, &choice, &bins);
        assert!(parts || !whole, "{packed:?}");
        whole_count += u32::from(whole);
        part_count += u32::from(parts);
    }
    tally.report("full clusters");
    #[allow(clippy::print_stdout, reason = "`make test-highs` prints this figure")]
    {
        println!(
            "full clusters: {} choices, of which {whole_count} fit whole into bins and {part_count} in parts",
            all.len()
        );
    }
}
