//! The sharing anomaly: how much longer a tenant's jobs wait in a shared cluster than in a private one of the same size.

use std::collections::BTreeMap;

use dovetail_model::Time;
use dovetail_model::run::{JobRow, RunRecord};
use serde::Serialize;

/// One tenant in a shared cluster compared with its private one. Times are means over its jobs unless noted otherwise.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Anomaly {
    /// The tenant.
    pub tenant: String,
    /// Number of its jobs that finished in both clusters.
    pub jobs: u64,
    /// Number of those that waited longer in the shared cluster.
    pub later: u64,
    /// Number of jobs that finished in the private cluster, but not in the shared one.
    pub lost: u64,
    /// Wait in the private cluster: all time beyond the run time alone, including restarts.
    pub private_wait_s: f64,
    /// Wait in the shared cluster.
    pub shared_wait_s: f64,
    /// Largest additional wait of any of its jobs.
    pub worst_job_s: f64,
    /// Preemptions per job in the shared cluster.
    pub preemptions_per_job: f64,
}

impl Anomaly {
    /// Returns the wait in the shared cluster beyond that in the private one; negative where sharing helps.
    pub fn extra_s(&self) -> f64 {
        self.shared_wait_s - self.private_wait_s
    }

    /// Returns whether there is an anomaly: jobs wait longer by more than their preemptions cost, or do not finish.
    pub fn is_anomalous(&self, restart_cost: Time) -> bool {
        self.lost > 0 || self.extra_s() > self.preemptions_per_job * restart_cost.as_secs_f64()
    }
}

/// Compares a run of a shared cluster with the run of one tenant's private cluster, job by job by their names in the
/// trace. Only jobs that `counts` accepts are compared.
pub fn sharing_anomaly(
    tenant: &str,
    shared: &RunRecord,
    private: &RunRecord,
    counts: &dyn Fn(&str) -> bool,
) -> Anomaly {
    let by_name = |record: &RunRecord| -> BTreeMap<String, JobRow> {
        let rows = record.job_names.iter().cloned().zip(record.rows.iter().cloned());
        rows.filter(|(name, _)| counts(name)).collect()
    };
    let shared = by_name(shared);
    let mut anomaly = Anomaly {
        tenant: tenant.to_owned(),
        ..Anomaly::default()
    };
    let (mut private_us, mut shared_us, mut preemptions) = (0, 0, 0);
    for (name, alone) in by_name(private) {
        let Some(before) = delay(&alone) else { continue };
        let Some((row, wait)) = shared.get(&name).and_then(|r| Some((r, delay(r)?))) else {
            anomaly.lost += 1;
            continue;
        };
        anomaly.jobs += 1;
        anomaly.later += u64::from(wait > before);
        anomaly.worst_job_s = anomaly.worst_job_s.max((wait - before).as_secs_f64());
        private_us += i128::from(before.0);
        shared_us += i128::from(wait.0);
        preemptions += u64::from(row.preemptions);
    }
    let mean = |sum: i128| sum as f64 / 1e6 / anomaly.jobs.max(1) as f64;
    (anomaly.private_wait_s, anomaly.shared_wait_s) = (mean(private_us), mean(shared_us));
    anomaly.preemptions_per_job = preemptions as f64 / anomaly.jobs.max(1) as f64;
    anomaly
}

/// Returns the completion time beyond the run time alone.
fn delay(row: &JobRow) -> Option<Time> {
    row.jct().map(|jct| jct - Time(row.work.0 as i64))
}

#[cfg(test)]
mod tests {
    use dovetail_model::{JobKey, Work};

    use super::*;

    fn record(waits_s: &[(&str, Option<i64>)]) -> RunRecord {
        let row = |(i, (_, wait)): (usize, &(&str, Option<i64>))| JobRow {
            job: JobKey(i as u32),
            gpus: 1,
            work: Work(1_000_000),
            submit: Time(0),
            first_start: None,
            finish: wait.map(|w| Time((w + 1) * 1_000_000)),
            held: Time(1_000_000),
            preemptions: 1,
            rho: None,
        };
        RunRecord {
            rows: waits_s.iter().enumerate().map(row).collect(),
            job_names: waits_s.iter().map(|(name, _)| (*name).to_owned()).collect(),
            ..RunRecord::default()
        }
    }

    #[test]
    fn jobs_are_compared_by_name() {
        let private = record(&[
            ("a", Some(10)),
            ("b", Some(20)),
            ("low", Some(0)),
            ("never", None),
        ]);
        let shared = record(&[
            ("x", Some(999)),
            ("b", Some(25)),
            ("low", Some(500)),
            ("a", Some(8)),
            ("never", None),
        ]);
        let found = sharing_anomaly("t", &shared, &private, &|name| name != "low");
        assert_eq!((found.jobs, found.later, found.lost), (2, 1, 0));
        assert_eq!((found.private_wait_s, found.shared_wait_s), (15.0, 16.5));
        assert_eq!((found.extra_s(), found.worst_job_s), (1.5, 5.0));
        assert!(found.is_anomalous(Time(1_000_000)) && !found.is_anomalous(Time(2_000_000)));
    }

    #[test]
    fn a_job_that_never_finishes_in_the_shared_cluster_is_an_anomaly() {
        let (private, shared) = (record(&[("a", Some(10))]), record(&[("a", None)]));
        let found = sharing_anomaly("t", &shared, &private, &|_| true);
        assert_eq!((found.jobs, found.lost), (0, 1));
        assert!(found.is_anomalous(Time(i64::MAX / 2)));
    }
}
