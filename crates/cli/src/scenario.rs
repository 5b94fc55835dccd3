//! Scenario files: YAML with any of the flags as keys.

use std::path::Path;

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
    /// Everything else.
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
        .map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))
        .or_request()
}

/// Parses the text of a scenario file.
///
/// # Errors
/// A message that names the invalid key.
pub fn parse(text: &str) -> Result<Scenario, String> {
    let mut map: std::collections::BTreeMap<String, serde_json::Value> = match text.trim() {
        "" => std::collections::BTreeMap::new(),
        _ => serde_saphyr::from_str(text).map_err(|e| one_line(&e.to_string()))?,
    };
    let mut list = |key: &str| -> Result<Option<String>, String> {
        let Some(value) = map.remove(key) else {
            return Ok(None);
        };
        let list: List = serde_json::from_value(value)
            .map_err(|_| format!("key `{key}`: expected a text, a number or a list of them"))?;
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
        let near = nearest(key, known.iter().map(String::as_str));
        let hint = if near.is_empty() {
            String::new()
        } else {
            format!(", did you mean {}?", near.join(" or "))
        };
        return Err(format!(
            "unknown key `{key}`{hint}; keys are the flags of the command without the dashes"
        ));
    }
    for (key, value) in &map {
        let alone = serde_json::json!({ key: value });
        serde_json::from_value::<RunArgs>(alone)
            .map_err(|e| format!("key `{key}`: {}", one_line(&e.to_string())))?;
    }
    let rest = serde_json::Value::Object(map.into_iter().collect());
    let run: RunArgs = serde_json::from_value(rest).map_err(|e| one_line(&e.to_string()))?;
    Ok(Scenario {
        policy,
        policies,
        loads,
        seeds,
        run,
    })
}

/// Every key a scenario file may have besides the lists.
fn known_keys() -> Vec<String> {
    let command = RunArgs::augment_args(clap::Command::new("scenario"));
    command
        .get_arguments()
        .filter_map(|a| a.get_long())
        .map(str::to_owned)
        .collect()
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
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
    fn mistakes_are_named() {
        assert!(
            parse("clusters: 16x8")
                .unwrap_err()
                .contains("unknown key `clusters`, did you mean cluster?")
        );
        assert!(
            parse("jobs: many")
                .unwrap_err()
                .contains("key `jobs`: invalid type")
        );
        assert!(parse("knowledge: all").unwrap_err().contains("expected one of"));
        assert!(parse(": : :").is_err());
    }
}
