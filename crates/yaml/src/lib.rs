//! YAML files read key by key, so that every error names the path of the key: `racks[0].nodes`.
//!
//! [`parse()`] reads the text, [`Entry`] walks through it.

use dovetail_model::suggest::nearest;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Longest part of a value that an error shows, in characters.
const MAX_SHOWN: usize = 60;

/// A YAML file that does not have the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// The text is not YAML.
    #[error("{file}: not YAML: {reason}")]
    NotYaml {
        /// The file.
        file: String,
        /// Message of the YAML parser, with the line.
        reason: String,
    },
    /// A key or value is wrong.
    #[error("{file}: {path}: {what}")]
    Key {
        /// The file.
        file: String,
        /// Path of the key from the top of the file.
        path: String,
        /// What was found and what is expected.
        what: String,
    },
}

/// A text that is not YAML, or does not have the form of the type it is read into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SyntaxError(String);

/// Parses a text into `T`; only `true` and `false` are booleans, because a cell type may be called `N`.
///
/// # Errors
/// The first line of the parser's message, which names line and column.
pub fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, SyntaxError> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| SyntaxError(first_line(&e.to_string())))
}

/// Parses the content of a YAML file; `file` is its name in errors.
///
/// # Errors
/// When the text is not YAML.
pub fn parse(text: &str, file: &str) -> Result<Value, YamlError> {
    from_text(text).map_err(|SyntaxError(reason)| YamlError::NotYaml {
        file: file.to_owned(),
        reason,
    })
}

/// Returns the first line of a parser's message; the lines below it show the surrounding text.
fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

/// Cuts a long value for an error message.
fn shorten(text: &str) -> String {
    if text.chars().count() <= MAX_SHOWN {
        return text.to_owned();
    }
    text.chars().take(MAX_SHOWN).chain("…".chars()).collect()
}

/// A value with its path from the top of the file.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    file: &'a str,
    path: String,
    value: &'a Value,
}

impl<'a> Entry<'a> {
    /// Returns the entry for a whole file.
    pub fn top(file: &'a str, value: &'a Value) -> Self {
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

    /// Returns the value of a key, if the key is present.
    ///
    /// # Errors
    /// When this entry is not a mapping.
    pub fn get(&self, key: &str) -> Result<Option<Entry<'a>>, YamlError> {
        let value = self.map()?.get(key);
        Ok(value.map(|value| self.below(key, value)))
    }

    /// Returns all keys with their values.
    ///
    /// # Errors
    /// When this entry is not a mapping, or has a key that is not in `known`.
    pub fn entries(&self, known: &[&str]) -> Result<Vec<(&'a str, Entry<'a>)>, YamlError> {
        let entries = self.all_entries()?;
        if let Some((key, entry)) = entries.iter().find(|(key, _)| !known.contains(key)) {
            let near = nearest(key, known.iter().copied());
            let hint = near
                .first()
                .map(|n| format!(" (did you mean {n}?)"))
                .unwrap_or_default();
            return Err(entry.wrong(format!("unknown key{hint}; expected one of {}", known.join(", "))));
        }
        Ok(entries)
    }

    /// Returns all keys with their values, whatever the keys are.
    ///
    /// # Errors
    /// When this entry is not a mapping.
    pub fn all_entries(&self) -> Result<Vec<(&'a str, Entry<'a>)>, YamlError> {
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

    /// Returns the elements of a list, or `None` if this entry is not a list.
    pub fn list(&self) -> Option<Vec<Entry<'a>>> {
        let items = self.value.as_array()?.iter().enumerate();
        let item = |(i, value)| Entry {
            file: self.file,
            path: format!("{}[{i}]", self.path),
            value,
        };
        Some(items.map(item).collect())
    }

    /// Returns a name: text that is not blank, or a number.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn text(&self) -> Result<String, YamlError> {
        match self.value {
            Value::String(text) if !text.trim().is_empty() => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err(self.expected("a name")),
        }
    }

    /// Returns a boolean.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn flag(&self) -> Result<bool, YamlError> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    /// Whether the key is present without a value.
    pub fn is_null(&self) -> bool {
        self.value.is_null()
    }

    /// Returns a whole number from `least` to `most`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn whole(&self, least: u64, most: u64) -> Result<u64, YamlError> {
        let number = self.value.as_u64().filter(|n| (least..=most).contains(n));
        number.ok_or_else(|| self.expected(&format!("a whole number from {least} to {most}")))
    }

    /// Returns a number from `least` to `most`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn amount(&self, least: f64, most: f64) -> Result<f64, YamlError> {
        let number = self.value.as_f64().filter(|n| (least..=most).contains(n));
        number.ok_or_else(|| self.expected(&format!("a number from {least} to {most}")))
    }

    /// Returns the error that shows the value and says what is expected instead.
    pub fn expected(&self, expected: &str) -> YamlError {
        self.wrong(format!(
            "found {}, expected {expected}",
            shorten(&self.value.to_string())
        ))
    }

    /// Returns an error about this entry.
    pub fn wrong(&self, what: impl Into<String>) -> YamlError {
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
