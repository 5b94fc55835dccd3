//! `dovetail jobs` and `dovetail job ...`.

use dovetail_client::{Client, block_on, percent_encode};
use dovetail_cluster::JobId;
use dovetail_cluster::state::JobExplanation;
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_report::format::counted;
use dovetail_web::views::{ActionResult, BulkAction, CurrentUser, ExplanationView, JobPage, JobView};
use serde_json::json;

use crate::live::args::{JobCommand, JobsArgs, LogsArgs, OneJobArgs, Output, SomeJobsArgs, StopArgs};
use crate::live::job_text::{age_text, details, explain_details, placement_text, steps_text};
use crate::live::show::{Listing, clock, now, watch};
use crate::live::submit::Printer;

/// Returns a table of jobs; `none` is shown if there are none.
pub fn listing<'a>(jobs: &'a Vec<JobView>, none: &'a str) -> Listing<'a, Vec<JobView>> {
    let now = now();
    let row = |job: &JobView| {
        vec![
            job.id.to_string(),
            job.name.clone(),
            job.user.clone(),
            job.state.clone(),
            job.held_gpus().to_string(),
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
            "Attempts",
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
        JobCommand::Stop(args) => stop(args),
        JobCommand::Hold(args) => act(args, "hold"),
        JobCommand::Release(args) => act(args, "release"),
    }
}

/// Returns the IDs of the jobs that a selector names: an ID, a name, `last` or `@mine`.
///
/// # Errors
/// If it selects no job.
pub async fn select(client: &Client, selector: &str) -> Result<Vec<JobId>, Failure> {
    if let Ok(id) = selector.parse() {
        return Ok(vec![id]);
    }
    let me = || async { client.get::<CurrentUser>("/api/v1/me").await.map(|u| u.name) };
    let (path, missing) = match selector {
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

async fn select_one(client: &Client, selector: &str) -> Result<JobId, Failure> {
    match select(client, selector).await?.as_slice() {
        [one] => Ok(*one),
        _ => Err(Failure::request(format!(
            "{selector} selects several jobs: expected one"
        ))),
    }
}

fn show_one(args: &OneJobArgs) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let id = select_one(&client, &args.job).await?;
        let job: JobView = client.get(&format!("/api/v1/jobs/{id}")).await?;
        let explanation: JobExplanation = client.get(&format!("/api/v1/jobs/{id}/explain")).await?;
        console::print(match args.output.form() {
            Output::Json => serde_json::to_string_pretty(&job).or_work()?,
            Output::Yaml => serde_saphyr::to_string(&job).or_work()?,
            Output::Csv => listing(&vec![job], "").text(Output::Csv)?,
            Output::Table | Output::Wide => details(&job, &explanation),
        })
    })
}

fn explain(args: &OneJobArgs) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let id = select_one(&client, &args.job).await?;
        let explanation: ExplanationView = client.get(&format!("/api/v1/jobs/{id}/explain")).await?;
        console::print(match args.output.form() {
            Output::Json => serde_json::to_string_pretty(&explanation).or_work()?,
            Output::Yaml => serde_saphyr::to_string(&explanation).or_work()?,
            Output::Table | Output::Wide | Output::Csv => explain_details(id, &explanation),
        })
    })
}

fn logs(args: &LogsArgs) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let id = select_one(&client, &args.job).await?;
        let mut query = vec![format!("follow={}", args.follow)];
        query.extend(args.tail.map(|n| format!("tail={n}")));
        query.extend(args.attempt.map(|n| format!("attempt={n}")));
        query.extend(args.node.as_ref().map(|n| format!("node={}", percent_encode(n))));
        let lines = client
            .lines(&format!("/api/v1/jobs/{id}/logs?{}", query.join("&")))
            .await?;
        let mut printer = Printer::new(lines);
        while printer.print().await? {}
        Ok(())
    })
}

/// Sends an action to each selected job and prints its new state.
fn act(args: &SomeJobsArgs, action: &str) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let mut jobs = Vec::new();
        for selector in &args.jobs {
            jobs.extend(select(&client, selector).await?);
        }
        for id in jobs {
            let job: JobView = client
                .post(&format!("/api/v1/jobs/{id}/{action}"), &json!({}))
                .await?;
            console::print(format!("job {id}: {}", job.state))?;
        }
        Ok(())
    })
}

/// Number of jobs that the server stops in one request.
const MAX_BULK: usize = 1_000;

/// Stops the selected jobs, and prints what happened to each.
fn stop(args: &StopArgs) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let mut ids = Vec::new();
        if args.jobs.is_empty() {
            ids = select_by_filters(&client, args).await?;
            if ids.is_empty() {
                return console::print("no unfinished job matches these filters");
            }
        }
        for selector in &args.jobs {
            ids.extend(select(&client, selector).await?);
        }
        ids.sort_unstable();
        ids.dedup();
        if args.dry_run {
            let jobs: Vec<String> = ids.iter().map(ToString::to_string).collect();
            return console::print(format!(
                "would stop {}: {}",
                counted(jobs.len() as u64, "job"),
                jobs.join(" ")
            ));
        }
        let mut failed = Vec::new();
        for some in ids.chunks(MAX_BULK) {
            let action = BulkAction {
                action: "stop".to_owned(),
                ids: some.to_vec(),
            };
            let results: Vec<ActionResult> = client.post("/api/v1/jobs/actions", &action).await?;
            for result in results {
                if result.ok {
                    let job: JobView = client.get(&format!("/api/v1/jobs/{}", result.id)).await?;
                    console::print(format!("job {}: {}", result.id, job.state))?;
                } else {
                    failed.push(format!("job {}: {}", result.id, result.detail));
                }
            }
        }
        match failed.is_empty() {
            true => Ok(()),
            false => Err(Failure::request(failed.join("; "))),
        }
    })
}

/// Returns the jobs that match all filters.
async fn select_by_filters(client: &Client, args: &StopArgs) -> Result<Vec<JobId>, Failure> {
    let state = args.state.as_deref().unwrap_or("unfinished");
    let mut ids = Vec::new();
    let mut cursor = None;
    loop {
        let filters = [
            ("state", Some(state)),
            ("user", args.user.as_deref()),
            ("tenant", args.tenant.as_deref()),
            ("name", args.name.as_deref()),
            ("label", args.label.as_deref()),
            ("node", args.node.as_deref()),
            ("cursor", cursor.as_deref()),
        ];
        let query = filters.iter().filter_map(|(key, value)| {
            let value = value.map(percent_encode)?;
            Some(format!("&{key}={value}"))
        });
        let path = format!("/api/v1/jobs?limit=10000{}", query.collect::<String>());
        let page: JobPage = client.get(&path).await?;
        ids.extend(page.jobs.iter().filter(|job| !job.has_ended()).map(|job| job.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(ids)
}
