//! GPU utilization of jobs, as far as their nodes report it.

use axum::Json;
use axum::extract::{Path, State};
use dovetail_cluster::{JobId, LiveRuntime, LoadPoint};
use dovetail_model::{Allocation, Time};

use crate::accounts::User;
use crate::views::{GpuPoint, GpuSeries, GpuUtilization};
use crate::{Api, Problem};

/// Maximum number of GPUs that are listed one by one; for larger jobs only the mean is returned.
const MAX_SERIES: usize = 64;

/// Returns the mean utilization of all GPUs of a job over a period, in percent; none unless every node reported most of it.
pub(crate) fn mean_utilization(
    runtime: &dyn LiveRuntime,
    allocation: &Allocation,
    from: Time,
    to: Time,
) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for share in &allocation.shares {
        let points = runtime.loads(share.node, from);
        let points: Vec<&LoadPoint> = points.iter().filter(|p| p.at > from && p.at <= to).collect();
        // The first measurement must be from the first quarter of the period.
        let first = points.first()?;
        if first.at.since(from).0 > to.since(from).0 / 4 {
            return None;
        }
        for point in points {
            for gpu in share.gpus.iter() {
                sum += f64::from(*point.gpu_busy.get(gpu as usize)?);
                count += 1;
            }
        }
    }
    (count > 0).then(|| sum / f64::from(count))
}

/// Returns the utilization of each GPU of the last attempt, and their mean.
pub(crate) async fn show(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobId>,
) -> Result<Json<GpuUtilization>, Problem> {
    let found = api.with_job(&user, id, |state, job| {
        let names: Vec<String> = job
            .attempt()
            .map(|a| {
                state
                    .node_slots(&a.allocation)
                    .into_iter()
                    .map(|s| s.node)
                    .collect()
            })
            .unwrap_or_default();
        Ok((job.attempt().cloned(), names))
    });
    let (attempt, names) = found.await?;
    let Some(attempt) = attempt else {
        return Ok(Json(GpuUtilization {
            note: "the job has not held any GPUs yet".to_owned(),
            ..GpuUtilization::default()
        }));
    };
    let until = attempt.until.unwrap_or(Time(i64::MAX));
    let mut all: Vec<GpuSeries> = Vec::new();
    for (share, node) in attempt.allocation.shares.iter().zip(&names) {
        let mut points = api.runtime.loads(share.node, attempt.since);
        points.retain(|p| p.at > attempt.since && p.at <= until && !p.gpu_busy.is_empty());
        for gpu in share.gpus.iter() {
            let point = |p: &LoadPoint| {
                Some(GpuPoint {
                    at: p.at,
                    busy: f64::from(*p.gpu_busy.get(gpu as usize)?),
                    memory_mib: p.gpu_memory_mib.get(gpu as usize).map(|m| u64::from(*m)),
                })
            };
            all.push(GpuSeries {
                node: node.clone(),
                gpu,
                points: points.iter().filter_map(point).collect(),
            });
        }
    }
    let known = all.iter().any(|series| !series.points.is_empty());
    let note = match known {
        true => String::new(),
        false => "no GPU utilization data: not available for virtual GPUs; otherwise kept for some hours, until the \
                  scheduler restarts"
            .to_owned(),
    };
    let mean = mean(&all);
    all.truncate(if all.len() > MAX_SERIES { 0 } else { MAX_SERIES });
    Ok(Json(GpuUtilization {
        known,
        note,
        mean,
        gpus: if known { all } else { Vec::new() },
    }))
}

/// Returns the mean over all GPUs, in steps of 30 seconds.
fn mean(all: &[GpuSeries]) -> Vec<GpuPoint> {
    const STEP: i64 = 30_000_000;
    let mut sums: std::collections::BTreeMap<i64, (f64, u64, u64, u64)> = std::collections::BTreeMap::new();
    for point in all.iter().flat_map(|series| &series.points) {
        let sum = sums.entry(point.at.0.div_euclid(STEP)).or_default();
        sum.0 += point.busy;
        sum.1 += 1;
        if let Some(memory) = point.memory_mib {
            sum.2 += memory;
            sum.3 += 1;
        }
    }
    let point = |(at, (busy, n, memory, m)): (i64, (f64, u64, u64, u64))| GpuPoint {
        at: Time((at + 1) * STEP),
        busy: busy / n.max(1) as f64,
        memory_mib: memory.checked_div(m),
    };
    sums.into_iter().map(point).collect()
}
