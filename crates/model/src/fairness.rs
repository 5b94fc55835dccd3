//! Finish-time fairness: one definition, for the policy that strives for it and for the figures that judge it.

/// How long a job takes on an equal share of the cluster: a 1/n part of its GPUs, with n the mean number of jobs alive
/// over the job's life. A gang that is wider than the share runs slower in proportion; a narrower one runs at its full
/// speed. The result has the unit of `work`, the run time at full speed on `gpus` GPUs.
pub fn fair_time(work: f64, gpus: u32, jobs_alive: f64, cluster_gpus: u32) -> f64 {
    let widths = f64::from(gpus) * jobs_alive / f64::from(cluster_gpus.max(1));
    work * widths.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::fair_time;

    #[test]
    fn a_gang_wider_than_its_share_is_slowed_and_a_narrow_one_is_not() {
        assert_eq!(fair_time(100.0, 4, 4.0, 8), 200.0);
        assert_eq!(fair_time(100.0, 2, 4.0, 8), 100.0);
        assert_eq!(fair_time(100.0, 1, 4.0, 8), 100.0);
        assert_eq!(fair_time(100.0, 8, 1.0, 8), 100.0);
    }
}
