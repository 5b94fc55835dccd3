//! Random programs.

use dovetail_solve::choice::pack::Bin;
use dovetail_solve::choice::{Kind, Point};
use proptest::prelude::*;

/// Generates kinds of up to four points each.
pub(crate) fn kinds(most_weight: u64, kinds: usize, count: u32) -> impl Strategy<Value = Vec<Kind>> {
    let point =
        (0..=most_weight, 0..=most_weight, 0..40u64).prop_map(|(a, b, gain)| Point { weight: [a, b], gain });
    let kind = (
        1..=count,
        prop::collection::vec(point, 1..=4),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(count, points, floor)| Kind {
            count,
            floor: floor.index(points.len()),
            points,
        });
    prop::collection::vec(kind, 1..=kinds)
}

/// The weights of the floors plus `extra`.
pub(crate) fn capacities(kinds: &[Kind], extra: [u64; 2]) -> [u64; 2] {
    let floor = |d: usize| -> u64 {
        kinds
            .iter()
            .map(|k| k.points[k.floor].weight[d] * u64::from(k.count))
            .sum()
    };
    [floor(0) + extra[0], floor(1) + extra[1]]
}

/// Returns a cluster of equal bins, and items of one, two and four slots that fill it, with floors in proportion to slots.
pub(crate) fn filled(bins: u32, seed: &[(u8, u8)]) -> (Vec<Kind>, Vec<u32>, Vec<Bin>) {
    let mut left = bins * 8;
    let (mut kinds, mut slots) = (Vec::new(), Vec::new());
    for (shape, width) in seed.iter().cycle() {
        let wide = [1, 2, 4, 1][usize::from(width % 4)].min(left);
        if wide == 0 {
            break;
        }
        left -= wide;
        let n = u64::from(wide);
        let steep = u64::from(shape % 5);
        let point = |cpu: u64, memory: u64, gain: u64| Point {
            weight: [n * cpu, n * memory],
            gain: n * gain,
        };
        let points = vec![
            point(3, 62, 100),
            point(6, 62, 100 + 20 * steep),
            point(12, 125, 100 + 50 * steep),
            point(2, 100, 90 + 10 * steep),
        ];
        kinds.push(Kind {
            count: 1,
            points,
            floor: 0,
        });
        slots.push(wide);
    }
    let bin = Bin {
        slots: 8,
        capacity: [24, 500],
    };
    (kinds, slots, vec![bin; bins as usize])
}
