//! `dovetail notify ...`.

use dovetail_client::{Client, block_on};
use dovetail_cluster::NotificationKind;
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_server::parse_positive_span;
use dovetail_web::Notify;
use dovetail_web::views::{DeliveryResult, NotifyTest};
use serde_json::{Value, json};

use crate::live::args::{NotifyCommand, NotifySetArgs, Output};

const PATH: &str = "/api/v1/me/notify";

/// Runs `dovetail notify ...`.
///
/// # Errors
/// If the scheduler is unreachable or rejects the request.
pub fn run(command: &NotifyCommand) -> Result<(), Failure> {
    match command {
        NotifyCommand::Show { output, client } => {
            let client = Client::open(client.config.as_deref())?;
            print(&block_on(client.get(PATH))?, output.form())
        }
        NotifyCommand::Set(args) => {
            let client = Client::open(args.client.config.as_deref())?;
            let set: Notify = block_on(async {
                let before: Notify = client.get(PATH).await?;
                Ok::<_, Failure>(client.put(PATH, &changed(before, args)?).await?)
            })?;
            print(&set, args.output.form())
        }
        NotifyCommand::Test { client } => {
            let client = Client::open(client.config.as_deref())?;
            let tried: NotifyTest = block_on(client.post("/api/v1/me/notify/test", &json!({})))?;
            let ways = [("webhook", &tried.webhook), ("mail", &tried.email)];
            let results: Vec<(&str, &DeliveryResult)> = ways
                .iter()
                .filter_map(|(way, t)| t.as_ref().map(|t| (*way, t)))
                .collect();
            for (way, tried) in &results {
                match tried.ok {
                    true => console::print(format!("{way}: delivered"))?,
                    false => console::print(format!("{way}: {}", tried.detail))?,
                }
            }
            match results.iter().all(|(_, t)| t.ok) {
                true if results.is_empty() => {
                    console::print("Notifications are off: set --email or --webhook first.")
                }
                true => Ok(()),
                false => Err(Failure::Work(anyhow::anyhow!(
                    "not every notification was delivered"
                ))),
            }
        }
    }
}

fn changed(mut notify: Notify, args: &NotifySetArgs) -> Result<Notify, Failure> {
    if let Some(words) = &args.on {
        let one = |word: &str| {
            let known: Result<NotificationKind, _> = serde_json::from_value(Value::from(word));
            known.map_err(|_| {
                Failure::request(format!(
                    "--on: unknown event {word:?}: expected one or more of running, completed, failed, preempted, pending-too-long, \
                     low-gpu-use, or none"
                ))
            })
        };
        let words = words
            .split(',')
            .map(str::trim)
            .filter(|w| !w.is_empty() && *w != "none");
        notify.on = words.map(one).collect::<Result<_, _>>()?;
    }
    notify.email = args.email.unwrap_or(notify.email);
    if let Some(webhook) = &args.webhook {
        notify.webhook = if webhook == "none" {
            String::new()
        } else {
            webhook.clone()
        };
    }
    if let Some(text) = &args.pending {
        let pending = parse_positive_span(text, "--pending").or_request()?;
        notify.pending_s = pending.as_secs_f64();
    }
    notify.low_gpu_percent = args.low_gpu_percent.unwrap_or(notify.low_gpu_percent);
    if args.new_secret {
        notify.secret = Some(String::new());
    }
    Ok(notify)
}

fn print(notify: &Notify, form: Output) -> Result<(), Failure> {
    let text = match form {
        Output::Json => serde_json::to_string_pretty(notify).or_work()?,
        Output::Yaml => serde_saphyr::to_string(notify).or_work()?,
        Output::Table | Output::Wide | Output::Csv => {
            let on: Vec<&str> = notify.on.iter().map(|on| on.word()).collect();
            let mut ways = Vec::new();
            if notify.email {
                ways.push("by mail".to_owned());
            }
            if !notify.webhook.is_empty() {
                ways.push(format!("by webhook to {}", notify.webhook));
            }
            let secret = match &notify.secret {
                Some(secret) => format!("\nWebhook requests are signed with {secret}"),
                None => String::new(),
            };
            match on.is_empty() || ways.is_empty() {
                true => format!("Notifications are off.{secret}"),
                false => format!(
                    "Notifications for {}, {}.{secret}",
                    on.join(", "),
                    ways.join(" and ")
                ),
            }
        }
    };
    console::print(text)
}
