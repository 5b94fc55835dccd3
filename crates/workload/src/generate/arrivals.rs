//! Arrival times of jobs.

use std::fmt;
use std::str::FromStr;

use dovetail_model::Time;
use serde::{Deserialize, Serialize};

use super::random::{Random, Stream, Weights};
use super::spec::{Part, part_as_text};
use super::{GenerateError, philly};
use crate::decimal::MAX_SECONDS;

/// Arrival times of jobs. As text: `poisson`, `diurnal:amplitude=0.5,peak_hour=14`, `hourly:` and 24 weights between slashes,
/// `bursty:on_hours=2,off_hours=2,factor=4`, `at-once`, `philly`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Arrivals {
    /// Random, at the same rate all day.
    Poisson,
    /// Random, at a rate with a daily cycle.
    Diurnal {
        /// Relative amplitude of the rate, from 0 to 1.
        amplitude: f64,
        /// The hour of the day with the highest rate.
        peak_hour: f64,
    },
    /// Random, at a rate for each hour of the day.
    Hourly(Box<[f64; 24]>),
    /// Random, in phases of random length with a high and a low rate.
    Bursty {
        /// Mean length of a busy phase.
        on_hours: f64,
        /// Mean length of a quiet phase.
        off_hours: f64,
        /// Ratio of the busy to the quiet rate.
        factor: f64,
    },
    /// All at the start.
    AtOnce,
    /// By hour of the day as in the Philly trace.
    Philly,
}

/// Time of the latest arrival, in hours.
const MAX_HOURS: f64 = MAX_SECONDS as f64 / 3600.0;

const NAMES: [&str; 6] = ["poisson", "diurnal", "hourly", "bursty", "at-once", "philly"];

impl FromStr for Arrivals {
    type Err = GenerateError;

    fn from_str(text: &str) -> Result<Self, GenerateError> {
        if let Some(weights) = text.strip_prefix("hourly:") {
            return hourly(weights);
        }
        let part = Part::parse("arrivals", text, "")?;
        let (arrivals, keys): (Self, &[&str]) = match part.name {
            "poisson" => (Self::Poisson, &[]),
            "at-once" => (Self::AtOnce, &[]),
            "philly" => (Self::Philly, &[]),
            "diurnal" => {
                let amplitude = part.number("amplitude", Some(0.5), 0.0..=1.0)?;
                let peak_hour = part.number("peak_hour", Some(14.0), 0.0..=24.0)?;
                (
                    Self::Diurnal { amplitude, peak_hour },
                    &["amplitude", "peak_hour"],
                )
            }
            "bursty" => {
                let on_hours = part.number("on_hours", Some(2.0), 0.05..=1e4)?;
                let off_hours = part.number("off_hours", Some(2.0), 0.05..=1e4)?;
                let factor = part.number("factor", Some(4.0), 1.0..=1e4)?;
                (
                    Self::Bursty {
                        on_hours,
                        off_hours,
                        factor,
                    },
                    &["on_hours", "off_hours", "factor"],
                )
            }
            _ => return Err(part.unknown(&NAMES)),
        };
        part.only(keys)?;
        Ok(arrivals)
    }
}

fn hourly(weights: &str) -> Result<Arrivals, GenerateError> {
    let parsed: Option<Vec<f64>> = weights.split('/').map(|w| w.trim().parse().ok()).collect();
    let parsed = parsed.filter(|w| w.iter().all(|w| (0.0..=1e9).contains(w)) && w.iter().sum::<f64>() > 0.0);
    let weights24: Option<[f64; 24]> = parsed.and_then(|w| w.try_into().ok());
    weights24
        .map(|w| Arrivals::Hourly(Box::new(w)))
        .ok_or_else(|| GenerateError {
            field: "arrivals",
            found: format!("{weights:?}"),
            expected: "24 numbers of at least 0, not all 0, separated by slashes".to_owned(),
        })
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson => f.write_str("poisson"),
            Self::Diurnal { amplitude, peak_hour } => {
                write!(f, "diurnal:amplitude={amplitude},peak_hour={peak_hour}")
            }
            Self::Hourly(weights) => write!(f, "hourly:{}", weights.map(|w| w.to_string()).join("/")),
            Self::Bursty {
                on_hours,
                off_hours,
                factor,
            } => {
                write!(
                    f,
                    "bursty:on_hours={on_hours},off_hours={off_hours},factor={factor}"
                )
            }
            Self::AtOnce => f.write_str("at-once"),
            Self::Philly => f.write_str("philly"),
        }
    }
}

part_as_text!(Arrivals);

impl Arrivals {
    /// Draws `count` arrival times at a mean rate in jobs per hour, in order, to the millisecond.
    ///
    /// A job arrives when the rate, integrated since the previous arrival, reaches a random amount. With a higher rate
    /// every job arrives earlier, and bursts stay at the same times.
    pub(super) fn draw(&self, seed: u64, jobs: usize, per_hour: f64) -> Result<Vec<Time>, GenerateError> {
        match self {
            Self::AtOnce => Ok(vec![Time::ZERO; jobs]),
            Self::Poisson => times(seed, jobs, per_hour, std::iter::repeat((1.0, f64::INFINITY))),
            Self::Philly => times(seed, jobs, per_hour, daily(&philly::BY_HOUR)),
            Self::Hourly(weights) => times(seed, jobs, per_hour, daily(weights.as_slice())),
            Self::Diurnal { amplitude, peak_hour } => {
                let swing =
                    |hour: f64| amplitude * libm::cos((hour - peak_hour) * std::f64::consts::TAU / 24.0);
                let steps: Vec<f64> = (0..288)
                    .map(|i| 1.0 + swing((f64::from(i) + 0.5) / 12.0))
                    .collect();
                times(seed, jobs, per_hour, daily(&steps))
            }
            Self::Bursty {
                on_hours,
                off_hours,
                factor,
            } => times(seed, jobs, per_hour, phases(seed, *on_hours, *off_hours, *factor)),
        }
    }
}

/// Draws arrivals in spans of a given rate, as a multiple of the mean, and a given length in hours.
fn times(
    seed: u64,
    jobs: usize,
    per_hour: f64,
    mut spans: impl Iterator<Item = (f64, f64)>,
) -> Result<Vec<Time>, GenerateError> {
    let mut random = Random::new(seed, Stream::Arrivals);
    let mut times = Vec::with_capacity(jobs);
    let (mut hours, mut span_end, mut rate) = (0.0, 0.0, 0.0);
    for _ in 0..jobs {
        let mut amount = random.exponential();
        loop {
            let room = (span_end - hours) * rate;
            if amount < room {
                hours += amount / rate;
                break;
            }
            if span_end > MAX_HOURS {
                break;
            }
            let Some((multiple, length)) = spans.next() else {
                break;
            };
            amount -= room;
            hours = span_end;
            span_end += length;
            rate = multiple * per_hour;
        }
        if hours > MAX_HOURS || span_end > MAX_HOURS && span_end.is_finite() {
            return Err(GenerateError {
                field: "jobs_per_hour",
                found: format!("{per_hour:e}"),
                expected: format!("a rate at which {jobs} jobs arrive within {MAX_SECONDS} seconds"),
            });
        }
        times.push(Time((hours * 3.6e6).round() as i64 * 1000));
    }
    Ok(times)
}

/// Returns the spans of a day with these weights, repeated forever.
fn daily(weights: &[f64]) -> impl Iterator<Item = (f64, f64)> {
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    let length = 24.0 / weights.len() as f64;
    weights.iter().map(move |w| (w / mean, length)).cycle()
}

/// Returns alternating busy and quiet phases.
fn phases(seed: u64, on: f64, off: f64, factor: f64) -> impl Iterator<Item = (f64, f64)> {
    let mut random = Random::new(seed, Stream::Phases);
    let quiet = (on + off) / (factor * on + off);
    let mut busy = Weights::new([off, on]).draw(&mut random) == 1;
    std::iter::from_fn(move || {
        busy = !busy;
        let (multiple, mean) = if busy { (quiet * factor, on) } else { (quiet, off) };
        Some((multiple, mean * random.exponential()))
    })
}
