//! Walking through a YAML file so that every mistake is named by its path: `racks[0].nodes`.

use dovetail_model::suggest::nearest;
use serde_json::{Map, Value};

use crate::error::{first_line, shorten};

/// A YAML file that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// It is not YAML.
    #[error("{file}: not YAML: {reason}")]
    NotYaml {
        /// The file.
        file: String,
        /// What the YAML reader says, with the line.
        reason: String,
    },
    /// A key or value is wrong.
    #[error("{file}: {path}: {what}")]
    Key {
        /// The file.
        file: String,
        /// The key, from the top.
        path: String,
        /// What was found and what is expected.
        what: String,
    },
}

/// The content of a YAML file.
pub(crate) fn parse(text: &str, file: &str) -> Result<Value, YamlError> {
    // Only true and false are booleans: a cell type may well be called N.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| YamlError::NotYaml {
        file: file.to_owned(),
        reason: first_line(&e.to_string()),
    })
}

/// A value and the way to it from the top of the file.
#[derive(Debug, Clone)]
pub(crate) struct Entry<'a> {
    file: &'a str,
    path: String,
    value: &'a Value,
}

impl<'a> Entry<'a> {
    /// The top of a file.
    pub(crate) fn top(file: &'a str, value: &'a Value) -> Self {
        Self {
            file,
            path: String::new(),
            value,
        }
    }

    fn map(&self) -> Result<&'a Map<String, Value>, YamlError> {
        self.value
            .as_object()
            .ok_or_else(|| self.expected("keys with values"))
    }

    /// The value under a key, if it is there.
    pub(crate) fn get(&self, key: &str) -> Result<Option<Entry<'a>>, YamlError> {
        let value = self.map()?.get(key);
        Ok(value.map(|value| self.below(key, value)))
    }

    /// All keys with their values, checked to be among those known.
    pub(crate) fn entries(&self, known: &[&str]) -> Result<Vec<(&'a str, Entry<'a>)>, YamlError> {
        let entries = self.all_entries()?;
        if let Some((key, entry)) = entries.iter().find(|(key, _)| !known.contains(key)) {
            let near = nearest(key, known.iter().copied());
            let hint = near
                .first()
                .map(|n| format!(" (did you mean {n}?)"))
                .unwrap_or_default();
            return Err(entry.wrong(format!("unknown key{hint}; known are {}", known.join(", "))));
        }
        Ok(entries)
    }

    /// All keys with their values.
    pub(crate) fn all_entries(&self) -> Result<Vec<(&'a str, Entry<'a>)>, YamlError> {
        let entries = self
            .map()?
            .iter()
            .map(|(key, value)| (key.as_str(), self.below(key, value)));
        Ok(entries.collect())
    }

    fn below(&self, key: &str, value: &'a Value) -> Entry<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        Entry {
            file: self.file,
            path: format!("{}{dot}{key}", self.path),
            value,
        }
    }

    /// The elements of a list, none if it is not one.
    pub(crate) fn list(&self) -> Option<Vec<Entry<'a>>> {
        let items = self.value.as_array()?.iter().enumerate();
        let item = |(i, value)| Entry {
            file: self.file,
            path: format!("{}[{i}]", self.path),
            value,
        };
        Some(items.map(item).collect())
    }

    /// A name.
    pub(crate) fn text(&self) -> Result<String, YamlError> {
        match self.value {
            Value::String(text) if !text.trim().is_empty() => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err(self.expected("a name")),
        }
    }

    /// Yes or no.
    pub(crate) fn flag(&self) -> Result<bool, YamlError> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    /// Whether the key is there without a value.
    pub(crate) fn is_null(&self) -> bool {
        self.value.is_null()
    }

    /// A whole number.
    pub(crate) fn whole(&self, least: u64, most: u64) -> Result<u64, YamlError> {
        let number = self.value.as_u64().filter(|n| (least..=most).contains(n));
        number.ok_or_else(|| self.expected(&format!("a whole number from {least} to {most}")))
    }

    /// A number.
    pub(crate) fn amount(&self, least: f64, most: f64) -> Result<f64, YamlError> {
        let number = self.value.as_f64().filter(|n| (least..=most).contains(n));
        number.ok_or_else(|| self.expected(&format!("a number from {least} to {most}")))
    }

    /// The error that something else is expected here.
    pub(crate) fn expected(&self, expected: &str) -> YamlError {
        self.wrong(format!(
            "found {}, expected {expected}",
            shorten(&self.value.to_string())
        ))
    }

    /// An error about this place.
    pub(crate) fn wrong(&self, what: impl Into<String>) -> YamlError {
        let path = if self.path.is_empty() {
            "top level"
        } else {
            &self.path
        };
        YamlError::Key {
            file: self.file.to_owned(),
            path: path.to_owned(),
            what: what.into(),
        }
    }
}
