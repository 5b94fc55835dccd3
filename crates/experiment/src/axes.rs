//! The axes of a comparison: policies, loads and seeds, and the lists in which a person writes them.

use crate::values::parse_range;
use crate::{ExperimentError, RunSpec};

/// Policies of a comparison that names none.
pub const DEFAULT_POLICIES: &str = "fifo,fifo-backfill,fifo-easy,sjf,srtf,srsf,las,tiresias,gittins";

/// Largest number of seeds in a range.
const MAX_SEEDS: u64 = 10_000;

/// The axes of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Axes {
    /// Policies, each as NAME or NAME:KNOB=VALUE,...
    pub policies: Vec<String>,
    /// Loads; `None` is the load of the trace, or the default of a generated workload.
    pub loads: Vec<Option<f64>>,
    /// Seeds.
    pub seeds: Vec<u64>,
}

impl Axes {
    /// Parses the lists of a scenario or of flags. An axis without a list has the one value of the settings.
    ///
    /// # Errors
    /// Names the list and the expected format.
    pub fn parse(
        policies: Option<&str>,
        loads: Option<&str>,
        seeds: Option<&str>,
        spec: &RunSpec,
    ) -> Result<Self, ExperimentError> {
        let axes = Self {
            policies: split_policies(policies.unwrap_or(DEFAULT_POLICIES)),
            loads: match loads {
                Some(text) => parse_loads(text)?.into_iter().map(Some).collect(),
                None => vec![spec.load],
            },
            seeds: match seeds {
                Some(text) => parse_seeds(text)?,
                None => vec![spec.seed_or_default()],
            },
        };
        axes.check().map(|()| axes)
    }

    /// Checks that every axis has a value.
    pub(crate) fn check(&self) -> Result<(), ExperimentError> {
        let empty = |key, item| Err(ExperimentError::EmptyList { key, item });
        match self {
            _ if self.policies.is_empty() => empty("policies", "policy"),
            _ if self.loads.is_empty() => empty("loads", "load"),
            _ if self.seeds.is_empty() => empty("seeds", "seed"),
            _ => Ok(()),
        }
    }
}

/// Splits `a,b:k=1,l=2,c` into policies: a piece with `=` but without `:` belongs to the policy before it.
pub fn split_policies(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for piece in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        match names.last_mut() {
            Some(last) if piece.contains('=') && !piece.contains(':') => {
                last.push(',');
                last.push_str(piece);
            }
            _ => names.push(piece.to_owned()),
        }
    }
    names
}

/// Parses `1..5` (both ends included) or `1,2,3`.
///
/// # Errors
/// Names the expected format.
pub fn parse_seeds(text: &str) -> Result<Vec<u64>, ExperimentError> {
    let invalid = || ExperimentError::invalid_text("seeds", text, "FIRST..LAST or a list such as 1,2,3");
    if text.contains("..") {
        let range = parse_range(text).filter(|(a, b): &(u64, u64)| a <= b && b - a < MAX_SEEDS);
        return range.map(|(a, b)| (a..=b).collect()).ok_or_else(invalid);
    }
    text.split(',')
        .map(|s| s.trim().parse().map_err(|_| invalid()))
        .collect()
}

/// Parses a list of loads.
///
/// # Errors
/// Names the expected format.
pub fn parse_loads(text: &str) -> Result<Vec<f64>, ExperimentError> {
    let invalid = || ExperimentError::invalid_text("loads", text, "numbers above 0 such as 0.7,0.9,1.1");
    let parse = |s: &str| {
        let load = s.trim().parse::<f64>().ok();
        load.filter(|l| l.is_finite() && *l > 0.0).ok_or_else(invalid)
    };
    text.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_keep_their_knobs() {
        assert_eq!(
            split_policies("fifo, tiresias:limits=1/2,promote=2,srsf"),
            ["fifo", "tiresias:limits=1/2,promote=2", "srsf"]
        );
    }

    #[test]
    fn seeds_include_both_ends() {
        assert_eq!(parse_seeds("1..3").unwrap(), [1, 2, 3]);
        assert_eq!(parse_seeds("4,2").unwrap(), [4, 2]);
        assert!(parse_seeds("3..1").is_err());
    }

    #[test]
    fn an_axis_without_a_list_has_the_value_of_the_settings() {
        let spec = RunSpec {
            load: Some(0.7),
            seed: Some(3),
            ..RunSpec::default()
        };
        let axes = Axes::parse(Some("fifo"), None, None, &spec).unwrap();
        assert_eq!((axes.loads, axes.seeds), (vec![Some(0.7)], vec![3]));
        let error = Axes::parse(Some(","), None, None, &spec).unwrap_err();
        assert_eq!(error.to_string(), "policies: expected at least one policy");
    }
}
