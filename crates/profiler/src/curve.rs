//! The curve of a model over CPU and memory, from a sensitivity table: as a figure and as JSON.

use dovetail_model::Share;
use dovetail_report::Figure;
use dovetail_report::figures::{Series, lines};
use dovetail_workload::{SensitivityProfile, SensitivityTable};
use serde_json::{Value, json};

/// Draws the speed of a model over CPUs per GPU, one line for each amount of memory.
pub fn curve_figure(row: &SensitivityProfile, table: &SensitivityTable) -> Figure {
    let points = row.sensitivity.points();
    let series: Vec<Series> = points
        .memory_mib
        .iter()
        .enumerate()
        .map(|(column, memory)| {
            let at = points.cpu_milli.iter().enumerate().map(|(i, cpu)| {
                let rate = points.rates[i * points.memory_mib.len() + column];
                (f64::from(*cpu) / 1000.0, rate.factor())
            });
            Series::new(format!("{} GB", gb_text(*memory)), at)
        })
        .collect();
    lines(
        &format!("{} on {} GPU(s), {}", row.model, row.gpus, table.name),
        "CPUs per GPU",
        "speed, 1 with the proportional share",
        &series,
    )
}

/// Returns the curve of a model as JSON.
pub fn curve_json(row: &SensitivityProfile, table: &SensitivityTable) -> Value {
    let points = row.sensitivity.points();
    let of = |s: Share| json!({ "cpu": f64::from(s.cpu_milli) / 1000.0, "memory_gb": s.memory_mib as f64 / 1024.0 });
    let speeds: Vec<Vec<f64>> = points
        .rates
        .chunks(points.memory_mib.len())
        .map(|rates| rates.iter().map(|r| r.factor()).collect())
        .collect();
    json!({
        "model": row.model, "gpus": row.gpus, "gpu_type": row.gpu_type, "table": table.name,
        "iteration_s": row.iteration_s, "share": of(table.share),
        "floor": of(row.sensitivity.trimmed(table.share)), "ideal": of(row.sensitivity.ideal()),
        "top_speed": row.sensitivity.top().factor(),
        "cpu": points.cpu_milli.iter().map(|c| f64::from(*c) / 1000.0).collect::<Vec<_>>(),
        "memory_gb": points.memory_mib.iter().map(|m| *m as f64 / 1024.0).collect::<Vec<_>>(),
        "speed": speeds,
    })
}

/// Returns an amount of CPU as text, in CPUs.
pub fn cpus_text(milli: u32) -> String {
    without_zeros(format!("{:.2}", f64::from(milli) / 1000.0))
}

/// Returns an amount of memory as text, in GB.
pub fn gb_text(mib: u64) -> String {
    without_zeros(format!("{:.2}", mib as f64 / 1024.0))
}

fn without_zeros(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
