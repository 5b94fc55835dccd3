//! Run times of jobs.

use std::fmt;
use std::str::FromStr;

use dovetail_model::Work;
use serde::{Deserialize, Serialize};

use super::random::Random;
use super::spec::{Part, part_as_text};
use super::{GenerateError, philly};

/// Run times of jobs, alone and at full speed. As text: `philly`, `blox`, `blox-small`, `fixed:seconds=3600`,
/// `lognormal:median_s=1200,sigma=2`, `exponential:mean_s=3600`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Durations {
    /// As in the Philly trace, wide jobs longer than narrow ones.
    Philly,
    /// As in Blox, Synergy and Gavel: with probability 0.8, 60·10^U(1.5,3) seconds, else 60·10^U(3,4).
    Blox,
    /// The short variant: with probability 0.8, 60·10^U(1.5,2.5) seconds, else 60·10^U(2.5,2.7).
    BloxSmall,
    /// All the same.
    Fixed {
        /// The run time.
        seconds: f64,
    },
    /// Log-normal.
    Lognormal {
        /// The median run time.
        median_s: f64,
        /// The standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// Exponential.
    Exponential {
        /// The mean run time.
        mean_s: f64,
    },
}

const NAMES: [&str; 6] = [
    "philly",
    "blox",
    "blox-small",
    "fixed",
    "lognormal",
    "exponential",
];
/// The longest run time that is drawn.
const LONGEST_S: f64 = 1e9;

impl FromStr for Durations {
    type Err = GenerateError;

    fn from_str(text: &str) -> Result<Self, GenerateError> {
        let bare_key = match text.split(':').next() {
            Some("fixed") => "seconds",
            Some("lognormal") => "median_s",
            _ => "mean_s",
        };
        let part = Part::parse("durations", text, bare_key)?;
        let range = 0.001..=LONGEST_S;
        let (durations, keys): (Self, &[&str]) = match part.name {
            "philly" => (Self::Philly, &[]),
            "blox" => (Self::Blox, &[]),
            "blox-small" => (Self::BloxSmall, &[]),
            "fixed" => (
                Self::Fixed {
                    seconds: part.number("seconds", None, range)?,
                },
                &["seconds"],
            ),
            "lognormal" => {
                let median_s = part.number("median_s", None, range)?;
                (
                    Self::Lognormal {
                        median_s,
                        sigma: part.number("sigma", Some(2.0), 0.0..=20.0)?,
                    },
                    &["median_s", "sigma"],
                )
            }
            "exponential" => (
                Self::Exponential {
                    mean_s: part.number("mean_s", None, range)?,
                },
                &["mean_s"],
            ),
            _ => return Err(part.unknown(&NAMES)),
        };
        part.only(keys)?;
        Ok(durations)
    }
}

impl fmt::Display for Durations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Philly => f.write_str("philly"),
            Self::Blox => f.write_str("blox"),
            Self::BloxSmall => f.write_str("blox-small"),
            Self::Fixed { seconds } => write!(f, "fixed:seconds={seconds}"),
            Self::Lognormal { median_s, sigma } => write!(f, "lognormal:median_s={median_s},sigma={sigma}"),
            Self::Exponential { mean_s } => write!(f, "exponential:mean_s={mean_s}"),
        }
    }
}

part_as_text!(Durations);

impl Durations {
    /// Draws a run time for each job of these widths, to the millisecond.
    pub(super) fn draw(self, random: &mut Random, gpus: &[u32]) -> Vec<Work> {
        let philly = philly::DurationTable::new();
        let work = |seconds: f64| Work((seconds.clamp(0.001, LONGEST_S) * 1e3).round() as u64 * 1000);
        gpus.iter()
            .map(|gpus| work(self.seconds(random, *gpus, &philly)))
            .collect()
    }

    fn seconds(self, random: &mut Random, gpus: u32, philly: &philly::DurationTable) -> f64 {
        // Always two draws, so that both kinds of jobs advance the stream equally.
        let two_decades = |random: &mut Random, short: (f64, f64), long: (f64, f64)| {
            let (low, high) = if random.unit() < 0.8 { short } else { long };
            60.0 * libm::pow(10.0, random.between(low, high))
        };
        match self {
            Self::Philly => philly.draw(random, gpus),
            Self::Blox => two_decades(random, (1.5, 3.0), (3.0, 4.0)),
            Self::BloxSmall => two_decades(random, (1.5, 2.5), (2.5, 2.7)),
            Self::Fixed { seconds } => seconds,
            Self::Lognormal { median_s, sigma } => median_s * libm::exp(sigma * random.normal()),
            Self::Exponential { mean_s } => mean_s * random.exponential(),
        }
    }
}
