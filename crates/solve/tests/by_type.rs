//! Matching by type against the exact solver on the explicit graph.

use dovetail_solve::matching::{TypeMatching, by_type, maximum_weight};
use proptest::prelude::*;

/// Counts and a symmetric table.
fn instance(
    types: std::ops::RangeInclusive<usize>,
    most: u32,
) -> impl Strategy<Value = (Vec<u32>, Vec<Vec<i64>>)> {
    let span = prop_oneof![Just(1i64), Just(3), Just(10), Just(1000), Just(1_000_000)];
    (types, span, 0i64..=4).prop_flat_map(move |(types, span, shade)| {
        let counts = proptest::collection::vec(0..=most, types);
        let table = proptest::collection::vec(-span * shade / 4..=span, types * types);
        (counts, table).prop_map(move |(counts, draws)| {
            let at = |s: usize, t: usize| draws[s.max(t) * types + s.min(t)];
            let table = (0..types)
                .map(|s| (0..types).map(|t| at(s, t)).collect())
                .collect();
            (counts, table)
        })
    })
}

/// The explicit graph: its vertices type by type.
fn explicit(counts: &[u32], table: &[Vec<i64>]) -> (usize, Vec<(u32, u32, i64)>) {
    let each = counts
        .iter()
        .enumerate()
        .flat_map(|(kind, &count)| std::iter::repeat_n(kind, count as usize));
    let kind: Vec<usize> = each.collect();
    let mut edges = Vec::new();
    for u in 0..kind.len() {
        edges.extend((u + 1..kind.len()).map(|v| (u as u32, v as u32, table[kind[u]][kind[v]])));
    }
    (kind.len(), edges)
}

fn check(counts: &[u32], table: &[Vec<i64>], found: &TypeMatching) {
    let mut given = vec![0u32; counts.len()];
    let mut weight = 0;
    for pair in &found.pairs {
        assert!(pair.first <= pair.second && pair.count > 0);
        given[pair.first as usize] += pair.count;
        given[pair.second as usize] += pair.count;
        weight += i64::from(pair.count) * table[pair.first as usize][pair.second as usize];
    }
    assert!(
        given.iter().zip(counts).all(|(given, count)| given <= count),
        "more are given than there are"
    );
    assert_eq!(weight, found.weight);
    let (n, edges) = explicit(counts, table);
    assert_eq!(
        found.weight,
        maximum_weight(n, &edges).weight,
        "counts {counts:?}"
    );
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
    fn few_of_few_types((counts, table) in instance(0..=6, 5)) {
        check(&counts, &table, &by_type(&counts, &table));
    }
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn some_of_many_types((counts, table) in instance(6..=20, 4)) {
        check(&counts, &table, &by_type(&counts, &table));
    }

    #[test]
    fn many_of_few_types((counts, table) in instance(2..=7, 20)) {
        check(&counts, &table, &by_type(&counts, &table));
    }
}
