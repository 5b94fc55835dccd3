//! `dovetail operate ...`.

use dovetail_control::{Operate, PolicyText};
use dovetail_web::views::{ClusterView, Operation};

use crate::failure::{Blame, Failure};
use crate::live::agent::pairs;
use crate::live::args::{OperateCommand, Output};
use crate::live::client::{Client, block_on};
use crate::live::settings;
use crate::show;

/// Runs `dovetail operate ...`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn run(command: &OperateCommand) -> Result<(), Failure> {
    let (client, operate, form) = match command {
        OperateCommand::Policy { name, parts, client } => {
            let text = PolicyText {
                policy: name.clone(),
                parts: pairs(parts, "--part")?,
            };
            (client, Some(Operate::Policy(text)), Output::Table)
        }
        OperateCommand::Round { length, client } => {
            let round = match length.as_str() {
                "events" => None,
                text => Some(settings::span(text, "round")?),
            };
            (client, Some(Operate::Round(round)), Output::Table)
        }
        OperateCommand::Pause(client) => (client, Some(Operate::Pause), Output::Table),
        OperateCommand::Resume(client) => (client, Some(Operate::Resume), Output::Table),
        OperateCommand::Show { output, client } => (client, None, output.form()),
    };
    let client = Client::open(client)?;
    block_on(async {
        let cluster: ClusterView = match operate {
            Some(operate) => client.post("/api/v1/operate", &Operation { operate }).await?,
            None => client.get("/api/v1/cluster").await?,
        };
        show::print(match form {
            Output::Json => serde_json::to_string_pretty(&cluster).or_work()?,
            Output::Yaml => serde_saphyr::to_string(&cluster).or_work()?,
            Output::Table | Output::Wide | Output::Csv => {
                let parts: Vec<String> = cluster.parts.iter().map(|(k, v)| format!(", {k} {v}")).collect();
                let paused = if cluster.paused {
                    " Scheduling is paused."
                } else {
                    ""
                };
                format!(
                    "Policy {}{}; decides by {}.{paused}",
                    cluster.policy,
                    parts.join(""),
                    cluster.clock
                )
            }
        })
    })
}
