//! Statistics of a workload, for people and for `--json`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::job::Workload;

/// The statistics that `trace info` shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkloadStats {
    /// Number of jobs.
    pub jobs: usize,
    /// Time of the first submission, in seconds.
    pub first_submit_s: f64,
    /// Time from the first submission to the last, in seconds.
    pub span_s: f64,
    /// Jobs per hour over the span; zero if all arrive at once.
    pub jobs_per_hour: f64,
    /// GPU-hours of all jobs.
    pub gpu_hours: f64,
    /// GPU time requested, divided by the span: the GPUs that would be busy on average if no job waited. Zero if all
    /// arrive at once.
    pub mean_demand_gpus: f64,
    /// GPUs of the widest gang.
    pub max_gpus: u32,
    /// Shares of jobs by number of GPUs.
    pub by_gpus: Vec<GpuShare>,
    /// Run times alone at full speed, in seconds.
    pub duration_s: Quantiles,
    /// Arrivals in each hour of the day, as a multiple of the mean; the day begins at time zero.
    pub arrivals_by_hour: [f64; 24],
    /// Number of tenants that have jobs.
    pub tenants: usize,
    /// Number of users that have jobs.
    pub users: usize,
    /// Number of models that jobs name.
    pub models: usize,
    /// Tenants by GPU time, the largest first, at most twenty.
    pub top_tenants: Vec<TenantShare>,
}

/// The jobs of one width.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuShare {
    /// Number of GPUs.
    pub gpus: u32,
    /// Number of jobs that request this many.
    pub jobs: usize,
    /// Their share of all jobs.
    pub share: f64,
    /// Their share of all GPU time.
    pub gpu_time_share: f64,
}

/// The jobs of one tenant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantShare {
    /// Name of the tenant.
    pub name: String,
    /// Number of its jobs.
    pub jobs: usize,
    /// Their share of all GPU time.
    pub gpu_time_share: f64,
}

/// A distribution in a few figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    /// The mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// 10th percentile.
    pub p10: f64,
    /// 25th percentile.
    pub p25: f64,
    /// Median.
    pub p50: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Quantiles {
    /// Returns the quantiles of sorted values; all zero without values.
    fn of_sorted(values: &[f64]) -> Self {
        let at = |level: f64| {
            let position = level * values.len().saturating_sub(1) as f64;
            let low = values.get(position as usize).copied().unwrap_or(0.0);
            let high = values.get(position as usize + 1).copied().unwrap_or(low);
            low + (high - low) * (position - position.floor())
        };
        Self {
            mean: values.iter().sum::<f64>() / values.len().max(1) as f64,
            min: at(0.0),
            p10: at(0.1),
            p25: at(0.25),
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

impl WorkloadStats {
    /// Returns the statistics of a workload.
    pub fn of(workload: &Workload) -> Self {
        let jobs = &workload.jobs;
        let gpu_seconds = workload.gpu_seconds();
        let span_s = workload.span().as_secs_f64();
        let per_span = |amount: f64| if span_s > 0.0 { amount / span_s } else { 0.0 };
        let part = |amount: f64, whole: f64| if whole > 0.0 { amount / whole } else { 0.0 };

        let mut by_gpus: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
        let mut by_tenant: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
        let mut by_hour = [0usize; 24];
        for job in jobs {
            let gpu_time = job.gpu_seconds();
            for (jobs, time) in [
                by_gpus.entry(job.gpus).or_default(),
                by_tenant.entry(job.tenant.0).or_default(),
            ] {
                *jobs += 1;
                *time += gpu_time;
            }
            by_hour[(job.submit.0.max(0) / 3_600_000_000 % 24) as usize] += 1;
        }
        let users: BTreeSet<_> = jobs.iter().map(|j| j.user).collect();
        let models: BTreeSet<_> = jobs.iter().filter_map(|j| j.model).collect();
        let mut durations: Vec<f64> = jobs.iter().map(|j| j.work.as_secs_f64()).collect();
        durations.sort_unstable_by(f64::total_cmp);

        let tenants = by_tenant.len();
        let mut top_tenants: Vec<TenantShare> = by_tenant
            .into_iter()
            .map(|(id, (jobs, time))| TenantShare {
                name: workload
                    .names
                    .tenants
                    .get(dovetail_model::TenantId(id))
                    .cloned()
                    .unwrap_or_default(),
                jobs,
                gpu_time_share: part(time, gpu_seconds),
            })
            .collect();
        top_tenants.sort_by(|a, b| b.gpu_time_share.total_cmp(&a.gpu_time_share));
        top_tenants.truncate(20);

        Self {
            jobs: jobs.len(),
            first_submit_s: jobs.first().map_or(0.0, |j| j.submit.as_secs_f64()),
            span_s,
            jobs_per_hour: per_span(jobs.len() as f64) * 3600.0,
            gpu_hours: gpu_seconds / 3600.0,
            mean_demand_gpus: per_span(gpu_seconds),
            max_gpus: jobs.iter().map(|j| j.gpus).max().unwrap_or(0),
            by_gpus: by_gpus
                .into_iter()
                .map(|(gpus, (count, time))| GpuShare {
                    gpus,
                    jobs: count,
                    share: part(count as f64, jobs.len() as f64),
                    gpu_time_share: part(time, gpu_seconds),
                })
                .collect(),
            duration_s: Quantiles::of_sorted(&durations),
            arrivals_by_hour: by_hour.map(|count| part(count as f64 * 24.0, jobs.len() as f64)),
            tenants,
            users: users.len(),
            models: models.len(),
            top_tenants,
        }
    }
}
