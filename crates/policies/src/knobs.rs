//! Part names with knobs, as people write them: `name:key=value,key=value`, or `name:value` for the first knob.

use std::collections::BTreeMap;
use std::str::FromStr;

use dovetail_model::Time;
use dovetail_model::suggest::nearest;
use thiserror::Error;

/// A knob a part has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// What it is when nobody sets it.
    pub default: &'static str,
    /// What it does, and what is accepted.
    pub what: &'static str,
}

/// What can be wrong with the name of a policy or a part.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// There is no such thing.
    #[error("unknown {kind} `{name}`{}; `dovetail policies` lists all of them", did_you_mean(.near))]
    Unknown {
        /// What was looked for ("policy", "placement").
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// Names close to it.
        near: Vec<String>,
    },
    /// The part has no such knob.
    #[error("{kind} `{part}` has no knob `{knob}`{}; it has {known}", did_you_mean(.near))]
    UnknownKnob {
        /// What kind of part it is.
        kind: &'static str,
        /// The part.
        part: String,
        /// The knob that was given.
        knob: String,
        /// Knobs close to it.
        near: Vec<String>,
        /// All its knobs.
        known: String,
    },
    /// The knob does not take this value.
    #[error("{kind} `{part}`: knob `{knob}` found `{value}`, expected {expected}")]
    BadValue {
        /// What kind of part it is.
        kind: &'static str,
        /// The part.
        part: String,
        /// The knob.
        knob: String,
        /// The value that was given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// A sizing or grouping that looks at all jobs at once, with a walk that never asks it.
    #[error(
        "a sizing or grouping that looks at all jobs at once needs discipline `replan`, found `{discipline}`"
    )]
    NeedsReplan {
        /// The discipline that was given.
        discipline: String,
    },
    /// A grouping that puts jobs beside others needs the walk that asks it.
    #[error(
        "grouping `pair` puts jobs beside running ones and needs discipline `share`, found `{discipline}`"
    )]
    NeedsShare {
        /// The discipline that was given.
        discipline: String,
    },
    /// A tenancy with limits, with a walk that does not ask it about every job.
    #[error(
        "a tenancy with limits needs discipline `preempt`, `backfill`, `strict` or `replan`, found `{discipline}`"
    )]
    NeedsPlainWalk {
        /// The discipline that was given.
        discipline: String,
    },
    /// A quota of GPUs that several jobs are on.
    #[error("tenancy `quota` counts GPUs of one job each; expected grouping `none`, or tenancy `cells:FILE`")]
    QuotaOfShared,
    /// Jobs of different widths on the GPUs of a tenancy with limits.
    #[error(
        "a tenancy with limits needs groups that share all of their GPUs; expected grouping `none` or `muri` without `unequal`"
    )]
    CellsOverlap,
    /// The cells of a file are wanted where no file can be read.
    #[error(
        "tenancy `cells:{file}`: virtual clusters are there for `simulate` and `compare` only, as --tenancy cells:FILE"
    )]
    NoCells {
        /// The file that was given.
        file: String,
    },
    /// The cluster is not the one the cells are of.
    #[error("tenancy `cells`: node {node} {what}; `--cluster` with the same file is right")]
    NotInCells {
        /// The node.
        node: String,
        /// What is wrong with it.
        what: String,
    },
    /// A quota is wanted where the names of tenants are not known.
    #[error(
        "tenancy `quota`: shares are there for `simulate` and `compare` only, which know the tenants of a workload"
    )]
    NoTenants,
    /// The quota leaves tenants out.
    #[error(
        "tenancy `quota`: no share for tenant {tenants}; add TENANT=GPUS for it, or default=GPUS for all others"
    )]
    NoShare {
        /// Those without a share.
        tenants: String,
    },
    /// The text is not of the form `name:key=value,...`.
    #[error("cannot read `{text}`: expected NAME, NAME:VALUE or NAME:KEY=VALUE,KEY=VALUE")]
    Malformed {
        /// The text.
        text: String,
    },
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        names => format!(
            ", did you mean {}?",
            names
                .iter()
                .map(|n| format!("`{n}`"))
                .collect::<Vec<_>>()
                .join(" or ")
        ),
    }
}

/// A part's name and the knobs that were set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartSpec {
    /// The name.
    pub name: String,
    /// A value without a key, for the part's first knob.
    pub positional: Option<String>,
    /// The knobs.
    pub knobs: BTreeMap<String, String>,
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
        let mut spec = PartSpec {
            name: name.trim().to_owned(),
            ..PartSpec::default()
        };
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

/// The knobs of one part, checked against what it has.
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
        let unknown = |knob: &str| PolicyError::UnknownKnob {
            kind,
            part: spec.name.clone(),
            knob: knob.to_owned(),
            near: nearest(knob, declared.iter().map(|k| k.name))
                .into_iter()
                .map(str::to_owned)
                .collect(),
            known: match declared {
                [] => "no knobs".to_owned(),
                all => all
                    .iter()
                    .map(|k| format!("`{}`", k.name))
                    .collect::<Vec<_>>()
                    .join(", "),
            },
        };
        if let Some(value) = &spec.positional {
            let first = declared.first().ok_or_else(|| unknown(value))?;
            values.insert(first.name.to_owned(), value.clone());
        }
        match values
            .keys()
            .find(|key| declared.iter().all(|k| k.name != key.as_str()))
        {
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
            .expect("a part reads knobs it declares");
        self.values.get(name).map_or(declared.default, String::as_str)
    }

    /// A number, a flag, or anything else that reads itself.
    ///
    /// # Errors
    /// Says what is expected instead.
    pub fn get<T: FromStr>(&self, name: &str, expected: &str) -> Result<T, PolicyError> {
        self.text(name).parse().map_err(|_| self.bad(name, expected))
    }

    /// A number of at least `least`.
    ///
    /// # Errors
    /// Says what is expected instead.
    pub fn at_least(&self, name: &str, least: f64) -> Result<f64, PolicyError> {
        let expected = format!("a number of at least {least}");
        let value: f64 = self.get(name, &expected)?;
        if value.is_finite() && value >= least {
            Ok(value)
        } else {
            Err(self.bad(name, &expected))
        }
    }

    /// A span of time: `90`, `90s`, `5m`, `2h`, `1d`.
    ///
    /// # Errors
    /// Says what is expected instead.
    pub fn span(&self, name: &str) -> Result<Time, PolicyError> {
        parse_span(self.text(name)).ok_or_else(|| self.bad(name, "a span of time such as 30s, 5m, 2h or 1d"))
    }

    /// Numbers separated by slashes, rising; or a first number and a factor, `3250*3`, for ten of them.
    ///
    /// # Errors
    /// Says what is expected instead.
    pub fn rising(&self, name: &str) -> Result<Vec<f64>, PolicyError> {
        let expected =
            "numbers above zero separated by `/`, each larger than the one before, or first*factor";
        let parse = |n: &str| n.trim().parse::<f64>().map_err(|_| self.bad(name, expected));
        let numbers: Vec<f64> = match self.text(name).split_once('*') {
            Some((first, factor)) => {
                let (first, factor) = (parse(first)?, parse(factor)?);
                std::iter::successors(Some(first), |n| Some(n * factor))
                    .take(10)
                    .collect()
            }
            None => self.text(name).split('/').map(parse).collect::<Result<_, _>>()?,
        };
        let fine =
            numbers.iter().all(|n| n.is_finite() && *n > 0.0) && numbers.windows(2).all(|w| w[0] < w[1]);
        if fine {
            Ok(numbers)
        } else {
            Err(self.bad(name, expected))
        }
    }

    /// The error for a value that is not what it should be.
    pub fn bad(&self, name: &str, expected: &str) -> PolicyError {
        PolicyError::BadValue {
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

/// Reads a span of time: a number of seconds, or one with a unit (`ms`, `s`, `m`, `h`, `d`). Not negative.
pub fn parse_span(text: &str) -> Option<Time> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let seconds = number.trim().parse::<f64>().ok()? * factor;
    (seconds.is_finite() && (0.0..=1e12).contains(&seconds)).then(|| Time::from_secs_f64(seconds))
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

    fn check(text: &str) -> Result<Knobs, PolicyError> {
        Knobs::new("admission", KNOBS, &text.parse()?)
    }

    #[test]
    fn knobs_are_read_by_place_or_name() {
        let knobs = check("load:1.5,wait=2h").unwrap();
        assert_eq!(knobs.get::<f64>("factor", "").unwrap(), 1.5);
        assert_eq!(knobs.span("wait").unwrap(), Time::from_secs(7200));
        assert_eq!(knobs.name(), "load:factor=1.5,wait=2h");
        assert_eq!(check("load").unwrap().rising("limits").unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let say = |text: &str| check(text).unwrap_err().to_string();
        assert_eq!(
            say("load:fator=2"),
            "admission `load` has no knob `fator`, did you mean `factor`?; it has `factor`, `limits`, `wait`"
        );
        assert!(say("load:").starts_with("cannot read `load:`"));
        assert!(say("load:factor=1,factor=2").starts_with("cannot read"));
        let bad = check("load:wait=soon")
            .unwrap()
            .span("wait")
            .unwrap_err()
            .to_string();
        assert_eq!(
            bad,
            "admission `load`: knob `wait` found `soon`, expected a span of time such as 30s, 5m, 2h or 1d"
        );
        assert!(check("load:limits=2/1").unwrap().rising("limits").is_err());
        let grown = check("load:limits=2*3").unwrap().rising("limits").unwrap();
        assert_eq!((grown.len(), &grown[..3]), (10, &[2.0, 6.0, 18.0][..]));
        assert!(check("load:limits=2*1").unwrap().rising("limits").is_err());
        assert!(check("load:limits=2*x").unwrap().rising("limits").is_err());
        assert!(check("load:factor=NaN").unwrap().at_least("factor", 0.0).is_err());
    }
}
