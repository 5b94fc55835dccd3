//! `dovetail submit --trace`: the jobs of a trace as jobs of a live cluster.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dovetail_client::{Client, block_on};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_jobfile::JobFile;
use dovetail_model::Time;
use dovetail_model::suggest::nearest;
use dovetail_report::format::{count, counted, grouped};
use dovetail_web::views::{Submission, SubmitResponse};
use dovetail_workload::stages::StageColumns;
use dovetail_workload::{TraceJob, Workload, read};
use serde_json::{Map, Value, json};

use crate::live::args::{Output, SubmitArgs, TraceJobArgs};
use crate::live::show::Listing;
use crate::live::submit::{exit_code, wait_for_end};

/// Most jobs of a trace that one command submits.
const MAX_JOBS: usize = 10_000;
/// Label with the name of the trace, by which its jobs can be selected.
const LABEL: &str = "trace";
/// Label with the id of the job in the trace.
const JOB_LABEL: &str = "trace-job";
/// Longest value of a label.
const MAX_LABEL: usize = 63;

/// A job of the trace as it is submitted.
struct Planned {
    /// Its id in the trace.
    label: String,
    /// When it is submitted, after the first job.
    at: Time,
    file: JobFile,
}

/// Runs `dovetail submit --trace`.
///
/// # Errors
/// If the trace or a placeholder is invalid, a job is rejected, or the scheduler is unreachable.
pub fn run(args: &SubmitArgs) -> Result<ExitCode, Failure> {
    let trace = &args.trace;
    let format = trace
        .trace_format
        .as_deref()
        .map(str::parse)
        .transpose()
        .or_request()?;
    let path = trace.trace.clone().unwrap_or_default();
    let mut workload = read(&path, format).or_request()?;
    if let Some(jobs) = trace.jobs {
        workload.truncate(jobs as usize);
    }
    let planned = plan(trace, &workload, &name_of(&path))?;
    for note in workload.notes.iter().chain(&left_out(&workload)) {
        eprintln!("note: {note}");
    }
    if args.dry_run {
        return preview(args, &planned);
    }
    let client = Client::open(args.client.config.as_deref())?;
    block_on(submit(args, &client, &planned))
}

/// Returns the name of a trace for labels: that of the file, with other characters than labels may have replaced.
fn name_of(path: &std::path::Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = name.chars().map(|c| if is_valid(c) { c } else { '-' }).collect();
    name.chars().take(MAX_LABEL).collect()
}

/// Converts all jobs, so that nothing is submitted if one of them is invalid.
fn plan(args: &TraceJobArgs, workload: &Workload, name: &str) -> Result<Vec<Planned>, Failure> {
    if workload.jobs.len() > MAX_JOBS {
        return Err(Failure::request(format!(
            "{}: {} jobs exceed the limit of {}: submit the first ones with --jobs N",
            workload.source,
            count(workload.jobs.len() as u64),
            count(MAX_JOBS as u64)
        )));
    }
    if !(args.scale > 0.0 && args.scale <= 1000.0) {
        return Err(Failure::request(format!(
            "--scale: found {}, expected a number above 0 and at most 1000",
            args.scale
        )));
    }
    let workdir = match &args.workdir {
        Some(folder) => std::path::absolute(folder).or_request()?,
        None => std::env::current_dir().or_request()?,
    };
    let first = workload.jobs.first().map_or(Time::ZERO, |job| job.submit);
    let stages = StageColumns::find(workload);
    let jobs = workload.jobs.iter().map(|job| {
        let label = job.label.to_string();
        let failed = |reason: String| Failure::request(format!("{}: job {label}: {reason}", workload.source));
        let values = values(args, workload, job);
        let command = args.command.iter().map(|word| fill(word, &values));
        let command: Vec<String> = command.collect::<Result<_, _>>().map_err(&failed)?;
        let mut keys = keys(args, workload, job, stages.as_ref());
        keys.insert("command".to_owned(), json!(command));
        keys.insert("workdir".to_owned(), json!(workdir));
        let trace_job: String = label.chars().take(MAX_LABEL).collect();
        keys.insert("labels".to_owned(), json!({ LABEL: name, JOB_LABEL: trace_job }));
        let at = match args.now {
            true => Time::ZERO,
            false => scaled(args, job.submit.since(first)),
        };
        let file = JobFile::from_keys(keys).map_err(|error| failed(error.to_string()))?;
        Ok(Planned { label, at, file })
    });
    jobs.collect()
}

fn scaled(args: &TraceJobArgs, time: Time) -> Time {
    Time::from_secs_f64(time.as_secs_f64() * args.scale)
}

/// Returns the keys of the job file that the trace determines.
fn keys(
    args: &TraceJobArgs,
    workload: &Workload,
    job: &TraceJob,
    stages: Option<&StageColumns>,
) -> Map<String, Value> {
    let mut keys = Map::new();
    let mut set = |key: &str, value: Value| {
        keys.insert(key.to_owned(), value);
    };
    let most = |gpus: u32| args.max_gpus.map_or(gpus, |max| gpus.min(max));
    let model = job.model.map(|model| workload.names.models[model].clone());
    let kind = model.clone().unwrap_or_else(|| "trace".to_owned());
    set("name", json!(format!("{kind}-{}", job.label)));
    set("gpus", json!(most(job.gpus)));
    if job.min_gpus != job.gpus || job.max_gpus != job.gpus {
        set("min_gpus", json!(most(job.min_gpus)));
        set("max_gpus", json!(most(job.max_gpus)));
    }
    set("priority", json!(job.priority));
    let run_s = job.work.as_secs_f64() * args.scale;
    set("expected", json!(format!("{run_s:.6}s")));
    if let Some(model) = model.filter(|model| !model.is_empty()) {
        set("model", json!(model));
    }
    if let Some(iterations) = iterations(args, job) {
        set("total_steps", json!(iterations));
    }
    if let Some(stages) = stages.and_then(|stages| stages.stages(job)) {
        let ms = |us: u64| format!("{:.3}ms", us as f64 / 1000.0);
        let [data, gpu, net] = match (stages.four, stages.times_us.map(u64::from)) {
            (false, [data, gpu, net, _]) => [data, gpu, net],
            (true, [storage, cpu, gpu, net]) => [storage + cpu, gpu, net],
        };
        if data + gpu + net > 0 {
            set(
                "stages",
                json!({ "data": ms(data), "gpu": ms(gpu), "net": ms(net) }),
            );
        }
    }
    if job.cpu_milli_per_gpu > 0 {
        set("cpus_per_gpu", json!(f64::from(job.cpu_milli_per_gpu) / 1000.0));
    }
    if job.memory_mib_per_gpu > 0 {
        set("memory_mib_per_gpu", json!(job.memory_mib_per_gpu));
    }
    if let Some(deadline) = job.deadline {
        let after = scaled(args, deadline.since(job.submit));
        set("deadline", json!({ "after_s": after.as_secs_f64() }));
    }
    if let Some(vc) = &args.vc {
        set("vc", json!(vc));
    }
    keys
}

/// Returns the scaled number of iterations of a job, at least 1.
fn iterations(args: &TraceJobArgs, job: &TraceJob) -> Option<u64> {
    let scaled = |n: u64| ((n as f64 * args.scale).round() as u64).max(1);
    job.iterations.map(scaled)
}

/// Returns the values of the placeholders: `None` where the job has none.
fn values(args: &TraceJobArgs, workload: &Workload, job: &TraceJob) -> BTreeMap<String, Option<String>> {
    let names = &workload.names;
    let mut values: BTreeMap<String, Option<String>> = workload
        .extra_columns
        .iter()
        .enumerate()
        .map(|(i, column)| (column.clone(), job.extra_text(i).map(str::to_owned)))
        .collect();
    values.entry("batch_size".to_owned()).or_default();
    let gpus = args.max_gpus.map_or(job.gpus, |max| job.gpus.min(max));
    for (name, value) in [
        ("job", Some(job.label.to_string())),
        ("model", job.model.map(|model| names.models[model].clone())),
        ("iterations", iterations(args, job).map(|n| n.to_string())),
        ("gpus", Some(gpus.to_string())),
        (
            "duration_s",
            Some(format!("{:.3}", job.work.as_secs_f64() * args.scale)),
        ),
        ("user", Some(names.users[job.user].clone())),
        ("tenant", Some(names.tenants[job.tenant].clone())),
    ] {
        values.insert(name.to_owned(), value.filter(|text| !text.is_empty()));
    }
    values
}

/// Replaces `{name}` in a word of the command; `{{` and `}}` are braces.
fn fill(word: &str, values: &BTreeMap<String, Option<String>>) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = word;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            text.push_str(brace);
            rest = after;
            continue;
        }
        let end = rest.find('}').filter(|_| brace == "{");
        let Some(end) = end else {
            return Err(format!(
                "command: single `{brace}` in {word:?}: expected a placeholder such as {{model}}, or `{brace}{brace}` for a brace"
            ));
        };
        let name = &rest[..end];
        match values.get(name) {
            Some(Some(value)) => text.push_str(value),
            Some(None) => {
                return Err(format!(
                    "command: placeholder {{{name}}}: the trace has no value for this job"
                ));
            }
            None => return Err(unknown(name, values)),
        }
        rest = &rest[end + 1..];
    }
    Ok(text + rest)
}

fn unknown(name: &str, values: &BTreeMap<String, Option<String>>) -> String {
    let near = nearest(name, values.keys().map(String::as_str));
    let hint = match near.is_empty() {
        true => String::new(),
        false => format!(", did you mean {}?", near.join(" or ")),
    };
    let known: Vec<&str> = values.keys().map(String::as_str).collect();
    format!(
        "command: unknown placeholder {{{name}}}{hint}; expected one of {}, or {{{{ for a brace",
        known.join(", ")
    )
}

/// Returns notes about what the trace states and jobs of a live cluster do not get.
fn left_out(workload: &Workload) -> Vec<String> {
    let jobs = &workload.jobs;
    let fractions = jobs.iter().filter(|job| job.gpu_milli < 1000).count();
    let types = jobs.iter().filter(|job| job.gpu_type.is_some()).count();
    let mut notes = Vec::new();
    if fractions > 0 {
        notes.push(format!(
            "{} get whole GPUs instead of fractions",
            counted(fractions as u64, "job")
        ));
    }
    if types > 0 {
        notes.push(format!(
            "the GPU types of {} are not requested",
            counted(types as u64, "job")
        ));
    }
    notes
}

/// Prints what would be submitted.
fn preview(args: &SubmitArgs, planned: &[Planned]) -> Result<ExitCode, Failure> {
    let value: Vec<Value> = planned
        .iter()
        .map(
            |job| json!({ "trace_job": job.label, "submit_s": job.at.as_secs_f64(), "job": job.file.keys() }),
        )
        .collect();
    let row = |job: &Planned| {
        let request = &job.file.job;
        vec![
            job.label.clone(),
            grouped(job.at.as_secs_f64(), 1),
            request.gpus.to_string(),
            request.model.clone().unwrap_or_default(),
            request.total_steps.map(|n| n.to_string()).unwrap_or_default(),
            request
                .expected
                .map(|time| grouped(time.as_secs_f64(), 1))
                .unwrap_or_default(),
            request.command.join(" "),
        ]
    };
    let headings = &[
        "Trace job",
        "At, s",
        "GPUs",
        "Model",
        "Steps",
        "Expected, s",
        "Command",
    ];
    let listing = Listing {
        headings,
        narrow: headings.len(),
        rows: planned.iter().map(row).collect(),
        value: &value,
        none: "The trace has no jobs.",
    };
    console::print(listing.text(args.output.form())?)?;
    if matches!(args.output.form(), Output::Table | Output::Wide) {
        console::print("Dry run: nothing was submitted.")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Submits the jobs at their times.
async fn submit(args: &SubmitArgs, client: &Client, planned: &[Planned]) -> Result<ExitCode, Failure> {
    let form = args.output.form();
    let begun = Instant::now();
    let mut ids = Vec::new();
    for job in planned {
        let due = begun + Duration::from_micros(job.at.0.max(0).unsigned_abs());
        tokio::time::sleep_until(due.into()).await;
        let submission = Submission::new(job.file.clone(), false);
        let submitted: Result<SubmitResponse, _> = client.post("/api/v1/jobs", &submission).await;
        let submitted = submitted.map_err(|error| {
            let so_far = match ids.len() {
                0 => "nothing was submitted".to_owned(),
                n => format!(
                    "{} submitted before; stop them with `dovetail job stop --label {LABEL}={}`",
                    counted(n as u64, "job"),
                    job.file.job.labels.get(LABEL).map_or("", String::as_str)
                ),
            };
            Failure::request(format!("job {} of the trace: {error}; {so_far}", job.label))
        })?;
        let id = submitted.id.unwrap_or_default();
        if !matches!(form, Output::Json | Output::Yaml) {
            console::print(id)?;
        }
        ids.push(id);
    }
    let pairs = planned.iter().zip(&ids);
    let value: Vec<Value> = pairs
        .map(|(job, id)| json!({ "id": id, "trace_job": job.label, "submit_s": job.at.as_secs_f64() }))
        .collect();
    match form {
        Output::Json => console::print(serde_json::to_string_pretty(&value).or_work()?)?,
        Output::Yaml => console::print(serde_saphyr::to_string(&value).or_work()?)?,
        Output::Table | Output::Wide | Output::Csv => {}
    }
    let mut worst = 0;
    for id in ids.into_iter().filter(|_| args.wait) {
        let code = wait_for_end(client, id).await?.exit_code.unwrap_or(1);
        worst = if worst == 0 { code } else { worst };
    }
    Ok(exit_code(worst))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled() {
        let values: BTreeMap<String, Option<String>> = [
            ("model".to_owned(), Some("bert".to_owned())),
            ("iterations".to_owned(), None),
        ]
        .into();
        let filled = |word: &str| fill(word, &values);
        assert_eq!(filled("--model={model}").unwrap(), "--model=bert");
        assert_eq!(filled("${{HOME}}/{model}}}").unwrap(), "${HOME}/bert}");
        assert_eq!(filled("plain").unwrap(), "plain");
        assert!(filled("{iterations}").unwrap_err().contains("no value"));
        let unknown = filled("{modle}").unwrap_err();
        assert!(unknown.contains("did you mean model?"), "{unknown}");
        assert!(filled("a}b").unwrap_err().contains("single `}`"));
        assert!(filled("{model").unwrap_err().contains("single `{`"));
    }

    #[test]
    fn names_of_traces_are_labels() {
        assert_eq!(
            name_of(std::path::Path::new("/a/my trace.csv.gz")),
            "my-trace.csv.gz"
        );
        assert_eq!(name_of(std::path::Path::new(&"x".repeat(100))).len(), MAX_LABEL);
    }
}
