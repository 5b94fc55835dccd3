//! Scenario files: YAML with any of the flags as keys.

use std::fmt::Display;
use std::path::Path;

use anyhow::Context;
use clap::Args;
use dovetail_console::{Failure, OrFailure};
use dovetail_model::suggest::nearest;
use serde::Deserialize;

use crate::args::RunArgs;

/// The content of a scenario file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scenario {
    /// The policy of `simulate`.
    pub policy: Option<String>,
    /// The policies of `compare`.
    pub policies: Option<String>,
    /// The loads of `compare`.
    pub loads: Option<String>,
    /// The seeds of `compare`.
    pub seeds: Option<String>,
    /// All other flags.
    pub run: RunArgs,
}

/// A list as text, or as a YAML list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum List {
    Text(String),
    Number(f64),
    Items(Vec<Item>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Item {
    Text(String),
    Number(f64),
}

impl List {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Number(n) => n.to_string(),
            Self::Items(items) => {
                let texts = items.into_iter().map(|i| match i {
                    Item::Text(text) => text,
                    Item::Number(n) => n.to_string(),
                });
                texts.collect::<Vec<_>>().join(",")
            }
        }
    }
}

impl Scenario {
    /// Rejects keys that the command does not accept.
    ///
    /// # Errors
    /// Names the key and the command that takes it.
    pub fn without(
        self,
        key: &str,
        value: impl Fn(&Scenario) -> &Option<String>,
        command: &str,
    ) -> Result<Self, Failure> {
        match value(&self) {
            None => Ok(self),
            Some(_) => Err(Failure::request(format!(
                "key `{key}` of the scenario is for `dovetail {command}`"
            ))),
        }
    }
}

/// Reads a scenario file.
///
/// # Errors
/// Names the file and the invalid key.
pub fn read(path: &Path) -> Result<Scenario, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| anyhow::anyhow!("cannot read scenario {}: {e}", path.display()))
        .or_request()?;
    parse(&text)
        .with_context(|| path.display().to_string())
        .or_request()
}

/// An error in a scenario file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The text is not a YAML mapping.
    #[error("{0}")]
    Syntax(String),
    /// A key is not a flag of the command.
    #[error(
        "unknown key `{key}`{}; keys are the flags of the command without the dashes",
        did_you_mean(.similar)
    )]
    UnknownKey {
        /// The key.
        key: String,
        /// Known keys with a similar name.
        similar: Vec<String>,
    },
    /// The value of a key has the wrong type.
    #[error("key `{key}`: {reason}")]
    InvalidValue {
        /// The key.
        key: String,
        /// What is expected.
        reason: String,
    },
}

fn did_you_mean(similar: &[String]) -> String {
    match similar.is_empty() {
        true => String::new(),
        false => format!(", did you mean {}?", similar.join(" or ")),
    }
}

/// Parses the text of a scenario file.
///
/// # Errors
/// Names the invalid key.
pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    let mut map: std::collections::BTreeMap<String, serde_json::Value> = match text.trim() {
        "" => std::collections::BTreeMap::new(),
        _ => serde_saphyr::from_str(text).map_err(|e| ScenarioError::Syntax(one_line(&e)))?,
    };
    let mut list = |key: &str| -> Result<Option<String>, ScenarioError> {
        let Some(value) = map.remove(key) else {
            return Ok(None);
        };
        let list: List = serde_json::from_value(value)
            .map_err(|_| invalid(key, &"expected a text, a number or a list of them"))?;
        Ok(Some(list.text()))
    };
    let policy = list("policy")?;
    let policies = list("policies")?;
    let loads = list("loads")?;
    let seeds = list("seeds")?;
    // Spans and sizes may be written as bare numbers.
    for key in [
        "restart-cost",
        "checkpoint",
        "checkpoint-cost",
        "mtbf",
        "repair",
        "spread-penalty",
        "track",
    ] {
        if let Some(value) = map.get_mut(key).filter(|v| v.is_number()) {
            *value = serde_json::Value::String(value.to_string());
        }
    }
    if let Some(key) = map.keys().find(|k| !known_keys().contains(k)) {
        let known = known_keys();
        let similar = nearest(key, known.iter().map(String::as_str));
        return Err(ScenarioError::UnknownKey {
            key: key.clone(),
            similar: similar.into_iter().map(str::to_owned).collect(),
        });
    }
    for (key, value) in &map {
        let alone = serde_json::json!({ key: value });
        serde_json::from_value::<RunArgs>(alone).map_err(|e| invalid(key, &e))?;
    }
    let rest = serde_json::Value::Object(map.into_iter().collect());
    let run: RunArgs = serde_json::from_value(rest).map_err(|e| ScenarioError::Syntax(one_line(&e)))?;
    Ok(Scenario {
        policy,
        policies,
        loads,
        seeds,
        run,
    })
}

/// Returns all keys of a scenario file except the lists.
fn known_keys() -> Vec<String> {
    let command = RunArgs::augment_args(clap::Command::new("scenario"));
    command
        .get_arguments()
        .filter_map(|a| a.get_long())
        .map(str::to_owned)
        .collect()
}

fn invalid(key: &str, reason: &dyn Display) -> ScenarioError {
    ScenarioError::InvalidValue {
        key: key.to_owned(),
        reason: one_line(reason),
    }
}

/// Returns the first line of a message.
fn one_line(message: &dyn Display) -> String {
    message
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_flags() {
        let scenario =
            parse("policies: [fifo, srsf]\nloads: [0.7, 1]\nseeds: 1..3\ncluster: 16x8\nrestart-cost: 30\ncheck: true")
                .unwrap();
        assert_eq!(scenario.policies.as_deref(), Some("fifo,srsf"));
        assert_eq!(scenario.loads.as_deref(), Some("0.7,1"));
        assert_eq!(scenario.run.restart_cost.as_deref(), Some("30"));
        assert!(scenario.run.check);
        assert_eq!(parse("").unwrap(), Scenario::default());
    }

    #[test]
    fn errors_name_the_key() {
        assert!(
            parse("clusters: 16x8")
                .unwrap_err()
                .to_string()
                .contains("unknown key `clusters`, did you mean cluster?")
        );
        assert!(
            parse("jobs: many")
                .unwrap_err()
                .to_string()
                .contains("key `jobs`: invalid type")
        );
        assert!(
            parse("knowledge: all")
                .unwrap_err()
                .to_string()
                .contains("expected one of")
        );
        assert!(parse(": : :").is_err());
    }
}
