//! Checks pruning against the exact solver: certified results are exact, others are within their bound.

mod graphs;

use dovetail_solve::matching::{PrunedMatching, Pruning, maximum_weight, pruned};
use graphs::{Edges, cases, complete, graph};
use proptest::prelude::*;

/// Prunes an explicit graph and checks that the result is a matching of the weight it claims.
fn prune(n: usize, edges: &Edges, pruning: Pruning) -> PrunedMatching {
    let mut table = vec![0; n * n];
    for &(u, v, w) in edges {
        table[u.min(v) as usize * n + u.max(v) as usize] = w;
    }
    let found = pruned(n, |u, v| table[u as usize * n + v as usize], pruning);
    let mut weight = 0;
    for (u, &partner) in found.mate.iter().enumerate() {
        if let Some(v) = partner {
            assert_eq!(found.mate[v as usize], Some(u as u32));
            weight += if u < v as usize {
                table[u * n + v as usize]
            } else {
                0
            };
        }
    }
    assert_eq!(weight, found.weight);
    found
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn the_loss_is_within_its_bound((n, edges) in graph(0..=40), keep in 1usize..6, rounds in 1u32..5) {
        let found = prune(n, &edges, Pruning { keep, rounds });
        let best = maximum_weight(n, &edges).weight;
        prop_assert!(found.weight <= best && best <= found.weight + found.loss_bound);
        prop_assert!(!found.certified || found.loss_bound == 0);
        prop_assert!(found.rounds <= rounds);
    }

    #[test]
    fn the_result_is_exact_with_enough_rounds((n, edges) in graph(0..=40), keep in 1usize..6) {
        let found = prune(n, &edges, Pruning { keep, rounds: 1000 });
        prop_assert!(found.certified);
        prop_assert_eq!(found.weight, maximum_weight(n, &edges).weight);
    }
}

#[test]
fn a_large_graph_with_many_ties_is_certified() {
    for span in [3, 1_000_000] {
        let edges = complete(400, span, 7);
        let found = prune(400, &edges, Pruning::default());
        assert!(found.certified, "after {} rounds", found.rounds);
        assert_eq!(found.weight, maximum_weight(400, &edges).weight);
    }
}
