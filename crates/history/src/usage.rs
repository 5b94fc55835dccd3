//! GPU usage by day, user and virtual cluster.

use rusqlite::{Connection, params};

use crate::list::KnownJobs;

/// GPU time of a user in a virtual cluster on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageSum {
    /// Days since 1970.
    pub day: i64,
    /// User who submitted the jobs.
    pub user: String,
    /// Virtual cluster of the jobs.
    pub tenant: String,
    /// GPU time, in GPU-microseconds.
    pub gpu_time: i64,
    /// Number of jobs that held GPUs on that day.
    pub jobs: u64,
}

/// Sums that are kept up to date, without the jobs that the caller has.
const SUMS: &str = "
WITH known(job) AS (
    SELECT id FROM jobs WHERE id >= ?1 UNION ALL SELECT value FROM json_each(?2)
), own(day, user, tenant, gpu_time, jobs) AS (
    SELECT job_usage.day, jobs.user, jobs.tenant, sum(job_usage.gpu_time), count(*)
    FROM known JOIN jobs ON jobs.id = known.job JOIN job_usage ON job_usage.job = jobs.id
    GROUP BY job_usage.day, jobs.user, jobs.tenant
)
SELECT usage.day, users.text, tenants.text, usage.gpu_time - coalesce(own.gpu_time, 0), usage.jobs - coalesce(own.jobs, 0)
FROM usage JOIN words AS users ON users.id = usage.user JOIN words AS tenants ON tenants.id = usage.tenant
LEFT JOIN own ON own.day = usage.day AND own.user = usage.user AND own.tenant = usage.tenant
WHERE usage.day BETWEEN ?3 AND ?4
";

/// Returns the usage of all jobs that the caller does not have, on days from `first` to `last`.
pub(crate) fn sums(
    connection: &Connection,
    known: &KnownJobs,
    (first, last): (i64, i64),
) -> rusqlite::Result<Vec<UsageSum>> {
    let mut statement = connection.prepare_cached(SUMS)?;
    let from = i64::try_from(known.from).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![from, known.below_json(), first, last], |row| {
        Ok(UsageSum {
            day: row.get(0)?,
            user: row.get(1)?,
            tenant: row.get(2)?,
            gpu_time: row.get(3)?,
            jobs: row.get(4)?,
        })
    })?;
    let all: rusqlite::Result<Vec<UsageSum>> = rows.collect();
    Ok(all?.into_iter().filter(|sum| sum.jobs > 0).collect())
}
