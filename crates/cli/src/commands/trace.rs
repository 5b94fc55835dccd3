//! `dovetail trace info|convert|generate`.

use std::io::Write;
use std::path::Path;

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_report::format::{count, span};
use dovetail_workload::generate::{GenerateSpec, generate};
use dovetail_workload::stats::WorkloadStats;
use dovetail_workload::{Format, Workload, read, write};

use crate::args::{GenerateArgs, TraceArgs, TraceCommand};
use crate::setup;

/// Runs `dovetail trace info|convert|generate`.
///
/// # Errors
/// If a trace is not readable or writable.
pub fn run(args: TraceArgs) -> Result<(), Failure> {
    match args.command {
        TraceCommand::Info {
            file,
            trace_format,
            json,
        } => {
            let workload = read(&file, setup::format(trace_format.as_deref())?).or_request()?;
            info(&workload, json)
        }
        TraceCommand::Convert {
            input,
            output,
            from,
            to,
        } => {
            let workload = read(&input, setup::format(from.as_deref())?).or_request()?;
            workload.notes.iter().for_each(|note| eprintln!("note: {note}"));
            save(&workload, &output, to.as_deref())
        }
        TraceCommand::Generate(args) => make(&args),
        TraceCommand::FromJournal(args) => super::from_journal::run(&args),
    }
}

fn make(args: &GenerateArgs) -> Result<(), Failure> {
    let mut spec = GenerateSpec::preset(&args.generator).or_request()?;
    spec.jobs = args.jobs;
    spec.seed = args.seed;
    spec.jobs_per_hour = args.jobs_per_hour;
    spec.load = args.load;
    spec.cluster_gpus = args.cluster_gpus;
    if let Some(text) = &args.arrivals {
        spec.arrivals = text.parse().or_request()?;
    }
    if let Some(text) = &args.durations {
        spec.durations = text.parse().or_request()?;
    }
    if let Some(text) = &args.gpus {
        spec.gpus = text.parse().or_request()?;
    }
    save(&generate(&spec).or_request()?, &args.out, args.to.as_deref())
}

/// Writes a workload in the given format, or else in that of the file name.
fn save(workload: &Workload, path: &Path, to: Option<&str>) -> Result<(), Failure> {
    let name = path.to_string_lossy();
    let bare = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let format = match setup::format(to)? {
        Some(format) => format,
        None if bare.ends_with(".jsonl") => Format::NativeJsonl,
        None => Format::Native,
    };
    if let Some(why) = dovetail_workload::write::cannot_write(format) {
        return Err(Failure::request(format!(
            "writing format {} is not supported: {why}",
            format.name()
        )));
    }
    if name == "-" {
        let lost = write(workload, format, std::io::stdout().lock()).or_work()?;
        lost.iter().for_each(|what| eprintln!("lost: {what}"));
        return Ok(());
    }
    let lost = save_as(workload, path, format)?;
    lost.iter().for_each(|what| eprintln!("lost: {what}"));
    console::print(format!(
        "{}: {} jobs, {}",
        path.display(),
        count(workload.jobs.len() as u64),
        format.name()
    ))
}

/// Writes a workload into a file, compressed if its name says so, and returns what the format cannot express.
///
/// # Errors
/// If the file is not writable.
pub(super) fn save_as(workload: &Workload, path: &Path, format: Format) -> Result<Vec<String>, Failure> {
    let mut bytes = Vec::new();
    let lost = write(workload, format, &mut bytes).or_work()?;
    let bytes = compress(bytes, &path.to_string_lossy()).or_work()?;
    dovetail_report::files::write_file(path, &bytes).or_work()?;
    Ok(lost)
}

fn compress(bytes: Vec<u8>, name: &str) -> std::io::Result<Vec<u8>> {
    if name.ends_with(".gz") {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&bytes)?;
        return encoder.finish();
    }
    if name.ends_with(".zst") {
        return zstd::encode_all(bytes.as_slice(), 3);
    }
    Ok(bytes)
}

fn info(workload: &Workload, json: bool) -> Result<(), Failure> {
    let stats = WorkloadStats::of(workload);
    if json {
        return console::print(serde_json::to_string_pretty(&stats).or_work()?);
    }
    console::print(overview(workload, &stats))?;
    let mut widths = console::table(&["GPUs", "jobs", "share", "share of GPU time"]);
    for width in &stats.by_gpus {
        widths.add_row([
            width.gpus.to_string(),
            count(width.jobs as u64),
            format!("{:.1} %", width.share * 100.0),
            format!("{:.1} %", width.gpu_time_share * 100.0),
        ]);
    }
    console::align_numbers(&mut widths);
    console::print(widths)?;
    console::print(format!(
        "arrivals by hour of day: {}",
        sparkline(&stats.arrivals_by_hour)
    ))?;
    workload
        .notes
        .iter()
        .try_for_each(|note| console::print(format!("note: {note}")))
}

fn overview(workload: &Workload, stats: &WorkloadStats) -> comfy_table::Table {
    let mut table = console::table(&["trace", &workload.source]);
    let q = &stats.duration_s;
    let rows = [
        ("jobs", count(stats.jobs as u64)),
        ("span", span(stats.span_s)),
        ("arrivals", format!("{:.2} per hour", stats.jobs_per_hour)),
        ("GPU-hours", count(stats.gpu_hours as u64)),
        ("mean demand", format!("{:.1} GPUs", stats.mean_demand_gpus)),
        ("widest job", format!("{} GPUs", stats.max_gpus)),
        ("run time, mean", span(q.mean)),
        (
            "run time, p10 p50 p90 p99",
            [q.p10, q.p50, q.p90, q.p99].map(span).join(", "),
        ),
        (
            "tenants, users, models",
            format!("{}, {}, {}", stats.tenants, stats.users, stats.models),
        ),
    ];
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    table
}

fn sparkline(values: &[f64]) -> String {
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let levels = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    values
        .iter()
        .map(|v| levels[((v / most * 7.0).round() as usize).min(7)])
        .collect()
}
