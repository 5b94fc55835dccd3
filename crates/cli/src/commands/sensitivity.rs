//! The curve of a model over CPU and memory, in the terminal and as a figure.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_model::{Rate, Share};
use dovetail_report::figures::{Series, lines};
use dovetail_workload::{SensitivityProfile, SensitivityTable};
use serde_json::{Value, json};

use crate::args::ProfileShowArgs;

/// Draws the curve of one model from the table.
///
/// # Errors
/// If there is not exactly one model, or the table lacks it.
pub fn show_curve(args: &ProfileShowArgs, table: &SensitivityTable) -> Result<(), Failure> {
    let [model] = &args.models[..] else {
        return Err(Failure::request(format!(
            "found {} models, expected one: a curve over CPU and memory belongs to one model",
            args.models.len()
        )));
    };
    let row = table.find(model, args.gpus, None).ok_or_else(|| {
        Failure::request(format!(
            "no curve of model `{model}` in {}; it has {}",
            table.name,
            table.models().join(", ")
        ))
    })?;
    if let Some(path) = &args.svg {
        dovetail_report::files::write_file(path, figure(row, table).svg().as_bytes()).or_work()?;
    }
    if args.json {
        return console::print(serde_json::to_string_pretty(&curve_json(row, table)).or_work()?);
    }
    console::print(title(row, table))?;
    console::print("")?;
    console::print(bars(row, table, console::width()))?;
    let points = row.sensitivity.points();
    let mut header = vec!["CPUs ╲ GB".to_owned()];
    header.extend(points.memory_mib.iter().map(|m| gb(*m)));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut grid = console::table(&header);
    for (cpu, rates) in points
        .cpu_milli
        .iter()
        .zip(points.rates.chunks(points.memory_mib.len()))
    {
        let cells = rates.iter().map(|r| format!("{:.2}", r.factor()));
        grid.add_row(std::iter::once(cpus(*cpu)).chain(cells).collect::<Vec<_>>());
    }
    console::align_numbers(&mut grid);
    console::print(grid)?;
    let line = |name: &str, text: String| console::print(format!("{name:<12}{text}"));
    if let Some(seconds) = row.iteration_s {
        line("iteration", format!("{:.1} ms at speed 1", seconds * 1000.0))?;
    }
    let floor = row.sensitivity.trimmed(table.share);
    line(
        "floor",
        format!("{}: as fast as with the proportional share", share(floor)),
    )?;
    line(
        "ideal",
        format!(
            "{}: {:.2} times as fast",
            share(row.sensitivity.ideal()),
            row.sensitivity.top().factor()
        ),
    )?;
    match &args.svg {
        Some(path) => console::print(format!("figure: {}", path.display())),
        None => Ok(()),
    }
}

fn title(row: &SensitivityProfile, table: &SensitivityTable) -> String {
    format!(
        "{} on {} GPU{}, {}: speed over CPUs per GPU; 1 is the speed with {}",
        row.model,
        row.gpus,
        if row.gpus == 1 { "" } else { "s" },
        table.name,
        share(table.share)
    )
}

/// Draws a bar for each amount of CPU with all the memory the job can use, and with the proportional memory.
fn bars(row: &SensitivityProfile, table: &SensitivityTable, width: usize) -> String {
    let curve = &row.sensitivity;
    let room = width.clamp(40, 120) - 24;
    let cells = |rate: Rate| {
        let top = f64::from(curve.top().0.max(1));
        (f64::from(rate.0) / top * room as f64).round() as usize
    };
    let most = curve.ideal().memory_mib.max(table.share.memory_mib);
    let mut text = String::new();
    for cpu in &curve.points().cpu_milli {
        let with_share = curve.rate(Share::new(*cpu, table.share.memory_mib));
        let with_most = curve.rate(Share::new(*cpu, most));
        let (solid, all) = (cells(with_share), cells(with_most));
        let mark = match *cpu {
            c if c == curve.ideal().cpu_milli => " ideal",
            c if c == table.share.cpu_milli => " share",
            _ => "",
        };
        text.push_str(&format!(
            "{:>5} CPU  {}{} {:.2}{mark}\n",
            cpus(*cpu),
            "█".repeat(solid),
            "░".repeat(all.saturating_sub(solid)),
            with_most.factor()
        ));
    }
    text.push_str(&format!(
        "           █ with {} GB per GPU",
        gb(table.share.memory_mib)
    ));
    if most > table.share.memory_mib {
        text.push_str(&format!(", ░ with {} GB", gb(most)));
    }
    text.push('\n');
    text
}

fn figure(row: &SensitivityProfile, table: &SensitivityTable) -> dovetail_report::Figure {
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
            Series::new(format!("{} GB", gb(*memory)), at)
        })
        .collect();
    lines(
        &format!("{} on {} GPU(s), {}", row.model, row.gpus, table.name),
        "CPUs per GPU",
        "speed, 1 with the proportional share",
        &series,
    )
}

fn curve_json(row: &SensitivityProfile, table: &SensitivityTable) -> Value {
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

fn share(share: Share) -> String {
    format!(
        "{} CPUs and {} GB per GPU",
        cpus(share.cpu_milli),
        gb(share.memory_mib)
    )
}

fn cpus(milli: u32) -> String {
    trim(format!("{:.2}", f64::from(milli) / 1000.0))
}

fn gb(mib: u64) -> String {
    trim(format!("{:.2}", mib as f64 / 1024.0))
}

fn trim(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
