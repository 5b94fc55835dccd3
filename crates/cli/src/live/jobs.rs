//! `dovetail jobs` and `dovetail job ...`.

use dovetail_client::{Client, block_on, percent_encode};
use dovetail_cluster::JobId;
use dovetail_cluster::state::{JobExplanation, NodeSlots};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_model::Time;
use dovetail_web::views::{CurrentUser, JobPage, JobView, RoleView};
use serde_json::json;

use crate::live::args::{JobCommand, JobsArgs, LogsArgs, OneJobArgs, Output, SomeJobsArgs};
use crate::live::show::{Listing, clock, now, span, watch};
use crate::live::submit::{Printer, why_text};

/// GPUs in short: `node-a:0,1 node-b:0`.
pub fn placement_text(placement: &[NodeSlots]) -> String {
    let one = |s: &NodeSlots| {
        let slots: Vec<String> = s.gpus.iter().map(ToString::to_string).collect();
        format!("{}:{}", s.node, slots.join(","))
    };
    placement.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// How far it is: `120/1000`.
pub fn steps_text(job: &JobView) -> String {
    match job.steps {
        None => String::new(),
        Some(s) if s.total == 0 => s.step.to_string(),
        Some(s) => format!("{}/{}", s.step, s.total),
    }
}

/// How long it has run, or waited if it has not.
pub fn age_text(job: &JobView, now: Time) -> String {
    let end = job.ended.unwrap_or(now);
    match (job.started, job.state.as_str()) {
        (Some(started), "running" | "stopping" | "starting") => span(end.since(started)),
        (Some(started), _) if job.has_ended() => span(end.since(started)),
        _ => span(end.since(job.submitted)),
    }
}

/// A table of jobs.
pub fn listing<'a>(jobs: &'a Vec<JobView>, none: &'a str) -> Listing<'a, Vec<JobView>> {
    let now = now();
    let row = |job: &JobView| {
        vec![
            job.id.to_string(),
            job.name.clone(),
            job.user.clone(),
            job.state.clone(),
            job.gpus.to_string(),
            age_text(job, now),
            steps_text(job),
            match job.placement.is_empty() {
                true => job.detail.clone(),
                false => placement_text(&job.placement),
            },
            job.tenant.clone(),
            job.priority.to_string(),
            clock(job.submitted),
            job.attempt_count.to_string(),
            format!("{:.3}", job.gpu_seconds / 3600.0),
        ]
    };
    Listing {
        headings: &[
            "ID",
            "Name",
            "User",
            "State",
            "GPUs",
            "Time",
            "Step",
            "Placement or reason",
            "Tenant",
            "Priority",
            "Submitted",
            "Launches",
            "GPU-hours",
        ],
        narrow: 8,
        rows: jobs.iter().map(row).collect(),
        value: jobs,
        none,
    }
}

/// Runs `dovetail jobs`.
///
/// # Errors
/// If the scheduler is unreachable or rejects the request.
pub fn list(args: &JobsArgs) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let mut filter = vec![format!("limit={}", args.limit)];
        let mut add = |key: &str, value: &Option<String>| {
            filter.extend(value.as_ref().map(|v| format!("{key}={}", percent_encode(v))));
        };
        let mine = match args.mine {
            true => Some(client.get::<CurrentUser>("/api/v1/me").await?.name),
            false => args.user.clone(),
        };
        add("user", &mine);
        add("tenant", &args.tenant);
        add("name", &args.name);
        add("label", &args.label);
        add("node", &args.node);
        let live = (!args.all).then(|| "unfinished".to_owned());
        add("state", &args.state.clone().or(live));
        let path = format!("/api/v1/jobs?{}", filter.join("&"));
        let (client, path, form) = (&client, &path, args.output.form());
        watch(args.watch, || async move {
            let page: JobPage = client.get(path).await?;
            let none = if args.all || args.state.is_some() {
                "No jobs."
            } else {
                "No unfinished jobs; --all shows the others."
            };
            let mut text = listing(&page.jobs, none).text(form)?;
            if page.next.is_some() && matches!(form, Output::Table | Output::Wide) {
                text += &format!("\nMore jobs exist; show them with --limit {}.", args.limit * 10);
            }
            Ok(text)
        })
        .await
    })
}

/// Runs `dovetail job ...`.
///
/// # Errors
/// If the scheduler is unreachable or rejects the request.
pub fn job(command: &JobCommand) -> Result<(), Failure> {
    match command {
        JobCommand::Show(args) => show_one(args),
        JobCommand::Explain(args) => explain(args),
        JobCommand::Logs(args) => logs(args),
        JobCommand::Stop(args) => act(args, "stop", "stopped"),
        JobCommand::Hold(args) => act(args, "hold", "held"),
        JobCommand::Release(args) => act(args, "release", "released"),
    }
}

/// The numbers of the jobs that are meant.
///
/// # Errors
/// When there is none.
pub async fn select(client: &Client, word: &str) -> Result<Vec<JobId>, Failure> {
    if let Ok(number) = word.parse() {
        return Ok(vec![number]);
    }
    let me = || async { client.get::<CurrentUser>("/api/v1/me").await.map(|u| u.name) };
    let (path, missing) = match word {
        "last" => {
            let path = format!("/api/v1/jobs?limit=1&user={}", percent_encode(&me().await?));
            (path, "you have no jobs".to_owned())
        }
        "@mine" => {
            let path = format!(
                "/api/v1/jobs?limit=10000&state=unfinished&user={}",
                percent_encode(&me().await?)
            );
            (path, "you have no unfinished jobs".to_owned())
        }
        name => {
            let path = format!("/api/v1/jobs?limit=1&name={}", percent_encode(name));
            (path, format!("unknown job {name:?}"))
        }
    };
    let page: JobPage = client.get(&path).await?;
    match page.jobs.is_empty() {
        true => Err(Failure::request(missing)),
        false => Ok(page.jobs.iter().map(|job| job.id).collect()),
    }
}

async fn select_one(client: &Client, word: &str) -> Result<JobId, Failure> {
    match select(client, word).await?.as_slice() {
        [one] => Ok(*one),
        _ => Err(Failure::request(format!(
            "{word} selects several jobs: expected one"
        ))),
    }
}

fn show_one(args: &OneJobArgs) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let id = select_one(&client, &args.job).await?;
        let job: JobView = client.get(&format!("/api/v1/jobs/{id}")).await?;
        let why: JobExplanation = client.get(&format!("/api/v1/jobs/{id}/explain")).await?;
        console::print(match args.output.form() {
            Output::Json => serde_json::to_string_pretty(&job).or_work()?,
            Output::Yaml => serde_saphyr::to_string(&job).or_work()?,
            Output::Csv => listing(&vec![job], "").text(Output::Csv)?,
            Output::Table | Output::Wide => whole(&job, &why),
        })
    })
}

/// Instances of a role, by where they are in their life.
fn role_text(role: &RoleView) -> String {
    let of = |state: &str| {
        let listed = role.instances.iter().filter(|i| i.state == state);
        let listed: Vec<String> = listed
            .map(|i| match (i.node.as_str(), i.exit_code) {
                ("", _) => i.index.to_string(),
                (node, None | Some(0)) => format!("{} on {node}", i.index),
                (node, Some(code)) => format!("{} on {node} (exit {code})", i.index),
            })
            .collect();
        match listed.len() {
            0 => None,
            1..=4 => Some(format!("{state}: {}", listed.join(", "))),
            count => Some(format!("{state}: {count} instances")),
        }
    };
    let states = ["waiting", "starting", "running", "succeeded", "failed", "stopped"];
    states.into_iter().filter_map(of).collect::<Vec<_>>().join("; ")
}

/// All of a job, for people.
fn whole(job: &JobView, why: &JobExplanation) -> String {
    let now = now();
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut add = |key: &str, value: String| {
        if !value.is_empty() {
            lines.push((key.to_owned(), value));
        }
    };
    add("Job", format!("{} {}", job.id, job.name));
    add(
        "State",
        match job.detail.is_empty() {
            true => format!("{} for {}", job.state_text(), span(now.since(job.since))),
            false => format!("{} ({})", job.state_text(), job.detail),
        },
    );
    if job.state == "queued" {
        add("Pending", why_text(why, "queued"));
    }
    add("User", format!("{} (virtual cluster {})", job.user, job.tenant));
    add("GPUs", job.gpus.to_string());
    add("Where", placement_text(&job.placement));
    add(
        "Submitted",
        format!(
            "{} UTC, {} ago",
            clock(job.submitted),
            span(now.since(job.submitted))
        ),
    );
    if let Some(started) = job.started {
        add("Waited", span(started.since(job.submitted)));
    }
    if let Some(steps) = job.steps {
        let time = steps.step_time.as_secs_f64();
        add(
            "Step",
            format!(
                "{} ({time:.3} s each, checkpoint at {})",
                steps_text(job),
                steps.checkpoint
            ),
        );
    }
    add("GPU-hours", format!("{:.3}", job.gpu_seconds / 3600.0));
    let labels: Vec<String> = job.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    add("Labels", labels.join(" "));
    for role in &job.roles {
        add(&format!("Role {}", role.name), role_text(role));
    }
    if let Some(request) = &job.request {
        add("Command", request.command.join(" "));
        add("In", request.workdir.clone());
    }
    for attempt in &job.attempts {
        let end = attempt.end.clone().unwrap_or_else(|| "running".to_owned());
        let took = attempt.until.unwrap_or(now).since(attempt.since);
        let shared = match attempt.sharing.is_empty() {
            true => String::new(),
            false => format!(", GPUs shared by {}", attempt.sharing),
        };
        add(
            &format!("Attempt {}", attempt.attempt),
            format!(
                "{} UTC on {} for {}{shared}: {end}",
                clock(attempt.since),
                placement_text(&attempt.placement),
                span(took)
            ),
        );
        for remark in &attempt.remarks {
            add("  note", remark.clone());
        }
        if !attempt.last_output.is_empty() {
            add(
                "  last output",
                attempt
                    .last_output
                    .trim_end()
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .to_owned(),
            );
        }
    }
    let width = lines.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let line = |(key, value): &(String, String)| format!("{key:<width$}  {value}");
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn explain(args: &OneJobArgs) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let id = select_one(&client, &args.job).await?;
        let why: JobExplanation = client.get(&format!("/api/v1/jobs/{id}/explain")).await?;
        console::print(match args.output.form() {
            Output::Json => serde_json::to_string_pretty(&why).or_work()?,
            Output::Yaml => serde_saphyr::to_string(&why).or_work()?,
            Output::Table | Output::Wide | Output::Csv => {
                let mut text = format!("Job {id}: {}.", why.sentence);
                for reason in &why.reasons {
                    text += &format!("\n  - {reason}");
                }
                if why.ahead > 0 {
                    text += &format!("\n  - {} ahead of it in the queue", why.ahead);
                }
                text
            }
        })
    })
}

fn logs(args: &LogsArgs) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let id = select_one(&client, &args.job).await?;
        let mut wanted = vec![format!("follow={}", args.follow)];
        wanted.extend(args.tail.map(|n| format!("tail={n}")));
        wanted.extend(args.attempt.map(|n| format!("attempt={n}")));
        wanted.extend(args.node.as_ref().map(|n| format!("node={}", percent_encode(n))));
        let lines = client
            .lines(&format!("/api/v1/jobs/{id}/logs?{}", wanted.join("&")))
            .await?;
        let mut printer = Printer::new(lines);
        while printer.print().await? {}
        Ok(())
    })
}

fn act(args: &SomeJobsArgs, action: &str, done: &str) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let mut jobs = Vec::new();
        for word in &args.jobs {
            jobs.extend(select(&client, word).await?);
        }
        for id in jobs {
            let job: JobView = client
                .post(&format!("/api/v1/jobs/{id}/{action}"), &json!({}))
                .await?;
            console::print(format!("job {id} is {done} ({})", job.state))?;
        }
        Ok(())
    })
}
