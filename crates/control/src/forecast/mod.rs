//! When a job will start: the present state is played forward many times, each time with other run times drawn from what
//! jobs took here before.

mod calibrate;
mod lengths;
mod play;

use dovetail_model::ids::Id;
use dovetail_model::{JobId, JobSpec, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::JobNo;
use crate::book::{Book, JobState};

pub use calibrate::Calibration;
pub use lengths::{Arrivals, Lengths, Past};
pub use play::{Draw, first_starts};

/// When a job starts, as an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Eta {
    /// With a chance of one in twenty it starts before.
    #[schemars(with = "i64")]
    pub p5: Time,
    /// As likely before as after.
    #[schemars(with = "i64")]
    pub p50: Time,
    /// With a chance of nine in ten it has started by then.
    #[schemars(with = "i64")]
    pub p90: Time,
    /// With a chance of nineteen in twenty it has started by then.
    #[schemars(with = "i64")]
    pub p95: Time,
    /// Seconds from now to `p50`.
    pub p50_s: f64,
    /// Seconds from now to `p90`.
    pub p90_s: f64,
    /// How often the state was played forward.
    pub samples: u32,
    /// What run times were drawn from.
    pub based_on: String,
}

/// How often the state is played forward.
const SAMPLES: u32 = 60;
/// Fewer say nothing.
const FEWEST_GAMES: usize = 12;
/// Fewer jobs that ended say nothing.
const FEWEST: usize = 8;

/// The interval these starts make.
pub fn interval(now: Time, mut starts: Vec<Time>, based_on: String) -> Option<Eta> {
    starts.sort_unstable();
    let at = |share: f64| {
        let place = (share * (starts.len() as f64 - 1.0)).round() as usize;
        starts.get(place).copied()
    };
    let (p5, p50, p90, p95) = (at(0.05)?, at(0.5)?, at(0.9)?, at(0.95)?);
    Some(Eta {
        p5,
        p50,
        p90,
        p95,
        p50_s: p50.since(now).as_secs_f64(),
        p90_s: p90.since(now).as_secs_f64(),
        samples: starts.len() as u32,
        based_on,
    })
}

impl Eta {
    /// Whether it says anything: one that spans from minutes to days does not.
    fn says_something(&self, now: Time) -> bool {
        let (early, late) = (
            self.p5.since(now).as_secs_f64(),
            self.p95.since(now).as_secs_f64(),
        );
        late - early < 3_600.0 || late < 30.0 * early.max(60.0)
    }
}

impl Book {
    /// Who came lately and when, as the engine is told of them.
    fn arrivals(&self, most: usize) -> Vec<(Time, JobSpec)> {
        let mut names = self.names.clone();
        let lately = self
            .jobs()
            .rev()
            .filter(|job| !matches!(job.state, JobState::Held(_)))
            .take(most);
        let told = |job: &crate::book::JobRecord| {
            let spec = Self::spec(&mut names, &job.user, &job.request, job.submitted, JobId(0));
            (job.submitted, spec)
        };
        let mut arrivals: Vec<(Time, JobSpec)> = lately.map(told).collect();
        arrivals.reverse();
        arrivals
    }

    /// When a job in line will start, as far as the present state tells; else why nothing can be said.
    ///
    /// # Errors
    /// Says why nothing can be said.
    pub fn forecast(&self, no: JobNo) -> Result<Eta, String> {
        let record = self.job(no).ok_or("there is no such job")?;
        match &record.state {
            JobState::Queued => {}
            JobState::Held(_) => return Err("it does not stand in line yet".to_owned()),
            _ => return Err("it does not wait".to_owned()),
        }
        if self.is_paused() {
            return Err("scheduling is paused, and nobody knows until when".to_owned());
        }
        let ticket = record.ticket.ok_or("it does not stand in line yet")?;
        let lengths = Lengths::of(self);
        if lengths.len() < FEWEST {
            return Err(format!(
                "too few jobs have ended here to tell how long others run: {} of {FEWEST}",
                lengths.len()
            ));
        }
        let mut draw = lengths.draw(self, no);
        let next = JobId::from_index(self.tickets.len());
        let (starts, never) = first_starts(&self.engine, self.now, (ticket, next), SAMPLES, &mut draw);
        if starts.len() + (never as usize) < FEWEST_GAMES {
            return Err("the line is too long to look that far ahead".to_owned());
        }
        if never as usize * 10 > starts.len() {
            return Err("it would not start within a month in the state things are in".to_owned());
        }
        interval(self.now, starts, lengths.based_on()).ok_or_else(|| "nothing was found out".to_owned())
    }

    /// What was found out, corrected by how it came before; else why it says nothing.
    ///
    /// # Errors
    /// Says why it says nothing.
    pub fn corrected(&self, eta: &Eta, calibration: &Calibration) -> Result<Eta, String> {
        let eta = calibration.correct(self.now, eta);
        match eta.says_something(self.now) {
            true => Ok(eta),
            false => Err(format!(
                "run times here differ so much that it could be {} or {}",
                span(eta.p5.since(self.now)),
                span(eta.p95.since(self.now))
            )),
        }
    }
}

/// A span of time for people.
fn span(time: Time) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 120.0 => format!("{s:.0} seconds"),
        s if s < 7_200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} hours", s / 3_600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}
