//! The curve of a model over CPU and memory, in the terminal and as a figure.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_model::{Rate, Share};
use dovetail_profiler::{cpus_text, curve_figure, curve_json, gb_text};
use dovetail_workload::{SensitivityProfile, SensitivityTable};

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
        dovetail_report::files::write_file(path, curve_figure(row, table).svg().as_bytes()).or_work()?;
    }
    if args.json {
        return console::print(serde_json::to_string_pretty(&curve_json(row, table)).or_work()?);
    }
    console::print(title(row, table))?;
    console::print("")?;
    console::print(bars(row, table, console::width()))?;
    let points = row.sensitivity.points();
    let mut header = vec!["CPUs ╲ GB".to_owned()];
    header.extend(points.memory_mib.iter().map(|m| gb_text(*m)));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut grid = console::table(&header);
    for (cpu, rates) in points
        .cpu_milli
        .iter()
        .zip(points.rates.chunks(points.memory_mib.len()))
    {
        let cells = rates.iter().map(|r| format!("{:.2}", r.factor()));
        grid.add_row(std::iter::once(cpus_text(*cpu)).chain(cells).collect::<Vec<_>>());
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
            cpus_text(*cpu),
            "█".repeat(solid),
            "░".repeat(all.saturating_sub(solid)),
            with_most.factor()
        ));
    }
    text.push_str(&format!(
        "           █ with {} GB per GPU",
        gb_text(table.share.memory_mib)
    ));
    if most > table.share.memory_mib {
        text.push_str(&format!(", ░ with {} GB", gb_text(most)));
    }
    text.push('\n');
    text
}

fn share(share: Share) -> String {
    format!(
        "{} CPUs and {} GB per GPU",
        cpus_text(share.cpu_milli),
        gb_text(share.memory_mib)
    )
}
