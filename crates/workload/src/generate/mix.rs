//! Widths and tenants of jobs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::random::{Random, Weights};
use super::spec::{Part, part_as_text};
use super::{GenerateError, philly};
use crate::read::MAX_GPUS;

/// Requested GPUs of jobs. As text: `philly`, `default`, or weights such as `1:0.7,2:0.1,4:0.15,8:0.05`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GpuMix {
    /// As in the Philly trace: 93 % request one GPU, the widest 128.
    Philly,
    /// Widths and their weights.
    Weights(Vec<(u32, f64)>),
}

impl Default for GpuMix {
    /// One GPU in 70 % of the jobs, two in 10 %, four in 15 %, eight in 5 %.
    fn default() -> Self {
        Self::Weights(vec![(1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05)])
    }
}

impl FromStr for GpuMix {
    type Err = GenerateError;

    fn from_str(text: &str) -> Result<Self, GenerateError> {
        let wrong = || GenerateError {
            field: "gpus",
            found: format!("{text:?}"),
            expected: "philly, default, or widths and weights such as 1:0.7,2:0.1,4:0.15,8:0.05".to_owned(),
        };
        match text.trim() {
            "philly" => return Ok(Self::Philly),
            "default" => return Ok(Self::default()),
            _ => {}
        }
        let mut weights = Vec::new();
        for pair in text.split(',') {
            let (gpus, weight) = pair.split_once(':').unwrap_or((pair, "1"));
            let gpus = gpus
                .trim()
                .parse()
                .ok()
                .filter(|g| (1..=MAX_GPUS as u32).contains(g))
                .ok_or_else(wrong)?;
            let weight = weight
                .trim()
                .parse()
                .ok()
                .filter(|w| (0.0..=1e12).contains(w))
                .ok_or_else(wrong)?;
            weights.push((gpus, weight));
        }
        let any = weights.iter().any(|(_, weight)| *weight > 0.0);
        any.then_some(Self::Weights(weights)).ok_or_else(wrong)
    }
}

impl fmt::Display for GpuMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Philly => f.write_str("philly"),
            Self::Weights(weights) => {
                let pairs: Vec<String> = weights
                    .iter()
                    .map(|(gpus, weight)| format!("{gpus}:{weight}"))
                    .collect();
                f.write_str(&pairs.join(","))
            }
        }
    }
}

part_as_text!(GpuMix);

impl GpuMix {
    /// Draws the widths of `count` jobs.
    pub(super) fn draw(&self, random: &mut Random, jobs: usize) -> Vec<u32> {
        let table: Vec<(u32, f64)> = match self {
            Self::Philly => philly::BY_GPUS
                .map(|(gpus, count)| (gpus, f64::from(count)))
                .to_vec(),
            Self::Weights(weights) => weights.clone(),
        };
        let weights = Weights::new(table.iter().map(|(_, weight)| *weight));
        (0..jobs).map(|_| table[weights.draw(random)].0).collect()
    }
}

/// Tenants of jobs. As text: `philly`, or a number of tenants such as `8` or `8:skew=1`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Tenants {
    /// The fifteen virtual clusters of the Philly trace, by width of the job.
    Philly,
    /// A number of tenants; the share of jobs decreases with the rank to the power of the skew.
    Ranked {
        /// Number of tenants.
        count: u32,
        /// Skew; 0 makes all tenants equal.
        skew: f64,
    },
}

impl FromStr for Tenants {
    type Err = GenerateError;

    fn from_str(text: &str) -> Result<Self, GenerateError> {
        let part = Part::parse("tenants", text, "skew")?;
        if part.name == "philly" {
            part.only(&[])?;
            return Ok(Self::Philly);
        }
        let Some(count) = part.name.parse().ok().filter(|n| (1..=1_000_000).contains(n)) else {
            return Err(part.unknown(&["philly", "a number from 1 to 1000000 such as 8 or 8:skew=1"]));
        };
        let skew = part.number("skew", Some(1.0), 0.0..=20.0)?;
        part.only(&["skew"])?;
        Ok(Self::Ranked { count, skew })
    }
}

impl fmt::Display for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Philly => f.write_str("philly"),
            Self::Ranked { count, skew } => write!(f, "{count}:skew={skew}"),
        }
    }
}

part_as_text!(Tenants);

impl Tenants {
    /// Returns the number of tenants.
    pub(super) fn count(self) -> usize {
        match self {
            Self::Philly => philly::TENANTS,
            Self::Ranked { count, .. } => count as usize,
        }
    }

    /// Draws the tenant of each job of these widths.
    pub(super) fn draw(self, random: &mut Random, gpus: &[u32]) -> Vec<usize> {
        match self {
            Self::Philly => {
                let tenants = philly::TenantTable::new();
                gpus.iter().map(|gpus| tenants.draw(random, *gpus)).collect()
            }
            Self::Ranked { count, skew } => {
                let weights = Weights::zipf(count, skew);
                gpus.iter().map(|_| weights.draw(random)).collect()
            }
        }
    }
}
