//! Metrics from outcomes.

use dovetail_model::fairness::fair_time;
use dovetail_model::run::{ClusterSize, JobRow, RunRecord, Summary, TenantSummary};
use dovetail_model::{JobKey, Time};
use dovetail_workload::{JobLabel, TraceJob, Workload};

use crate::bound::{BoundJob, lower_bound_avg_jct};
use crate::config::{SimConfig, SimError};
use crate::run::Outcomes;

/// Returns the record of a run.
pub(crate) fn record(
    outcomes: &Outcomes,
    workload: &Workload,
    config: &SimConfig,
) -> Result<RunRecord, SimError> {
    let tracked: Vec<usize> = (0..outcomes.truths.len())
        .filter(|i| is_tracked(&workload.jobs[*i], *i, config))
        .collect();
    if tracked.is_empty() {
        let (from, to) = config.track.unwrap_or_default();
        return Err(SimError::Empty(format!(
            "{}: no job has an id in {from}..{to}",
            workload.source
        )));
    }
    let gpus = config.cluster.gpus();
    let rows: Vec<JobRow> = tracked
        .iter()
        .map(|i| row(*i, outcomes, workload, gpus))
        .collect();
    let mut summary = Summary {
        policy: outcomes.policy.clone(),
        trace: workload.source.clone(),
        cluster: ClusterSize {
            nodes: config.cluster.nodes.len() as u32,
            gpus,
        },
        seed: config.seed,
        jobs: rows.len() as u64,
        rejected: tracked.iter().filter(|i| outcomes.truths[**i].rejected).count() as u64,
        events: outcomes.events,
        rounds: outcomes.rounds,
        solved: outcomes.solved,
        ..Summary::default()
    };
    fill_times(&mut summary, &rows);
    fill_fairness(&mut summary, &rows);
    let (busy, up, fragments) = outcomes.timeline.totals();
    summary.gpu_utilization = ratio(busy as f64, up as f64);
    summary.fragmentation = ratio(fragments as f64, up as f64);
    let (mean, most) = outcomes.timeline.queue();
    (summary.avg_queue_length, summary.max_queue_length) = (mean, most.into());
    summary.blocking_index = ratio(outcomes.blocking.integral(), outcomes.timeline.span() as f64);
    summary.lower_bound_avg_jct_s = bound(&rows, gpus);
    let tenant_of = |row: &JobRow| &workload.names.tenants[workload.jobs[row.job.0 as usize].tenant];
    let gpu_hours = |row: &JobRow| outcomes.truths[row.job.0 as usize].gpu_time as f64 / 3.6e9;
    summary.tenants = tenants(&rows, &tenant_of, &gpu_hours);
    Ok(RunRecord {
        summary,
        job_names: rows
            .iter()
            .map(|r| workload.jobs[r.job.0 as usize].label.to_string())
            .collect(),
        tenant_names: rows.iter().map(|r| tenant_of(r).clone()).collect(),
        rows,
        timeline: outcomes.timeline.points(),
        segments: outcomes.segments.clone(),
        node_slots: config.cluster.nodes.values().map(|n| n.gpus).collect(),
        moments: outcomes.moments.clone(),
    })
}

pub(crate) fn is_tracked(job: &TraceJob, i: usize, config: &SimConfig) -> bool {
    let Some((from, to)) = config.track else {
        return true;
    };
    let id = match job.label {
        JobLabel::Number(n) => n,
        JobLabel::Text(_) => i as u64,
    };
    (u64::from(from)..=u64::from(to)).contains(&id)
}

fn row(i: usize, outcomes: &Outcomes, workload: &Workload, gpus: u32) -> JobRow {
    let (truth, job) = (&outcomes.truths[i], &workload.jobs[i]);
    let rho = truth.finish.map(|finish| {
        let fair = fair_time(job.work.as_secs_f64(), job.gpus, truth.contention, gpus);
        let rho = (finish - job.submit).as_secs_f64() / fair.max(1e-6);
        // Six decimals: files hold exactly what was computed.
        (rho * 1e6).round() / 1e6
    });
    JobRow {
        job: JobKey(i as u32),
        gpus: job.gpus,
        work: job.work,
        submit: job.submit,
        first_start: truth.first_start,
        finish: truth.finish,
        held: truth.held,
        preemptions: truth.preemptions,
        rho,
    }
}

fn fill_times(summary: &mut Summary, rows: &[JobRow]) {
    let of = |value: &dyn Fn(&JobRow) -> Option<f64>| rows.iter().filter_map(value).collect::<Vec<f64>>();
    let mut jct = of(&|r| r.jct().map(Time::as_secs_f64));
    let mut wait = of(&|r| r.wait().map(Time::as_secs_f64));
    let mut slowdown = of(&JobRow::slowdown);
    summary.finished = jct.len() as u64;
    summary.avg_jct_s = mean(&jct);
    [summary.median_jct_s, summary.p95_jct_s, summary.p99_jct_s] = quantiles(&mut jct);
    summary.avg_wait_s = mean(&wait);
    [summary.median_wait_s, summary.p95_wait_s, summary.p99_wait_s] = quantiles(&mut wait);
    summary.avg_slowdown = mean(&slowdown);
    summary.avg_first_start_s = mean(&of(&|r| r.first_start.map(|s| (s - r.submit).as_secs_f64())));
    let fairness: Vec<f64> = slowdown.iter().map(|s| 1.0 / s.max(1e-9)).collect();
    let squares: f64 = fairness.iter().map(|x| x * x).sum();
    summary.jain_index = ratio(
        fairness.iter().sum::<f64>().powi(2),
        squares * fairness.len() as f64,
    );
    [
        summary.median_slowdown,
        summary.p95_slowdown,
        summary.p99_slowdown,
    ] = quantiles(&mut slowdown);
    let first_submit = rows.iter().map(|r| r.submit).min().unwrap_or_default();
    let last_finish = rows.iter().filter_map(|r| r.finish).max().unwrap_or(first_submit);
    summary.makespan_s = (last_finish - first_submit).as_secs_f64();
    summary.preemptions = rows.iter().map(|r| u64::from(r.preemptions)).sum();
}

/// Fills in finish-time fairness over all jobs that finished.
fn fill_fairness(summary: &mut Summary, rows: &[JobRow]) {
    let mut rho: Vec<f64> = rows.iter().filter_map(|r| r.rho).collect();
    summary.worst_ftf = rho.iter().copied().fold(0.0, f64::max);
    summary.avg_ftf = mean(&rho);
    let unfair = rho.iter().filter(|rho| **rho > 1.0).count();
    summary.unfair_share = ratio(unfair as f64, rho.len() as f64);
    [_, summary.p95_ftf, _] = quantiles(&mut rho);
}

fn bound(rows: &[JobRow], gpus: u32) -> f64 {
    let jobs: Vec<BoundJob> = rows
        .iter()
        .filter(|r| r.finish.is_some())
        .map(|r| BoundJob {
            submit_s: r.submit.as_secs_f64(),
            duration_s: r.work.as_secs_f64(),
            gpus: r.gpus,
        })
        .collect();
    lower_bound_avg_jct(&jobs, gpus)
}

fn tenants<'a>(
    rows: &'a [JobRow],
    tenant_of: &dyn Fn(&'a JobRow) -> &'a String,
    gpu_hours: &dyn Fn(&JobRow) -> f64,
) -> Vec<TenantSummary> {
    let mut by_tenant: std::collections::BTreeMap<&String, Vec<&JobRow>> = std::collections::BTreeMap::new();
    for row in rows {
        by_tenant.entry(tenant_of(row)).or_default().push(row);
    }
    if by_tenant.len() < 2 {
        return Vec::new();
    }
    by_tenant
        .into_iter()
        .map(|(tenant, rows)| {
            let mut jct: Vec<f64> = rows
                .iter()
                .filter_map(|r| r.jct().map(Time::as_secs_f64))
                .collect();
            let [_, _, p99_jct_s] = quantiles(&mut jct);
            let waits: Vec<f64> = rows
                .iter()
                .filter_map(|r| r.wait().map(Time::as_secs_f64))
                .collect();
            let slowdowns: Vec<f64> = rows.iter().filter_map(|r| r.slowdown()).collect();
            TenantSummary {
                tenant: tenant.clone(),
                jobs: rows.len() as u64,
                finished: jct.len() as u64,
                avg_jct_s: mean(&jct),
                p99_jct_s,
                avg_wait_s: mean(&waits),
                avg_slowdown: mean(&slowdowns),
                gpu_hours: rows.iter().map(|r| gpu_hours(r)).sum(),
            }
        })
        .collect()
}

/// Returns median, 95th and 99th percentile, by linear interpolation between the closest ranks; zeros without values.
/// Reorders the values.
pub fn quantiles(values: &mut [f64]) -> [f64; 3] {
    if values.is_empty() {
        return [0.0; 3];
    }
    // Ranks from `end` on are final as far as they matter; `next` is the value of rank `end` + 1.
    let (mut end, mut next) = (values.len(), f64::NAN);
    let mut take = |q: f64| {
        let at = q * (values.len() - 1) as f64;
        let low = at.floor() as usize;
        if low < end {
            values[..end].select_nth_unstable_by(low, f64::total_cmp);
            let between = values[low + 1..end].iter().copied().min_by(f64::total_cmp);
            next = between.unwrap_or_else(|| values.get(end).copied().unwrap_or(values[low]));
            end = low;
        }
        let part = at - low as f64;
        if part > 0.0 {
            values[low] + (next - values[low]) * part
        } else {
            values[low]
        }
    };
    let p99 = take(0.99);
    let p95 = take(0.95);
    [take(0.5), p95, p99]
}

fn mean(values: &[f64]) -> f64 {
    ratio(values.iter().sum(), values.len() as f64)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted_quantile(values: &[f64], q: f64) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = q * (sorted.len() - 1) as f64;
        let (low, high) = (at.floor() as usize, at.ceil() as usize);
        sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
    }

    #[test]
    fn quantiles_equal_those_of_sorted_values() {
        for n in 1..250usize {
            let values: Vec<f64> = (0..n).map(|i| ((i * 7919 + n) % 101) as f64).collect();
            let expected = [0.5, 0.95, 0.99].map(|q| sorted_quantile(&values, q));
            let ours = quantiles(&mut values.clone());
            for (a, b) in ours.iter().zip(expected) {
                assert!((a - b).abs() < 1e-9, "{n} values: {ours:?} and {expected:?}");
            }
        }
        assert_eq!(quantiles(&mut []), [0.0; 3]);
    }
}
