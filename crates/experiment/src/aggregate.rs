//! Means over runs with different seeds, with confidence intervals.

use dovetail_model::run::{RunRecord, Summary};

/// The results of a comparison at one load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSummary {
    /// The load; `None` if the comparison sets none.
    pub load: Option<f64>,
    /// The policies, in the order of the axis.
    pub policies: Vec<PolicySummary>,
    /// Mean of the lower bound on the average JCT over all runs, in seconds.
    pub lower_bound_avg_jct_s: f64,
}

/// The results of one policy at one load.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicySummary {
    /// The name of the policy.
    pub policy: String,
    /// The mean of each metric over all seeds.
    pub mean: Summary,
    /// Half the width of the 95 % confidence interval of the average JCT, in seconds; `None` with one seed.
    pub avg_jct_half_width_s: Option<f64>,
}

impl LoadSummary {
    /// Aggregates runs in the order seed, policy.
    pub(crate) fn new(load: Option<f64>, records: &[RunRecord], policies: &[String]) -> Self {
        let all: Vec<&Summary> = records.iter().map(|r| &r.summary).collect();
        let of_policy = |(at, policy): (usize, &String)| {
            let runs = all.iter().skip(at).step_by(policies.len()).copied();
            PolicySummary::new(policy.clone(), &runs.collect::<Vec<_>>())
        };
        Self {
            load,
            policies: policies.iter().enumerate().map(of_policy).collect(),
            lower_bound_avg_jct_s: mean(&all).lower_bound_avg_jct_s,
        }
    }
}

impl PolicySummary {
    fn new(policy: String, runs: &[&Summary]) -> Self {
        let mean = mean(runs);
        let jcts: Vec<f64> = runs.iter().map(|s| s.avg_jct_s).collect();
        Self {
            policy,
            avg_jct_half_width_s: half_width(&jcts, mean.avg_jct_s),
            mean,
        }
    }
}

/// Returns the mean of each metric over runs with different seeds.
fn mean(runs: &[&Summary]) -> Summary {
    let avg =
        |value: fn(&Summary) -> f64| runs.iter().map(|s| value(s)).sum::<f64>() / runs.len().max(1) as f64;
    Summary {
        avg_jct_s: avg(|s| s.avg_jct_s),
        median_jct_s: avg(|s| s.median_jct_s),
        p99_jct_s: avg(|s| s.p99_jct_s),
        avg_wait_s: avg(|s| s.avg_wait_s),
        avg_slowdown: avg(|s| s.avg_slowdown),
        makespan_s: avg(|s| s.makespan_s),
        gpu_utilization: avg(|s| s.gpu_utilization),
        preemptions: avg(|s| s.preemptions as f64) as u64,
        avg_queue_length: avg(|s| s.avg_queue_length),
        blocking_index: avg(|s| s.blocking_index),
        worst_ftf: avg(|s| s.worst_ftf),
        p95_ftf: avg(|s| s.p95_ftf),
        avg_ftf: avg(|s| s.avg_ftf),
        unfair_share: avg(|s| s.unfair_share),
        lower_bound_avg_jct_s: avg(|s| s.lower_bound_avg_jct_s),
        ..runs.first().map(|s| (*s).clone()).unwrap_or_default()
    }
}

/// Returns half the width of the 95 % confidence interval of a mean.
fn half_width(values: &[f64], mean: f64) -> Option<f64> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / freedom as f64;
    Some(student_t(freedom) * (variance / values.len() as f64).sqrt())
}

/// Returns the 97.5 % quantile of Student's t distribution.
fn student_t(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    match freedom {
        0 => f64::NAN,
        1..=10 => TABLE[freedom - 1],
        11..=30 => 2.1,
        _ => 1.96,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_confidence_interval_is_that_of_students_t() {
        let half = half_width(&[10.0, 12.0, 14.0], 12.0).expect("three values");
        assert!((half - 4.303 * (4.0_f64 / 3.0).sqrt()).abs() < 1e-9);
        assert_eq!(half_width(&[10.0], 10.0), None);
    }
}
