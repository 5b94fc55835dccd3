//! `dovetail notify ...`.

use dovetail_control::Occasion;
use dovetail_web::Notify;
use dovetail_web::views::{NotifyTried, Tried};
use serde_json::{Value, json};

use crate::failure::{Blame, Failure};
use crate::live::args::{NotifyCommand, NotifySetArgs, Output};
use crate::live::client::{Client, block_on};
use crate::live::settings::span;
use crate::show;

const PATH: &str = "/api/v1/me/notify";

/// Runs `dovetail notify ...`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn run(command: &NotifyCommand) -> Result<(), Failure> {
    match command {
        NotifyCommand::Show { output, client } => {
            let client = Client::open(client)?;
            print(&block_on(client.get(PATH))?, output.form())
        }
        NotifyCommand::Set(args) => {
            let client = Client::open(&args.client)?;
            let set: Notify = block_on(async {
                let before: Notify = client.get(PATH).await?;
                client.put(PATH, &changed(before, args)?).await
            })?;
            print(&set, args.output.form())
        }
        NotifyCommand::Test { client } => {
            let client = Client::open(client)?;
            let tried: NotifyTried = block_on(client.post("/api/v1/me/notify/test", &json!({})))?;
            let ways = [("webhook", &tried.webhook), ("mail", &tried.email)];
            let said: Vec<(&str, &Tried)> = ways
                .iter()
                .filter_map(|(way, t)| t.as_ref().map(|t| (*way, t)))
                .collect();
            for (way, tried) in &said {
                match tried.ok {
                    true => show::print(format!("{way}: taken"))?,
                    false => show::print(format!("{way}: {}", tried.detail))?,
                }
            }
            match said.iter().all(|(_, t)| t.ok) {
                true if said.is_empty() => {
                    show::print("You are told nothing: set --email or --webhook first.")
                }
                true => Ok(()),
                false => Err(Failure::Work(anyhow::anyhow!("not everything was taken"))),
            }
        }
    }
}

fn changed(mut notify: Notify, args: &NotifySetArgs) -> Result<Notify, Failure> {
    if let Some(words) = &args.on {
        let one = |word: &str| {
            let known: Result<Occasion, _> = serde_json::from_value(Value::from(word));
            known.map_err(|_| {
                Failure::request(format!(
                    "--on: {word:?} is none; expected some of running, completed, failed, preempted, pending-too-long, \
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
        notify.pending_s = span(text, "--pending")?.as_secs_f64();
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
            let of = if on.is_empty() {
                "nothing".to_owned()
            } else {
                on.join(", ")
            };
            let mut ways = Vec::new();
            if notify.email {
                ways.push("by mail".to_owned());
            }
            if !notify.webhook.is_empty() {
                ways.push(format!("by {}", notify.webhook));
            }
            let how = if ways.is_empty() {
                "in no way".to_owned()
            } else {
                ways.join(" and ")
            };
            let secret = match &notify.secret {
                Some(secret) => format!("\nRequests are signed with {secret}"),
                None => String::new(),
            };
            format!("You are told of {of}, {how}.{secret}")
        }
    };
    show::print(text)
}
