//! `dovetail run` and `dovetail submit`.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use dovetail_client::{Client, ClientError, block_on};
use dovetail_cluster::JobId;
use dovetail_cluster::state::{JobExplanation, SubmissionPreview};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_jobfile::{JobFile, SCHEMA};
use dovetail_web::views::{EventView, JobView, LogLine, Submission, SubmitResponse};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::convert;
use crate::live::agent::pairs;
use crate::live::args::{JobArgs, Output, RunJobArgs, SubmitArgs};
use crate::live::job_text::explanation_text;
use crate::live::trace_jobs;

/// Creates a job from flags.
fn request(args: &JobArgs, command: &[String]) -> Result<JobFile, Failure> {
    let mut keys: Map<String, Value> = Map::new();
    let mut set = |key: &str, value: Value| {
        if !value.is_null() {
            keys.insert(key.to_owned(), value);
        }
    };
    let first = command.first().map(|c| {
        Path::new(c)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    });
    set("name", json!(args.name.clone().or(first)));
    set("command", json!(command));
    set("gpus", json!(args.gpus));
    set("min_gpus", json!(args.min_gpus));
    set("max_gpus", json!(args.max_gpus));
    set("vc", json!(args.vc));
    set("priority", json!(args.priority));
    set("gpu_type", json!(args.gpu_type));
    set("cpus_per_gpu", json!(args.cpus_per_gpu));
    set("memory_per_gpu", json!(args.memory_per_gpu));
    set("processes", json!(args.processes));
    set("time_limit", json!(args.time_limit));
    set("expected", json!(args.expected));
    set("model", json!(args.model));
    set("stages", json!(args.stages));
    set("deadline", json!(args.deadline));
    set("grace", json!(args.grace));
    set("array", json!(args.array));
    set("hold", json!(args.hold));
    set("private", json!(args.private));
    if let Some(retries) = args.retries {
        set("retries", json!({ "user": retries }));
    }
    if !args.after.is_empty() {
        set("after", json!(args.after));
    }
    let workdir = match &args.workdir {
        Some(folder) => std::path::absolute(folder).or_request()?,
        None => std::env::current_dir().or_request()?,
    };
    set("workdir", json!(workdir));
    let mut env = Map::new();
    for variable in &args.env {
        let (key, value) = match variable.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => {
                let value = std::env::var(variable).map_err(|_| {
                    Failure::request(format!(
                        "--env {variable}: not set in this shell; expected KEY=VALUE"
                    ))
                })?;
                (variable.clone(), value)
            }
        };
        env.insert(key, Value::String(value));
    }
    set("env", Value::Object(env));
    set("labels", json!(pairs(&args.labels, "--label")?));
    JobFile::from_keys(keys).or_request()
}

/// Runs `dovetail run` and returns the exit code of the job.
///
/// # Errors
/// If the job is rejected, or the scheduler is unreachable.
pub fn run(args: &RunJobArgs) -> Result<ExitCode, Failure> {
    let submission = Submission::new(request(&args.job, &args.command)?, args.dry_run);
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let submitted: SubmitResponse = client.post("/api/v1/jobs", &submission).await?;
        if let Some(preview) = &submitted.preview {
            console::print(preview_text(&submission, preview))?;
            return Ok(ExitCode::SUCCESS);
        }
        let id = submitted.id.unwrap_or_default();
        if args.detach || submitted.last.is_some() {
            match submitted.last {
                Some(last) => console::print(format!("{id}-{last}"))?,
                None => console::print(id)?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        follow(&client, id, args.quiet).await
    })
}

/// Runs `dovetail submit`.
///
/// # Errors
/// If the file is invalid, the job is rejected, or the scheduler is unreachable.
pub fn submit(args: &SubmitArgs) -> Result<ExitCode, Failure> {
    if args.schema {
        console::print(SCHEMA.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.trace.trace.is_some() {
        return trace_jobs::run(args);
    }
    let (text, name) = convert::read(&args.file.clone().unwrap_or_default())?;
    let file = JobFile::parse(&text, &name).or_request()?;
    convert::print_remarks(&file.ignored);
    let submission = Submission::new(file, args.dry_run);
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let submitted: SubmitResponse = client.post("/api/v1/jobs", &submission).await?;
        let id = submitted.id.unwrap_or_default();
        let form = args.output.form();
        match (&submitted.preview, form) {
            (Some(preview), Output::Table | Output::Wide | Output::Csv) => {
                console::print(preview_text(&submission, preview))?;
            }
            (Some(preview), Output::Json) => {
                console::print(serde_json::to_string_pretty(preview).or_work()?)?
            }
            (Some(preview), Output::Yaml) => console::print(serde_saphyr::to_string(preview).or_work()?)?,
            (None, Output::Json | Output::Yaml) => {
                let job: JobView = client.get(&format!("/api/v1/jobs/{id}")).await?;
                console::print(match form {
                    Output::Yaml => serde_saphyr::to_string(&job).or_work()?,
                    _ => serde_json::to_string_pretty(&job).or_work()?,
                })?;
            }
            (None, _) => match submitted.last {
                Some(last) => console::print(format!("{id}-{last}"))?,
                None => console::print(id)?,
            },
        }
        if !args.wait || submitted.preview.is_some() {
            return Ok(ExitCode::SUCCESS);
        }
        let mut worst = 0;
        for id in id..=submitted.last.unwrap_or(id) {
            let job = wait_for_end(&client, id).await?;
            let code = job.exit_code.unwrap_or(1);
            worst = if worst == 0 { code } else { worst };
        }
        Ok(exit_code(worst))
    })
}

/// Returns the exit code of a command that ends with that of a job.
pub fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Waits until the job has ended.
///
/// # Errors
/// If the scheduler is unreachable.
pub async fn wait_for_end(client: &Client, id: JobId) -> Result<JobView, Failure> {
    let mut events = client
        .lines(&format!("/api/v1/events?since=0&job={id}&follow=true"))
        .await?;
    loop {
        let job: JobView = client.get(&format!("/api/v1/jobs/{id}")).await?;
        if job.has_ended() {
            return Ok(job);
        }
        if events.event::<EventView>().await?.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            events = client
                .lines(&format!("/api/v1/events?since=0&job={id}&follow=true"))
                .await?;
        }
    }
}

/// Returns the result of a dry run as text.
fn preview_text(submission: &Submission, preview: &SubmissionPreview) -> String {
    let placement: Vec<String> = preview
        .placement
        .iter()
        .map(|s| format!("{} (GPU {})", s.node, list(&s.gpus)))
        .collect();
    let mut text = match preview.starts_now {
        true => format!("Would start now, on {}.", placement.join(", ")),
        false if !placement.is_empty() => format!(
            "Would start on {}, once their GPUs are free.",
            placement.join(", ")
        ),
        false => explanation_text(&preview.explanation, "Would be queued"),
    };
    if !preview.preempts.is_empty() {
        let jobs: Vec<String> = preview.preempts.iter().map(ToString::to_string).collect();
        text += &format!("\nWould preempt job {}, which resumes later.", jobs.join(", "));
    }
    if let Some(array) = &submission.array {
        text += &format!("\nThis is the first of {} jobs of an array.", array.indices.len());
    }
    text
}

fn list(slots: &[u32]) -> String {
    slots
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

/// Prints the output of the job until it has ended. The first interrupt stops the job, the second one only this command.
async fn follow(client: &Client, id: JobId, quiet: bool) -> Result<ExitCode, Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).or_work()?;
    let report = |text: String| {
        if !quiet {
            eprintln!("{}", faint(&format!("[{id}] {text}")));
        }
    };
    let log = client
        .lines(&format!("/api/v1/jobs/{id}/logs?follow=true"))
        .await?;
    let events = client
        .lines(&format!("/api/v1/events?since=0&job={id}&follow=true"))
        .await?;
    let (mut log, mut events) = (Printer::new(log), events);
    let mut stopping = false;
    let (mut log_open, mut events_open, mut ended) = (true, true, false);
    while log_open || !ended {
        tokio::select! {
            line = log.print(), if log_open => log_open = line?,
            event = events.event::<EventView>(), if events_open && !ended => match event? {
                Some(event) => {
                    ended |= ["completed", "failed", "cancelled", "time-limit", "rejected", "dependency-failed"]
                        .contains(&event.kind.as_str());
                    report_event(client, id, &event, &report).await;
                }
                None => events_open = false,
            },
            _ = interrupt.recv() => {
                if stopping {
                    return Ok(ExitCode::from(130));
                }
                stopping = true;
                report("stopping the job; press Ctrl-C again to exit without waiting for it".to_owned());
                let _: Result<JobView, ClientError> = client.post(&format!("/api/v1/jobs/{id}/stop"), &json!({})).await;
            }
        }
        if !events_open && !log_open {
            break;
        }
    }
    let job = wait_for_end(client, id).await?;
    match job.exit_code {
        Some(0) => {}
        _ => report(format!("{}: {}", job.state_text(), job.detail)),
    }
    Ok(exit_code(job.exit_code.unwrap_or(1)))
}

/// Reports a change of state that the output of the job does not show.
async fn report_event(client: &Client, id: JobId, event: &EventView, report: &impl Fn(String)) {
    match event.kind.as_str() {
        "queued" => {
            // The job may have started in the meantime.
            let job: Result<JobView, ClientError> = client.get(&format!("/api/v1/jobs/{id}")).await;
            let explanation: Result<JobExplanation, ClientError> =
                client.get(&format!("/api/v1/jobs/{id}/explain")).await;
            if let (Ok(job), Ok(explanation)) = (job, explanation)
                && job.state == "queued"
            {
                report(explanation_text(&explanation, "queued"));
            }
        }
        "starting" => report(format!("starting on {}", event.text)),
        "held" => report(format!("held: {}", event.text)),
        "stopping" => report(format!("stopping: {}", event.text)),
        "requeued" => report(format!("queued again: {}", event.text)),
        _ => {}
    }
}

/// Returns grey text where standard error may be coloured.
fn faint(text: &str) -> String {
    let plain =
        !std::io::stderr().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    if plain {
        text.to_owned()
    } else {
        format!("\u{1b}[2m{text}\u{1b}[0m")
    }
}

/// Prints a log. With several nodes, each line begins with the name of its node.
pub struct Printer {
    lines: dovetail_client::Lines,
    nodes: Vec<String>,
    at_start: bool,
}

impl Printer {
    /// Creates a printer of these lines.
    pub fn new(lines: dovetail_client::Lines) -> Self {
        Self {
            lines,
            nodes: Vec::new(),
            at_start: true,
        }
    }

    /// Prints the next piece and returns whether there may be more.
    ///
    /// # Errors
    /// If the connection breaks, or the log is not readable.
    pub async fn print(&mut self) -> Result<bool, Failure> {
        let Some(line) = self.lines.next().await? else {
            return Ok(false);
        };
        let piece: LogLine = serde_json::from_str(&line).or_work()?;
        if let Some(error) = piece.error {
            eprintln!("{}: {error}", piece.node);
        }
        if !self.nodes.contains(&piece.node) {
            self.nodes.push(piece.node.clone());
        }
        let mut out = std::io::stdout().lock();
        if self.nodes.len() < 2 {
            out.write_all(piece.data.as_bytes()).or_work()?;
            self.at_start = piece.data.ends_with('\n');
        } else {
            if !self.at_start {
                out.write_all(b"\n").or_work()?;
                self.at_start = true;
            }
            for line in piece.data.lines() {
                writeln!(out, "{}: {line}", piece.node).or_work()?;
            }
        }
        out.flush().or_work()?;
        Ok(true)
    }
}
