//! Parts of a generator as text, `name:key=value,key=value`, as on the command line and in files.

use super::GenerateError;

/// A parsed part: its name and its settings.
pub(super) struct Part<'a> {
    field: &'static str,
    text: &'a str,
    pub(super) name: &'a str,
    settings: Vec<(&'a str, &'a str)>,
}

impl<'a> Part<'a> {
    /// Parses `name`, `name:key=value,...` or, for the only or most important key, `name:value`.
    pub(super) fn parse(
        field: &'static str,
        text: &'a str,
        bare_key: &'a str,
    ) -> Result<Self, GenerateError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut settings = Vec::new();
        for setting in rest.split(',').map(str::trim).filter(|s| !s.is_empty()) {
            settings.push(match setting.split_once('=') {
                Some((key, value)) => (key.trim(), value.trim()),
                None => (bare_key, setting),
            });
        }
        Ok(Self {
            field,
            text,
            name: name.trim(),
            settings,
        })
    }

    /// Returns a number, or its default if it is not set.
    pub(super) fn number(
        &self,
        key: &str,
        default: Option<f64>,
        range: std::ops::RangeInclusive<f64>,
    ) -> Result<f64, GenerateError> {
        let expected = || format!("{key} to be a number from {} to {}", range.start(), range.end());
        match self.settings.iter().find(|(k, _)| *k == key) {
            Some((_, value)) => {
                let number = value.parse().ok().filter(|n| range.contains(n));
                number.ok_or_else(|| self.wrong(expected()))
            }
            None => default.ok_or_else(|| self.wrong(expected())),
        }
    }

    /// Checks that no other keys are set.
    pub(super) fn only(self, keys: &[&str]) -> Result<(), GenerateError> {
        match self.settings.iter().find(|(key, _)| !keys.contains(key)) {
            Some(_) if keys.is_empty() => Err(self.wrong(format!("no settings of {}", self.name))),
            Some(_) => Err(self.wrong(format!("only these keys: {}", keys.join(", ")))),
            None => Ok(()),
        }
    }

    /// Returns the error for a name that is not in `known`.
    pub(super) fn unknown(&self, known: &[&str]) -> GenerateError {
        let near = dovetail_model::suggest::nearest(self.name, known.iter().copied());
        let hint = near
            .first()
            .map(|n| format!(" (did you mean {n}?)"))
            .unwrap_or_default();
        self.wrong(format!("one of {}{hint}", known.join(", ")))
    }

    fn wrong(&self, expected: String) -> GenerateError {
        GenerateError {
            field: self.field,
            found: format!("{:?}", self.text),
            expected,
        }
    }
}

/// Text forms and serde for a part.
macro_rules! part_as_text {
    ($part:ty) => {
        impl TryFrom<String> for $part {
            type Error = GenerateError;
            fn try_from(text: String) -> Result<Self, GenerateError> {
                text.parse()
            }
        }

        impl From<$part> for String {
            fn from(part: $part) -> String {
                part.to_string()
            }
        }
    };
}
pub(super) use part_as_text;
