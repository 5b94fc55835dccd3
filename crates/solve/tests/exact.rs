//! Checks the exact solver against brute force, and on larger graphs by its proof, which is verified independently.

mod graphs;

use dovetail_solve::matching::{Matching, greedy, maximum_weight, verify};
use graphs::{brute_force, cases, complete, ears, graph};
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn matches_brute_force((n, edges) in graph(0..=10)) {
        let found = maximum_weight(n, &edges);
        prop_assert_eq!(found.weight, brute_force(n, &edges));
        prop_assert_eq!(verify(&edges, &found), Ok(()));
    }

    #[test]
    fn nested_rings_match_brute_force((n, edges) in ears(13)) {
        let found = maximum_weight(n, &edges);
        prop_assert_eq!(found.weight, brute_force(n, &edges));
        prop_assert_eq!(verify(&edges, &found), Ok(()));
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn larger_graphs_are_certified((n, edges) in graph(11..=60)) {
        let found = maximum_weight(n, &edges);
        prop_assert_eq!(verify(&edges, &found), Ok(()));
    }

    #[test]
    fn nested_rings_are_certified((n, edges) in ears(60)) {
        let found = maximum_weight(n, &edges);
        prop_assert_eq!(verify(&edges, &found), Ok(()));
    }

    #[test]
    fn results_are_deterministic_and_greedy_is_at_least_half_as_good((n, edges) in graph(2..=60)) {
        let found = maximum_weight(n, &edges);
        prop_assert_eq!(&found, &maximum_weight(n, &edges));
        let quick = greedy(n, &edges);
        prop_assert_eq!(&quick, &greedy(n, &edges));
        prop_assert!(quick.weight <= found.weight && found.weight <= 2 * quick.weight);
    }

    #[test]
    fn a_tampered_result_is_rejected((n, edges) in graph(4..=30), at in any::<prop::sample::Index>()) {
        let found = maximum_weight(n, &edges);
        for (change, tampered) in tampered(&found, at.index(n)) {
            prop_assert!(verify(&edges, &tampered).is_err(), "{} was accepted", change);
        }
    }
}

/// Returns matchings or proofs that are wrong about a vertex.
fn tampered(found: &Matching, v: usize) -> Vec<(&'static str, Matching)> {
    let mut all = Vec::new();
    let mut add = |name, change: &dyn Fn(&mut Matching)| {
        let mut copy = found.clone();
        change(&mut copy);
        all.push((name, copy));
    };
    add("another weight", &|m| m.weight += 1);
    add("a higher price", &|m| m.duals.vertex[v] += 1);
    add("a lower price", &|m| m.duals.vertex[v] -= 1);
    add("a missing price", &|m| m.duals.vertex.truncate(v));
    add("an unknown partner", &|m| m.mate[v] = Some(m.mate.len() as u32));
    add("a vertex as its own partner", &|m| m.mate[v] = Some(v as u32));
    if let Some(partner) = found.mate[v] {
        add("a one-sided pair", &|m| m.mate[v] = None);
        add("a dropped pair", &|m| {
            m.mate[v] = None;
            m.mate[partner as usize] = None;
        });
        let other = (0..found.mate.len())
            .find(|&u| u != v && u != partner as usize)
            .expect("there are more than two");
        add("a price moved to another vertex", &|m| {
            m.duals.vertex[v] -= 1;
            m.duals.vertex[other] += 1;
        });
    }
    if !found.duals.blossoms.is_empty() {
        add("a dearer blossom", &|m| m.duals.blossoms[0].value += 2);
        add("a cheaper blossom", &|m| m.duals.blossoms[0].value -= 2);
        add("a blossom around itself", &|m| {
            m.duals.blossoms[0].parent = Some(0)
        });
        let inside = found
            .duals
            .blossom_of
            .iter()
            .position(Option::is_some)
            .expect("a blossom has vertices");
        add("a blossom that is not odd", &|m| {
            m.duals.blossom_of[inside] = None
        });
    }
    all
}

#[test]
fn small_graphs_have_the_expected_weight() {
    let weight = |n, edges: &[(u32, u32, i64)]| {
        let found = maximum_weight(n, edges);
        assert_eq!(verify(edges, &found), Ok(()));
        found.weight
    };
    assert_eq!(weight(0, &[]), 0);
    assert_eq!(
        weight(3, &[(0, 1, -5), (1, 2, 0)]),
        0,
        "edges without positive weight are not used"
    );
    assert_eq!(
        weight(2, &[(0, 0, 9), (0, 1, 2), (1, 0, 3)]),
        3,
        "loops are ignored, and of repeated edges the heaviest counts"
    );
    assert_eq!(
        weight(4, &[(0, 1, 6), (1, 2, 10), (2, 3, 5)]),
        11,
        "two pairs are better than the heaviest one"
    );
    assert_eq!(weight(3, &[(0, 1, 7), (1, 2, 7), (2, 0, 7)]), 7);
    // A blossom that becomes inner and must be expanded again.
    let edges = [
        (4, 5, 5),
        (5, 6, 5),
        (6, 4, 2),
        (5, 7, 6),
        (7, 8, 1),
        (8, 9, 4),
        (9, 10, 1),
        (10, 5, 5),
    ];
    let more = [(8, 0, 1), (0, 1, 1), (1, 2, 1), (2, 3, 2), (3, 4, 1)];
    let edges = [&edges[..], &more[..]].concat();
    assert_eq!(weight(11, &edges), brute_force(11, &edges));
}

#[test]
fn large_complete_graphs_are_certified() {
    for (n, span, seed) in [(300, 1_000_000, 1), (301, 1000, 2), (300, 8, 3), (301, 2, 4)] {
        let edges = complete(n, span, seed);
        let found = maximum_weight(n as usize, &edges);
        assert_eq!(verify(&edges, &found), Ok(()));
        let quick = greedy(n as usize, &edges);
        assert!(
            quick.weight * 100 >= found.weight * 97,
            "greedy lost more than 3 % of {}",
            found.weight
        );
    }
}
