//! Finish-time fairness, as used by policies and by reports.

/// Returns how long a job takes on an equal share of the cluster: 1/n of its GPUs, where n is the mean number of unfinished
/// jobs between its submission and its end. A gang wider than the share is slowed down in proportion; a narrower one runs
/// at full speed. The result has the unit of `work`, the run time at full speed on `gpus` GPUs.
pub fn fair_time(work: f64, gpus: u32, unfinished_jobs: f64, cluster_gpus: u32) -> f64 {
    let widths = f64::from(gpus) * unfinished_jobs / f64::from(cluster_gpus.max(1));
    work * widths.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::fair_time;

    #[test]
    fn only_a_gang_wider_than_its_share_is_slowed_down() {
        assert_eq!(fair_time(100.0, 4, 4.0, 8), 200.0);
        assert_eq!(fair_time(100.0, 2, 4.0, 8), 100.0);
        assert_eq!(fair_time(100.0, 1, 4.0, 8), 100.0);
        assert_eq!(fair_time(100.0, 8, 1.0, 8), 100.0);
    }
}
