//! How busy the GPUs of a job are, as far as their nodes tell.

use axum::Json;
use axum::extract::{Path, State};
use dovetail_control::{JobNo, LoadPoint};
use dovetail_model::{Allocation, Time};

use crate::people::User;
use crate::views::{GpuPoint, GpuSeries, GpuUse};
use crate::{Api, Nodes, Problem, jobs};

/// GPUs that are shown one by one; of wider jobs only the mean.
const MOST_SERIES: usize = 64;

/// The mean of all GPUs of a job over a span, in percent; none unless every node told of most of it.
pub(crate) fn mean_busy(nodes: &dyn Nodes, allocation: &Allocation, from: Time, to: Time) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for share in &allocation.shares {
        let points = nodes.loads(share.node, from);
        let points: Vec<&LoadPoint> = points.iter().filter(|p| p.at > from && p.at <= to).collect();
        // The first of them must be from about the beginning: else it is too early to say anything.
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

/// Every GPU of the last launch, and their mean.
pub(crate) async fn show(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobNo>,
) -> Result<Json<GpuUse>, Problem> {
    let (launch, names) = api.handle.read(|book| {
        let job = jobs::find(book, &user, id)?;
        let names: Vec<String> = job
            .attempt()
            .map(|a| book.seats(&a.allocation).into_iter().map(|s| s.node).collect())
            .unwrap_or_default();
        Ok::<_, Problem>((job.attempt().cloned(), names))
    })?;
    let Some(launch) = launch else {
        return Ok(Json(GpuUse {
            note: "it has not had any GPUs yet".to_owned(),
            ..GpuUse::default()
        }));
    };
    let until = launch.until.unwrap_or(Time(i64::MAX));
    let mut all: Vec<GpuSeries> = Vec::new();
    for (share, node) in launch.allocation.shares.iter().zip(&names) {
        let mut points = api.nodes.loads(share.node, launch.since);
        points.retain(|p| p.at > launch.since && p.at <= until && !p.gpu_busy.is_empty());
        for gpu in share.gpus.iter() {
            let one = |p: &LoadPoint| {
                Some(GpuPoint {
                    at: p.at,
                    busy: f64::from(*p.gpu_busy.get(gpu as usize)?),
                    memory_mib: p.gpu_memory_mib.get(gpu as usize).map(|m| u64::from(*m)),
                })
            };
            all.push(GpuSeries {
                node: node.clone(),
                gpu,
                points: points.iter().filter_map(one).collect(),
            });
        }
    }
    let known = all.iter().any(|series| !series.points.is_empty());
    let note = match known {
        true => String::new(),
        false => "its nodes have not told how busy these GPUs are: virtual GPUs never do, others are kept for some \
                  hours and not over a restart of the scheduler"
            .to_owned(),
    };
    let mean = mean(&all);
    all.truncate(if all.len() > MOST_SERIES { 0 } else { MOST_SERIES });
    Ok(Json(GpuUse {
        known,
        note,
        mean,
        gpus: if known { all } else { Vec::new() },
    }))
}

/// The mean of all, at each moment that any of them tells of; moments are cut to half a minute.
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
