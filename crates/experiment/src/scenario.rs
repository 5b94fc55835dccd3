//! Scenario files: YAML with the settings of an experiment as keys.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use dovetail_model::suggest::nearest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ExperimentError, OutputSpec, RunSpec};

/// Settings by key, as in a scenario file.
pub type Settings = BTreeMap<String, Value>;

/// Keys whose value is a text that may be written as a bare number: spans of time and factors.
const NUMBERS_AS_TEXT: [&str; 7] = [
    "restart-cost",
    "checkpoint",
    "checkpoint-cost",
    "mtbf",
    "repair",
    "spread-penalty",
    "track",
];

/// The content of a scenario file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scenario {
    /// The policy of a single run.
    pub policy: Option<String>,
    /// The policies of a comparison.
    pub policies: Option<String>,
    /// The loads of a comparison.
    pub loads: Option<String>,
    /// The seeds of a comparison.
    pub seeds: Option<String>,
    /// Workload, cluster and settings.
    pub run: RunSpec,
    /// What happens with the results.
    pub output: OutputSpec,
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

/// An error in a scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The text is not a YAML mapping.
    #[error("{0}")]
    Syntax(String),
    /// There is no such setting.
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
    /// The key belongs to another kind of experiment.
    #[error("key `{key}` of the scenario is for `dovetail {command}`")]
    OtherCommand {
        /// The key.
        key: &'static str,
        /// The command that takes it.
        command: &'static str,
    },
}

fn did_you_mean(similar: &[String]) -> String {
    match similar.is_empty() {
        true => String::new(),
        false => format!(", did you mean {}?", similar.join(" or ")),
    }
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// Names the file and the invalid key.
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        let text = std::fs::read_to_string(path).map_err(|source| ExperimentError::Unreadable {
            what: "scenario",
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).map_err(|source| ExperimentError::ScenarioFile {
            path: path.to_owned(),
            source,
        })
    }

    /// Parses the text of a scenario file.
    ///
    /// # Errors
    /// Names the invalid key.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        match text.trim() {
            "" => Ok(Self::default()),
            _ => {
                let settings = serde_saphyr::from_str(text);
                Self::from_settings(settings.map_err(|e| ScenarioError::Syntax(first_line(&e)))?)
            }
        }
    }

    /// Reads settings that were parsed before, from a file or from the arguments of a function call.
    ///
    /// # Errors
    /// Names the invalid key.
    pub fn from_settings(mut settings: Settings) -> Result<Self, ScenarioError> {
        let mut list = |key: &str| -> Result<Option<String>, ScenarioError> {
            let Some(value) = settings.remove(key) else {
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
        for key in NUMBERS_AS_TEXT {
            if let Some(value) = settings.get_mut(key).filter(|v| v.is_number()) {
                *value = Value::String(value.to_string());
            }
        }
        let (of_run, of_output) = (keys_of::<RunSpec>(), keys_of::<OutputSpec>());
        let mut known = of_run.iter().chain(&of_output).map(String::as_str);
        if let Some(key) = settings.keys().find(|key| !known.clone().any(|k| k == *key)) {
            let similar = nearest(key, known.by_ref());
            return Err(ScenarioError::UnknownKey {
                key: key.clone(),
                similar: similar.into_iter().map(str::to_owned).collect(),
            });
        }
        let (output, run): (Settings, Settings) =
            settings.into_iter().partition(|(key, _)| of_output.contains(key));
        Ok(Self {
            policy,
            policies,
            loads,
            seeds,
            run: from_keys(run)?,
            output: from_keys(output)?,
        })
    }

    /// Rejects the keys of a comparison.
    ///
    /// # Errors
    /// Names the key.
    pub fn for_one_run(self) -> Result<Self, ScenarioError> {
        let lists = [
            ("policies", &self.policies),
            ("loads", &self.loads),
            ("seeds", &self.seeds),
        ];
        match lists.iter().find(|(_, value)| value.is_some()) {
            None => Ok(self),
            Some((key, _)) => Err(ScenarioError::OtherCommand {
                key,
                command: "compare",
            }),
        }
    }

    /// Rejects the keys of a single run.
    ///
    /// # Errors
    /// Names the key.
    pub fn for_comparison(self) -> Result<Self, ScenarioError> {
        match self.policy {
            None => Ok(self),
            Some(_) => Err(ScenarioError::OtherCommand {
                key: "policy",
                command: "simulate",
            }),
        }
    }
}

/// Returns the keys of a type whose fields all have a default.
fn keys_of<T: Default + Serialize>() -> Vec<String> {
    match serde_json::to_value(T::default()) {
        Ok(Value::Object(map)) => map.into_iter().map(|(key, _)| key).collect(),
        _ => Vec::new(),
    }
}

/// Reads a value key by key, so that an error names the key.
fn from_keys<T: DeserializeOwned>(settings: Settings) -> Result<T, ScenarioError> {
    for (key, value) in &settings {
        let alone = serde_json::json!({ key: value });
        serde_json::from_value::<T>(alone).map_err(|e| invalid(key, &e))?;
    }
    let all = Value::Object(settings.into_iter().collect());
    serde_json::from_value(all).map_err(|e| ScenarioError::Syntax(first_line(&e)))
}

fn invalid(key: &str, reason: &dyn Display) -> ScenarioError {
    ScenarioError::InvalidValue {
        key: key.to_owned(),
        reason: first_line(reason),
    }
}

/// Returns the first line of a message.
fn first_line(message: &dyn Display) -> String {
    let text = message.to_string();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_settings() {
        let scenario = Scenario::parse(
            "policies: [fifo, srsf]\nloads: [0.7, 1]\nseeds: 1..3\ncluster: 16x8\nrestart-cost: 30\ncheck: true\njson: true",
        )
        .unwrap();
        assert_eq!(scenario.policies.as_deref(), Some("fifo,srsf"));
        assert_eq!(scenario.loads.as_deref(), Some("0.7,1"));
        assert_eq!(scenario.run.restart_cost.as_deref(), Some("30"));
        assert!(scenario.run.check && scenario.output.json);
        assert_eq!(Scenario::parse("").unwrap(), Scenario::default());
    }

    #[test]
    fn errors_name_the_key() {
        let error = |text: &str| Scenario::parse(text).unwrap_err().to_string();
        assert!(error("clusters: 16x8").contains("unknown key `clusters`, did you mean cluster?"));
        assert!(error("jobs: many").contains("key `jobs`: invalid type"));
        assert!(error("knowledge: all").contains("expected one of"));
        assert!(error("moments: true").contains("unknown key"));
        assert!(Scenario::parse(": : :").is_err());
    }

    #[test]
    fn lists_belong_to_comparisons() {
        let scenario = |text: &str| Scenario::parse(text).unwrap();
        let error = scenario("seeds: 1..3").for_one_run().unwrap_err();
        assert_eq!(
            error.to_string(),
            "key `seeds` of the scenario is for `dovetail compare`"
        );
        assert!(scenario("policy: fifo").for_comparison().is_err());
    }
}
