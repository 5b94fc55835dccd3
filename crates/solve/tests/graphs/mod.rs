//! Random graphs that are hard for a matching algorithm, and reference solutions.

#![allow(dead_code)]

use proptest::prelude::*;

/// Edges with their weights.
pub(crate) type Edges = Vec<(u32, u32, i64)>;

/// A configuration that writes no regression files.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Generates graphs from sparse to complete, with weights from all equal to all different, some of them negative.
pub(crate) fn graph(sizes: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = (usize, Edges)> {
    let span = prop_oneof![
        Just(1i64),
        Just(2),
        Just(4),
        Just(12),
        Just(1000),
        Just(1_000_000)
    ];
    (sizes, 1usize..=100, span, 0i64..=2).prop_flat_map(|(n, percent, span, shade)| {
        let all: Vec<(u32, u32)> = (0..n as u32)
            .flat_map(|u| (u + 1..n as u32).map(move |v| (u, v)))
            .collect();
        let draw = (0usize..100, -span * shade / 4..=span, any::<bool>());
        proptest::collection::vec(draw, all.len()).prop_map(move |draws| {
            let picked = draws
                .into_iter()
                .zip(&all)
                .filter(|((chance, _, _), _)| *chance < percent);
            let edges = picked.map(|((_, w, turned), &(u, v))| if turned { (v, u, w) } else { (u, v, w) });
            (n, edges.collect())
        })
    })
}

/// Generates odd rings that are extended ear by ear, with loose ends: graphs whose matchings need nested blossoms.
pub(crate) fn ears(most: usize) -> impl Strategy<Value = (usize, Edges)> {
    let ear = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        0usize..=2,
    );
    let draws = (
        proptest::collection::vec(ear, 1..=most / 3),
        proptest::collection::vec(0i64..=6, 4 * most),
        1i64..=20,
    );
    (draws, any::<u64>()).prop_map(move |((ears, noise, floor), order)| {
        let mut pairs = vec![(0, 1), (1, 2), (2, 0)];
        let mut n = 3u32;
        for (from, to, pairs_between) in ears {
            let (mut from, to) = (from.index(n as usize) as u32, to.index(n as usize) as u32);
            if n as usize + 2 * pairs_between > most {
                break;
            }
            for _ in 0..2 * pairs_between {
                pairs.push((from, n));
                from = n;
                n += 1;
            }
            pairs.push((from, to));
            if pairs_between == 0 && (n as usize) < most {
                pairs.push((to, n));
                n += 1;
            }
        }
        // Vertices are renumbered, because the order of the searches is that of the numbers.
        let steps = (1..=u64::from(n)).map(|i| order % 1000 + i);
        let step = steps
            .filter(|step| gcd(*step, u64::from(n)) == 1)
            .min()
            .expect("one of n in a row is coprime");
        let number = |v: u32| ((u64::from(v) * step + order) % u64::from(n)) as u32;
        let weights = noise.into_iter().cycle().map(|noise| floor + noise);
        let edges = pairs
            .into_iter()
            .zip(weights)
            .map(|((u, v), w)| (number(u), number(v), w));
        (n as usize, edges.collect())
    })
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The weight of a maximum matching, by exhaustive search.
pub(crate) fn brute_force(n: usize, edges: &[(u32, u32, i64)]) -> i64 {
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
        let partners = (u + 1..n).filter(|v| rest >> v & 1 == 1);
        best[set] = partners
            .map(|v| weight[u][v] + best[rest & !(1 << v)])
            .fold(best[rest], i64::max);
    }
    best[(1 << n) - 1]
}

/// Returns a complete graph with weights from a seeded generator.
pub(crate) fn complete(n: u32, span: u64, seed: u64) -> Edges {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % span) as i64 + 1
    };
    (0..n)
        .flat_map(|u| (u + 1..n).map(move |v| (u, v)))
        .map(|(u, v)| (u, v, next()))
        .collect()
}
