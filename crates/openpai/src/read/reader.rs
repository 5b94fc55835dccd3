//! Access to the values of a file. Mistakes are collected, and reading continues.

use super::{Mode, suggestion};
use crate::remark::Remark;
use crate::value::Value;

/// A value and its path from the top of the file.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    pub(super) path: String,
    /// Last key of the path.
    pub(super) key: String,
    pub(super) value: &'a Value,
}

impl<'a> Cursor<'a> {
    /// Returns the value of a key; [`Value::Null`] if it is missing.
    pub(super) fn at(&self, key: &str) -> Cursor<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        Cursor {
            path: format!("{}{dot}{key}", self.path),
            key: key.to_owned(),
            value: self.value.get(key).unwrap_or(&Value::Null),
        }
    }

    /// Returns the value of a key, if it is not null.
    fn present(&self, key: &str) -> Option<Cursor<'a>> {
        let below = self.at(key);
        (*below.value != Value::Null).then_some(below)
    }
}

/// Collects the mistakes of a file.
#[derive(Debug)]
pub(super) struct Reader {
    mode: Mode,
    pub(super) faults: Vec<Remark>,
    pub(super) remarks: Vec<Remark>,
}

impl Reader {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            mode,
            faults: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Reports a mistake, in either mode.
    pub(super) fn fault(&mut self, at: &Cursor<'_>, message: impl Into<String>) {
        self.faults.push(Remark::new(at.path.clone(), message));
    }

    /// Reports an unexpected value.
    pub(super) fn expected(&mut self, at: &Cursor<'_>, expected: &str) {
        self.fault(at, format!("expected {expected}, found {}", at.value.describe()));
    }

    /// Reports a mistake in strict mode, or in lenient mode how it is handled.
    pub(super) fn doubtful(&mut self, remark: Remark, otherwise: &str) {
        match self.mode {
            Mode::Strict => self.faults.push(remark),
            Mode::Lenient => {
                let message = format!("{}; {otherwise}", remark.message);
                self.remarks.push(Remark::new(remark.path, message));
            }
        }
    }

    /// Reports that something is ignored, in either mode.
    pub(super) fn ignored(&mut self, at: &Cursor<'_>, message: impl Into<String>) {
        self.remarks.push(Remark::new(at.path.clone(), message));
    }

    /// Reports a reference to an unknown name of a kind.
    pub(super) fn unknown_name<'n>(
        &mut self,
        at: &Cursor<'_>,
        name: &str,
        kind: &str,
        known: impl Iterator<Item = &'n str> + Clone,
    ) {
        let listed: Vec<&str> = known.clone().collect();
        let suggestion = suggestion(name, known);
        let listed = if listed.is_empty() {
            "the file defines none".to_owned()
        } else {
            format!("expected one of {}", listed.join(", "))
        };
        self.fault(at, format!("unknown {kind} `{name}`{suggestion}; {listed}"));
    }

    /// Reports duplicate keys, and keys that are not known.
    pub(super) fn only(&mut self, at: &Cursor<'_>, known: &[&str]) {
        let Value::Map(entries) = at.value else { return };
        for (i, (key, _)) in entries.iter().enumerate() {
            if entries[..i].iter().any(|(k, _)| k == key) {
                self.fault(&at.at(key), "duplicate key");
            }
            if !known.contains(&key.as_str()) {
                let suggestion = suggestion(key, known.iter().copied());
                let message = format!("unknown key{suggestion}; expected one of {}", known.join(", "));
                self.doubtful(Remark::new(at.at(key).path, message), "ignored");
            }
        }
    }

    /// Returns whether the value is a map, and checks its keys.
    pub(super) fn is_map(&mut self, at: &Cursor<'_>, known: &[&str]) -> bool {
        if !matches!(at.value, Value::Map(_)) {
            self.expected(at, &format!("a map with some of {}", known.join(", ")));
            return false;
        }
        self.only(at, known);
        true
    }

    /// Returns the map of a key, and checks its keys.
    pub(super) fn map<'a>(&mut self, at: &Cursor<'a>, key: &str, known: &[&str]) -> Option<Cursor<'a>> {
        let below = at.present(key)?;
        self.is_map(&below, known).then_some(below)
    }

    /// Returns the map of a key, which may have any keys.
    pub(super) fn any_map(&mut self, at: &Cursor<'_>, key: &str) -> Value {
        match at.present(key) {
            None => Value::Null,
            Some(below) if matches!(below.value, Value::Map(_)) => below.value.clone(),
            Some(below) => {
                self.expected(&below, "a map");
                Value::Null
            }
        }
    }

    /// Returns the entries of a map of any keys.
    pub(super) fn entries<'a>(&mut self, at: &Cursor<'a>, key: &str) -> Vec<Cursor<'a>> {
        let Some(below) = at.present(key) else {
            return Vec::new();
        };
        let Value::Map(entries) = below.value else {
            self.expected(&below, "a map");
            return Vec::new();
        };
        entries.iter().map(|(key, _)| below.at(key)).collect()
    }

    /// Returns the items of a list; none if the key is missing.
    pub(super) fn list<'a>(&mut self, at: &Cursor<'a>, key: &str) -> Vec<Cursor<'a>> {
        let Some(below) = at.present(key) else {
            return Vec::new();
        };
        let Value::List(list) = below.value else {
            self.expected(&below, "a list");
            return Vec::new();
        };
        let item = |(i, value): (usize, _)| Cursor {
            path: format!("{}[{i}]", below.path),
            key: i.to_string(),
            value,
        };
        list.iter().enumerate().map(item).collect()
    }

    /// Returns the items of a list of strings.
    pub(super) fn texts(&mut self, at: &Cursor<'_>, key: &str) -> Vec<String> {
        let items = self.list(at, key);
        items.iter().filter_map(|item| self.as_text(item)).collect()
    }

    /// Returns the lines of a shell script. Numbers and booleans count as text.
    pub(super) fn lines(&mut self, at: &Cursor<'_>, key: &str) -> Vec<String> {
        let items = self.list(at, key);
        let lines = items.iter().filter_map(|item| {
            let text = item.value.to_text();
            if text.is_none() {
                self.expected(item, "a line of a shell script");
            }
            text
        });
        lines.collect()
    }

    pub(super) fn as_text(&mut self, at: &Cursor<'_>) -> Option<String> {
        match at.value {
            Value::Text(text) => Some(text.clone()),
            _ => {
                self.expected(at, "a string");
                None
            }
        }
    }

    /// Returns the string of a key.
    pub(super) fn text(&mut self, at: &Cursor<'_>, key: &str) -> Option<String> {
        let below = at.present(key)?;
        self.as_text(&below)
    }

    /// Returns the string or number of a key.
    pub(super) fn text_or_number(&mut self, at: &Cursor<'_>, key: &str) -> Option<String> {
        let below = at.present(key)?;
        match below.value {
            Value::Integer(number) => Some(number.to_string()),
            Value::Float(number) => Some(format!("{number:?}")),
            _ => self.as_text(&below),
        }
    }

    /// Returns the boolean of a key.
    pub(super) fn flag(&mut self, at: &Cursor<'_>, key: &str) -> Option<bool> {
        let below = at.present(key)?;
        match below.value {
            Value::Bool(value) => Some(*value),
            _ => {
                self.expected(&below, "true or false");
                None
            }
        }
    }

    /// Returns the integer of a key, which must be in this range.
    pub(super) fn integer(&mut self, at: &Cursor<'_>, key: &str, min: i64, max: i64) -> Option<i64> {
        let below = at.present(key)?;
        match below.value {
            Value::Integer(number) if (min..=max).contains(number) => Some(*number),
            _ => {
                self.expected(&below, &format!("an integer from {min} to {max}"));
                None
            }
        }
    }

    /// Returns the value of a key that must be present.
    pub(super) fn required<'a>(&mut self, at: &Cursor<'a>, key: &str, expected: &str) -> Option<Cursor<'a>> {
        let present = at.present(key);
        if present.is_none() {
            self.fault(&at.at(key), format!("missing: expected {expected}"));
        }
        present
    }

    /// Returns the string of a key that must be present.
    pub(super) fn required_text(&mut self, at: &Cursor<'_>, key: &str, expected: &str) -> Option<String> {
        let below = self.required(at, key, expected)?;
        self.as_text(&below)
    }

    /// Checks the version of the protocol.
    pub(super) fn protocol_version(&mut self, at: &Cursor<'_>, needed: bool) {
        let found = if needed {
            self.required(at, "protocolVersion", "2")
        } else {
            at.present("protocolVersion")
        };
        if let Some(version) = found
            && version.value.to_text().as_deref() != Some("2")
        {
            self.expected(&version, "protocol version 2");
        }
    }
}
