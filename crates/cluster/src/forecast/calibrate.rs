//! Learns from its own mistakes: an interval is moved and widened so that it would have held what was said before.

use std::collections::VecDeque;

use dovetail_model::Time;

use super::Eta;

/// What was said of waits, and how they were: each as the logarithm of a ratio.
#[derive(Debug, Clone, Default)]
pub struct Calibration {
    errors: VecDeque<Error>,
}

#[derive(Debug, Clone, Copy)]
struct Error {
    /// How much earlier than the early end it was.
    early: f64,
    /// How much later than the middle it was.
    middle: f64,
    /// How much later than the late end it was.
    late: f64,
}

/// The latest that count.
const KEPT: usize = 80;
/// With fewer, the interval is only made twice as wide to either side.
const ENOUGH: usize = 20;
/// So many seconds are as good as none.
const GRACE_S: f64 = 60.0;

fn log(now: Time, at: Time) -> f64 {
    (at.since(now).as_secs_f64().max(0.0) + GRACE_S).ln()
}

fn unlog(now: Time, log: f64) -> Time {
    now + Time::from_secs_f64((log.exp() - GRACE_S).clamp(0.0, 1e9))
}

/// The value below which this share of them is, on the safe side.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let place = (share * (values.len() as f64 + 1.0)).ceil() as usize;
    values[place.clamp(1, values.len()) - 1]
}

impl Calibration {
    /// Learns how it came, of what was said before it was corrected.
    pub fn learn(&mut self, said_at: Time, said: &Eta, started: Time) {
        let real = log(said_at, started);
        self.errors.push_back(Error {
            early: log(said_at, said.p5) - real,
            middle: real - log(said_at, said.p50),
            late: real - log(said_at, said.p95),
        });
        if self.errors.len() > KEPT {
            self.errors.pop_front();
        }
    }

    /// The interval, corrected.
    pub fn correct(&self, now: Time, said: &Eta) -> Eta {
        let of = |pick: fn(&Error) -> f64| self.errors.iter().map(pick).collect::<Vec<f64>>();
        let (early, middle, late) = match self.errors.len() < ENOUGH {
            true => (2f64.ln(), 0.0, 2f64.ln()),
            false => (
                quantile(of(|e| e.early), 0.95),
                quantile(of(|e| e.middle), 0.5),
                quantile(of(|e| e.late), 0.95),
            ),
        };
        let low = log(now, said.p5) - early;
        let high = (log(now, said.p95) + late).max(low);
        let middle = (log(now, said.p50) + middle).clamp(low, high);
        // The middle and the late end are known; nine in ten is most of the way between them.
        let p90 = middle + (high - middle) * 0.78;
        let (p50, p90) = (unlog(now, middle), unlog(now, p90));
        Eta {
            p5: unlog(now, low),
            p50,
            p90,
            p95: unlog(now, high),
            p50_s: p50.since(now).as_secs_f64(),
            p90_s: p90.since(now).as_secs_f64(),
            ..said.clone()
        }
    }
}
