//! Churns recorded with HiveD.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use dovetail_cells::{Cells, GroupId, LeafType, Outcome, PlacementOptions, Request};
use flate2::read::GzDecoder;
use serde::Deserialize;

use super::CellMeasurement;
use super::topology::Topology;
use crate::BenchError;
use crate::data::shared_file;
use crate::measurement::thread_cpu_seconds;

/// Replays of a churn; the best counts, because other processes may use the machine.
const PASSES: u32 = 5;

/// A step of a recorded churn.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Step {
    op: String,
    group: String,
    vc: String,
    priority: i16,
    pods: u32,
    /// GPUs per pod.
    gpus: u32,
}

/// Replays a recorded churn, and measures CPU time per pod. Returns `None` if there is no recording.
pub(super) fn measure(
    name: &str,
    topology: Topology,
    hived_us: f64,
) -> Result<Option<CellMeasurement>, BenchError> {
    let Some(path) = shared_file(&format!("hived/bench/churn-{name}.jsonl.gz")) else {
        return Ok(None);
    };
    let steps = read_steps(&path)?;
    let created = steps.iter().filter(|step| step.op != "delete");
    let pods: u64 = created.map(|step| u64::from(step.pods)).sum();
    let layout = topology.layout();
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        let mut cells = Cells::new(layout.clone());
        let start = thread_cpu_seconds();
        replay(&mut cells, &steps);
        best = best.min(thread_cpu_seconds() - start);
    }
    let ours_us = best * 1e6 / pods.max(1) as f64;
    Ok(Some(CellMeasurement {
        name: "recorded churn, per pod".to_owned(),
        topology: topology.to_string(),
        ours_us,
        hived_us: Some(hived_us),
        ratio: Some(hived_us / ours_us),
        goal_us: None,
    }))
}

fn read_steps(path: &Path) -> Result<Vec<Step>, BenchError> {
    let recording = |source| BenchError::Recording {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(recording)?;
    let mut text = String::new();
    GzDecoder::new(file)
        .read_to_string(&mut text)
        .map_err(recording)?;
    text.lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|source| BenchError::InvalidRecording {
            path: path.to_owned(),
            source,
        })
}

fn replay(cells: &mut Cells, steps: &[Step]) {
    let mut running: BTreeMap<&str, GroupId> = BTreeMap::new();
    for (key, step) in steps.iter().enumerate() {
        if step.op == "delete" {
            if let Some(id) = running.remove(step.group.as_str()) {
                cells.release(id);
            }
            continue;
        }
        let vc = cells.layout().vc_named(&step.vc).unwrap_or_default();
        let request = Request::gang(key as u64, vc, step.priority, LeafType(0), step.pods, step.gpus);
        if let Ok(placement) = cells.try_place(&request, &PlacementOptions::default())
            && *placement.outcome() == Outcome::Placed
        {
            running.insert(&step.group, placement.commit());
        }
    }
}
