//! `dovetail operate ...`.

use dovetail_client::{Client, block_on};
use dovetail_cluster::{OperatorAction, PolicyText};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_server::parse_positive_span;
use dovetail_web::views::{ClusterView, Operation};

use crate::live::agent::pairs;
use crate::live::args::{OperateCommand, Output};

/// Runs `dovetail operate ...`.
///
/// # Errors
/// If the scheduler is unreachable or rejects the request.
pub fn run(command: &OperateCommand) -> Result<(), Failure> {
    let (client, operate, form) = match command {
        OperateCommand::Policy { name, parts, client } => {
            let text = PolicyText {
                policy: name.clone(),
                parts: pairs(parts, "--part")?,
            };
            (client, Some(OperatorAction::Policy(text)), Output::Table)
        }
        OperateCommand::Round { length, client } => {
            let round = match length.as_str() {
                "events" => None,
                text => Some(parse_positive_span(text, "round").or_request()?),
            };
            (client, Some(OperatorAction::Round(round)), Output::Table)
        }
        OperateCommand::Pause(client) => (client, Some(OperatorAction::Pause), Output::Table),
        OperateCommand::Resume(client) => (client, Some(OperatorAction::Resume), Output::Table),
        OperateCommand::Show { output, client } => (client, None, output.form()),
    };
    let client = Client::open(client.config.as_deref())?;
    block_on(async {
        let cluster: ClusterView = match operate {
            Some(operate) => client.post("/api/v1/operate", &Operation { operate }).await?,
            None => client.get("/api/v1/cluster").await?,
        };
        console::print(match form {
            Output::Json => serde_json::to_string_pretty(&cluster).or_work()?,
            Output::Yaml => serde_saphyr::to_string(&cluster).or_work()?,
            Output::Table | Output::Wide | Output::Csv => {
                let parts: Vec<String> = cluster.parts.iter().map(|(k, v)| format!(", {k} {v}")).collect();
                let paused = if cluster.paused {
                    " Scheduling is paused."
                } else {
                    ""
                };
                let warnings: Vec<String> = cluster.warnings.iter().map(|w| format!("\n{w}")).collect();
                format!(
                    "Policy {}{}; clock {}.{paused}{}",
                    cluster.policy,
                    parts.join(""),
                    cluster.clock,
                    warnings.join("")
                )
            }
        })
    })
}
