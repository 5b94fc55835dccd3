//! Names of parts with their knobs, as users write them: `name:key=value,key=value`, or `name:value` for the first knob.

use std::collections::BTreeMap;
use std::str::FromStr;

use dovetail_model::suggest::nearest;
use dovetail_model::{Time, parse_span};

use crate::error::PolicyError;

/// A setting of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// Name of the knob.
    pub name: &'static str,
    /// Value unless the user sets one.
    pub default: &'static str,
    /// What it does, and which values are accepted.
    pub what: &'static str,
}

/// A part's name and the knobs that were set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartSpec {
    /// Name of the part.
    pub name: String,
    /// A value without a key, for the part's first knob.
    pub positional: Option<String>,
    /// The values by key.
    pub knobs: BTreeMap<String, String>,
}

impl PartSpec {
    /// A part with the default of each knob.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }
}

impl FromStr for PartSpec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let malformed = || PolicyError::Malformed {
            text: text.to_owned(),
        };
        let (name, rest) = text.split_once(':').map_or((text, None), |(n, r)| (n, Some(r)));
        if name.trim().is_empty() || rest.is_some_and(|r| r.trim().is_empty()) {
            return Err(malformed());
        }
        let mut spec = PartSpec::named(name.trim());
        for (i, item) in rest.into_iter().flat_map(|r| r.split(',')).enumerate() {
            match item.split_once('=') {
                Some((key, value)) => {
                    let set = spec.knobs.insert(key.trim().to_owned(), value.trim().to_owned());
                    if set.is_some() || key.trim().is_empty() {
                        return Err(malformed());
                    }
                }
                None if i == 0 => spec.positional = Some(item.trim().to_owned()),
                None => return Err(malformed()),
            }
        }
        Ok(spec)
    }
}

/// The knobs of one part: those it declares, with the values that were set.
#[derive(Debug, Clone)]
pub struct Knobs {
    kind: &'static str,
    part: String,
    declared: &'static [Knob],
    values: BTreeMap<String, String>,
}

impl Knobs {
    /// Checks that the part has every knob that was set.
    ///
    /// # Errors
    /// Names the knob that does not exist, and those that do.
    pub fn new(kind: &'static str, declared: &'static [Knob], spec: &PartSpec) -> Result<Self, PolicyError> {
        let mut values = spec.knobs.clone();
        let names = || declared.iter().map(|knob| knob.name);
        let unknown = |knob: &str| PolicyError::UnknownKnob {
            kind,
            part: spec.name.clone(),
            knob: knob.to_owned(),
            near: nearest(knob, names()).into_iter().map(str::to_owned).collect(),
            known: names().collect(),
        };
        if let Some(value) = &spec.positional {
            let first = declared.first().ok_or_else(|| unknown(value))?;
            values.insert(first.name.to_owned(), value.clone());
        }
        match values.keys().find(|key| names().all(|name| name != key.as_str())) {
            Some(key) => Err(unknown(key)),
            None => Ok(Self {
                kind,
                part: spec.name.clone(),
                declared,
                values,
            }),
        }
    }

    /// The text of a knob: as set, or its default.
    pub fn text(&self, name: &str) -> &str {
        let declared = self
            .declared
            .iter()
            .find(|k| k.name == name)
            .expect("a part reads only knobs it declares");
        self.values.get(name).map_or(declared.default, String::as_str)
    }

    /// Parses the value of a knob.
    ///
    /// # Errors
    /// States what is expected instead.
    pub fn get<T: FromStr>(&self, name: &str, expected: &str) -> Result<T, PolicyError> {
        self.text(name).parse().map_err(|_| self.invalid(name, expected))
    }

    /// A number of at least `least`.
    ///
    /// # Errors
    /// States what is expected instead.
    pub fn at_least(&self, name: &str, least: f64) -> Result<f64, PolicyError> {
        let expected = format!("a number of at least {least}");
        let value: f64 = self.get(name, &expected)?;
        if value.is_finite() && value >= least {
            Ok(value)
        } else {
            Err(self.invalid(name, &expected))
        }
    }

    /// A span of time: `90`, `90s`, `5m`, `2h`, `1d`.
    ///
    /// # Errors
    /// States what is expected instead.
    pub fn span(&self, name: &str) -> Result<Time, PolicyError> {
        let span = parse_span(self.text(name));
        span.ok_or_else(|| self.invalid(name, "a span of time such as 30s, 5m, 2h or 1d"))
    }

    /// Increasing numbers separated by slashes; or a first number and a factor, `3250*3`, for ten of them.
    ///
    /// # Errors
    /// States what is expected instead.
    pub fn increasing(&self, name: &str) -> Result<Vec<f64>, PolicyError> {
        let expected =
            "numbers above zero separated by `/`, each larger than the one before, or FIRST*FACTOR";
        let parse = |n: &str| n.trim().parse::<f64>().map_err(|_| self.invalid(name, expected));
        let numbers: Vec<f64> = match self.text(name).split_once('*') {
            Some((first, factor)) => {
                let (first, factor) = (parse(first)?, parse(factor)?);
                std::iter::successors(Some(first), |n| Some(n * factor))
                    .take(10)
                    .collect()
            }
            None => self.text(name).split('/').map(parse).collect::<Result<_, _>>()?,
        };
        let are_positive = numbers.iter().all(|n| n.is_finite() && *n > 0.0);
        if are_positive && numbers.windows(2).all(|w| w[0] < w[1]) {
            Ok(numbers)
        } else {
            Err(self.invalid(name, expected))
        }
    }

    /// The error for a value that is not accepted.
    pub fn invalid(&self, name: &str, expected: &str) -> PolicyError {
        PolicyError::InvalidValue {
            kind: self.kind,
            part: self.part.clone(),
            knob: name.to_owned(),
            value: self.text(name).to_owned(),
            expected: expected.to_owned(),
        }
    }

    /// The part's name with the knobs that were set.
    pub fn name(&self) -> String {
        let set: Vec<String> = self.values.iter().map(|(k, v)| format!("{k}={v}")).collect();
        if set.is_empty() {
            self.part.clone()
        } else {
            format!("{}:{}", self.part, set.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOBS: &[Knob] = &[
        Knob {
            name: "factor",
            default: "1.2",
            what: "",
        },
        Knob {
            name: "limits",
            default: "1/2",
            what: "",
        },
        Knob {
            name: "wait",
            default: "5m",
            what: "",
        },
    ];

    fn parse(text: &str) -> Result<Knobs, PolicyError> {
        Knobs::new("admission", KNOBS, &text.parse()?)
    }

    #[test]
    fn knobs_are_set_by_position_or_name() {
        let knobs = parse("load:1.5,wait=2h").unwrap();
        assert_eq!(knobs.get::<f64>("factor", "").unwrap(), 1.5);
        assert_eq!(knobs.span("wait").unwrap(), Time::from_secs(7200));
        assert_eq!(knobs.name(), "load:factor=1.5,wait=2h");
        assert_eq!(parse("load").unwrap().increasing("limits").unwrap(), [1.0, 2.0]);
        let grown = parse("load:limits=2*3").unwrap().increasing("limits").unwrap();
        assert_eq!((grown.len(), &grown[..3]), (10, &[2.0, 6.0, 18.0][..]));
    }

    #[test]
    fn errors_state_what_is_expected() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            error("load:fator=2"),
            "unknown knob `fator` of admission `load` (did you mean `factor`?); it has `factor`, `limits`, `wait`"
        );
        assert!(error("load:").starts_with("invalid policy or part `load:`"));
        assert!(error("load:factor=1,factor=2").starts_with("invalid policy or part"));
        let wait = parse("load:wait=soon").unwrap().span("wait").unwrap_err();
        assert_eq!(
            wait.to_string(),
            "admission `load`: invalid value `soon` for knob `wait`: expected a span of time such as 30s, 5m, 2h or 1d"
        );
        for text in ["load:limits=2/1", "load:limits=2*1", "load:limits=2*x"] {
            assert!(parse(text).unwrap().increasing("limits").is_err(), "{text}");
        }
        assert!(parse("load:factor=NaN").unwrap().at_least("factor", 0.0).is_err());
    }
}
