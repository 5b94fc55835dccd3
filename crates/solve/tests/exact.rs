//! The exact solver against brute force, another implementation and its own certificates.

use dovetail_solve::matching::{maximum_weight, verify};
use proptest::prelude::*;

type Edges = Vec<(u32, u32, i64)>;

/// The weight of a maximum matching by trying everything.
fn brute(n: usize, edges: &Edges) -> i64 {
    let mut weight = vec![vec![0i64; n]; n];
    for &(u, v, w) in edges {
        if u != v {
            let best = weight[u as usize][v as usize].max(w);
            weight[u as usize][v as usize] = best;
            weight[v as usize][u as usize] = best;
        }
    }
    let mut best = vec![0i64; 1 << n];
    for set in 1usize..1 << n {
        let u = set.trailing_zeros() as usize;
        let rest = set & (set - 1);
        let pairs = (u + 1..n).filter(|v| rest >> v & 1 == 1);
        best[set] = pairs
            .map(|v| weight[u][v] + best[rest & !(1 << v)])
            .fold(best[rest], i64::max);
    }
    best[(1 << n) - 1]
}

/// Random graphs: from sparse to complete, from all weights equal to all different, some negative.
fn graph(sizes: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = (usize, Edges)> {
    (
        sizes,
        1usize..=100,
        prop_oneof![
            Just(1i64),
            Just(2),
            Just(4),
            Just(12),
            Just(1000),
            Just(1_000_000)
        ],
    )
        .prop_flat_map(|(n, percent, span)| {
            let all = n * n.saturating_sub(1) / 2;
            let edge = move |i: usize| {
                let mut first = 0;
                let mut i = i;
                while i >= n - 1 - first {
                    i -= n - 1 - first;
                    first += 1;
                }
                (first as u32, (first + 1 + i) as u32)
            };
            let weight = -span / 4..=span;
            proptest::collection::vec((0usize..100, weight, any::<bool>()), all).prop_map(move |draws| {
                let picked = draws
                    .into_iter()
                    .enumerate()
                    .filter(|(_, (chance, _, _))| *chance < percent);
                let edges = picked.map(|(i, (_, w, turned))| {
                    let (u, v) = edge(i);
                    if turned { (v, u, w) } else { (u, v, w) }
                });
                (n, edges.collect())
            })
        })
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn as_good_as_trying_everything((n, edges) in graph(0..=10)) {
        let found = maximum_weight(n, &edges);
        prop_assert_eq!(found.weight, brute(n, &edges));
        prop_assert_eq!(verify(&edges, &found), Ok(()));
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn certified((n, edges) in graph(11..=60)) {
        let found = maximum_weight(n, &edges);
        prop_assert_eq!(verify(&edges, &found), Ok(()));
    }
}
