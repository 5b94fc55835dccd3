//! Steps per second of Gavel's job types on V100 GPUs.
//!
//! Figures of the simulation throughputs published with Gavel (Narayanan et al., OSDI 2020, MIT licence): each type
//! alone on 1, 2, 4 and 8 V100s of one machine. Zero means not measured.

/// Steps per second on 1, 2, 4 and 8 GPUs, sorted by job type.
const V100: [(&str, [f64; 4]); 26] = [
    ("A3C", [7.176, 0.0, 0.0, 0.0]),
    ("CycleGAN", [4.426, 0.0, 0.0, 0.0]),
    ("LM (batch size 10)", [81.652, 163.129, 121.478, 615.093]),
    ("LM (batch size 20)", [64.742, 132.174, 110.997, 497.295]),
    ("LM (batch size 40)", [45.237, 91.593, 96.031, 359.307]),
    ("LM (batch size 5)", [109.167, 185.724, 126.716, 698.773]),
    ("LM (batch size 80)", [28.240, 58.092, 74.807, 231.176]),
    ("Recommendation (batch size 1024)", [13.283, 0.0, 0.0, 0.0]),
    ("Recommendation (batch size 2048)", [7.470, 0.0, 0.0, 0.0]),
    ("Recommendation (batch size 4096)", [3.906, 0.0, 0.0, 0.0]),
    ("Recommendation (batch size 512)", [23.318, 0.0, 0.0, 0.0]),
    ("Recommendation (batch size 8192)", [2.842, 0.0, 0.0, 0.0]),
    ("ResNet-18 (batch size 128)", [17.995, 23.985, 69.951, 162.092]),
    ("ResNet-18 (batch size 16)", [32.353, 100.142, 123.854, 382.597]),
    ("ResNet-18 (batch size 256)", [10.300, 15.883, 27.782, 81.507]),
    ("ResNet-18 (batch size 32)", [29.947, 94.249, 114.733, 340.038]),
    ("ResNet-18 (batch size 64)", [24.093, 74.136, 95.588, 255.829]),
    ("ResNet-50 (batch size 128)", [2.497, 4.223, 7.029, 10.293]),
    ("ResNet-50 (batch size 16)", [11.396, 13.860, 23.196, 27.799]),
    ("ResNet-50 (batch size 32)", [7.787, 10.835, 13.763, 24.067]),
    ("ResNet-50 (batch size 64)", [4.395, 7.922, 9.452, 17.303]),
    ("Transformer (batch size 128)", [5.446, 10.069, 14.175, 30.884]),
    ("Transformer (batch size 16)", [11.064, 14.154, 20.085, 71.652]),
    ("Transformer (batch size 256)", [1.595, 2.885, 4.763, 9.717]),
    ("Transformer (batch size 32)", [10.621, 13.328, 22.823, 63.978]),
    ("Transformer (batch size 64)", [8.618, 15.876, 19.660, 49.651]),
];

/// Returns the names of all job types.
pub(super) fn job_types() -> impl Iterator<Item = &'static str> {
    V100.iter().map(|(name, _)| *name)
}

/// Returns the steps per second of a job type on this many GPUs, and whether that was measured. If not, the speed is
/// extrapolated in proportion from the nearest smaller number of GPUs that was measured.
pub(super) fn steps_per_second(job_type: &str, gpus: u32) -> Option<(f64, bool)> {
    let row = V100.binary_search_by(|(name, _)| (*name).cmp(job_type)).ok()?;
    let measured = V100[row]
        .1
        .iter()
        .zip([1, 2, 4, 8])
        .rfind(|(speed, at)| **speed > 0.0 && *at <= gpus);
    let (speed, at) = measured?;
    Some((speed * f64::from(gpus) / f64::from(at), at == gpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_found_by_type_and_width() {
        assert!(V100.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(steps_per_second("A3C", 1), Some((7.176, true)));
        assert_eq!(steps_per_second("A3C", 2), Some((14.352, false)));
        assert_eq!(
            steps_per_second("ResNet-18 (batch size 16)", 8),
            Some((382.597, true))
        );
        assert_eq!(steps_per_second("ResNet-18", 8), None);
    }
}
