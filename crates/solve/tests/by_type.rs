//! Checks matching by type against the exact solver on the explicit graph.

use dovetail_solve::matching::{TypeMatching, by_type, maximum_weight};
use proptest::prelude::*;

/// Generates counts and a symmetric table of weights.
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

/// Returns the explicit graph, with its vertices type by type.
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
        "pairs use more vertices of a type than exist"
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
    fn few_vertices_of_few_types_match_the_exact_solver((counts, table) in instance(0..=6, 5)) {
        check(&counts, &table, &by_type(&counts, &table));
    }
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn some_vertices_of_many_types_match_the_exact_solver((counts, table) in instance(6..=20, 4)) {
        check(&counts, &table, &by_type(&counts, &table));
    }

    #[test]
    fn many_vertices_of_few_types_match_the_exact_solver((counts, table) in instance(2..=7, 20)) {
        check(&counts, &table, &by_type(&counts, &table));
    }
}

#[test]
fn odd_numbers_of_a_type_leave_one_vertex_single() {
    // Three types with weight only to each other and an odd total: one vertex stays single, whatever the counts.
    let ring = vec![vec![0, 10, 10], vec![10, 0, 10], vec![10, 10, 0]];
    assert_eq!(by_type(&[101, 101, 101], &ring).weight, 1510);
    assert_eq!(by_type(&[10_001, 10_001, 10_001], &ring).weight, 150_010);
    // Alone, an odd type leaves one vertex single; two odd types pair their remaining ones.
    assert_eq!(by_type(&[10_001], &[vec![7]]).weight, 35_000);
    assert_eq!(
        by_type(&[10_001, 9_999], &[vec![7, 3], vec![3, 5]]).weight,
        35_000 + 24_995 + 3
    );
    assert_eq!(by_type(&[], &[]).weight, 0);
    assert_eq!(by_type(&[5, 0], &[vec![-1, 9], vec![9, 9]]).weight, 0);
}

#[test]
fn assigned_members_are_distinct_and_of_the_right_types() {
    let counts = [3, 2, 4];
    let table = vec![vec![1, 5, 2], vec![5, 1, 9], vec![2, 9, 4]];
    let found = by_type(&counts, &table);
    check(&counts, &table, &found);
    let members = vec![vec![10, 11, 12], vec![20, 21], vec![30, 31, 32, 33]];
    let pairs = found.assign(&members);
    let worth = |u: u32, v: u32| table[u as usize / 10 - 1][v as usize / 10 - 1];
    assert_eq!(pairs.iter().map(|&(u, v)| worth(u, v)).sum::<i64>(), found.weight);
    let mut all: Vec<u32> = pairs.iter().flat_map(|&(u, v)| [u, v]).collect();
    all.sort_unstable();
    assert!(all.windows(2).all(|two| two[0] < two[1]));
}
