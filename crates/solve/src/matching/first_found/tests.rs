use super::*;

/// The largest weight of all matchings, by trying every one.
fn best(weights: &[Vec<f64>], free: u32) -> f64 {
    let Some(first) = (0..weights.len()).find(|v| free & (1 << v) != 0) else {
        return 0.0;
    };
    let rest = free & !(1 << first);
    let single = best(weights, rest);
    (first + 1..weights.len())
        .filter(|v| rest & (1 << v) != 0)
        .map(|v| weights[first][v] + best(weights, rest & !(1 << v)))
        .fold(single, f64::max)
}

#[test]
fn the_weight_equals_that_of_the_best_matching() {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u32
    };
    for _ in 0..3000 {
        let count = 1 + next() as usize % 9;
        let mut weights = vec![vec![0.0; count]; count];
        for (a, b) in (0..count).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let weight = f64::from(next() % 12) / 16.0;
            (weights[a][b], weights[b][a]) = (weight, weight);
        }
        let mates = first_found(count, |a, b| weights[a][b]);
        let ours: f64 = (0..count)
            .filter_map(|v| mates[v].filter(|m| *m > v).map(|m| weights[v][m]))
            .sum();
        let most = best(&weights, (1 << count) - 1);
        assert!(
            (ours - most).abs() < 1e-9,
            "{weights:?}: found {ours}, the best is {most}"
        );
        assert!((0..count).all(|v| mates[v].is_none_or(|m| mates[m] == Some(v))));
    }
}
