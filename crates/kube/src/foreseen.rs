//! When gangs that wait may start. The future is played through beside the loop, for those who stand first in line, and no
//! longer than a moment: nobody waits for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dovetail_cluster::forecast::{Eta, Forecaster};
use dovetail_cluster::{Handle, JobId};
use dovetail_kubeapi::seconds_time;
use dovetail_model::Time;

/// Jobs of which something is said, at most: those who stand first in line.
const FIRST: usize = 16;
/// No other job is looked at after so long.
const PATIENCE: Duration = Duration::from_secs(2);
/// What is said stays as it is while it is off by less than this.
const CLOSE: Time = Time::from_secs(60);

/// What was foreseen, and is said.
#[derive(Debug, Default)]
pub(crate) struct Foreseen {
    foresight: Forecaster,
    said: Mutex<BTreeMap<JobId, Said>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    p50: Time,
    p90: Time,
}

impl Foreseen {
    /// Looks ahead. The book is held only to take out how things stand.
    pub(crate) fn look_ahead(&self, handle: &Handle) {
        let looked = handle.read(|state| {
            let line = state.queue();
            let first: Vec<JobId> = line.iter().take(FIRST).map(|job| job.id).collect();
            (!first.is_empty()).then(|| (self.foresight.look(state), first))
        });
        let Some((prospect, first)) = looked else {
            return self.said().clear();
        };
        let began = Instant::now();
        let mut found = BTreeMap::new();
        for no in first {
            if began.elapsed() > PATIENCE {
                break;
            }
            if let Ok(eta) = self.foresight.eta(&prospect, no) {
                found.insert(no, eta);
            }
        }
        let mut said = self.said();
        said.retain(|no, _| found.contains_key(no));
        for (no, eta) in found {
            let before = said.get(&no).copied();
            said.insert(no, steady(before, &eta, prospect.now()));
        }
    }

    /// What is said of each job: a moment does not change from look to look, as a span would.
    pub(crate) fn words(&self) -> BTreeMap<JobId, String> {
        let words = |said: &Said| {
            format!(
                "expected to start at {}, with nine chances in ten before {}",
                seconds_time(said.p50.0),
                seconds_time(said.p90.0)
            )
        };
        self.said().iter().map(|(no, said)| (*no, words(said))).collect()
    }

    fn said(&self) -> MutexGuard<'_, BTreeMap<JobId, Said>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was said before, where it is still near enough: each change is a request for each pod.
fn steady(before: Option<Said>, eta: &Eta, now: Time) -> Said {
    let whole = |time: Time| Time(time.0 - time.0.rem_euclid(1_000_000));
    let new = Said {
        p50: whole(eta.p50),
        p90: whole(eta.p90),
    };
    let near = |old: Time, new: Time| {
        let close = CLOSE.max(Time(old.since(now).0 / 4));
        (old.0 - new.0).abs() <= close.0 && old > now
    };
    match before {
        Some(old) if near(old.p50, new.p50) && near(old.p90, new.p90) => old,
        _ => new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eta(p50: i64, p90: i64) -> Eta {
        let (p50, p90) = (Time::from_secs(p50), Time::from_secs(p90));
        Eta {
            p5: p50,
            p50,
            p90,
            p95: p90,
            p50_s: 0.0,
            p90_s: 0.0,
            samples: 60,
            based_on: String::new(),
        }
    }

    #[test]
    fn what_was_said_stays_while_it_is_near() {
        let now = Time::from_secs(1000);
        let first = steady(None, &eta(1600, 2000), now);
        assert_eq!(first.p50, Time::from_secs(1600));
        assert_eq!(
            steady(Some(first), &eta(1700, 2100), now),
            first,
            "a quarter of ten minutes"
        );
        assert_ne!(steady(Some(first), &eta(1800, 2100), now), first);
        let late = Time::from_secs(1601);
        assert_ne!(
            steady(Some(first), &eta(1602, 2000), late),
            first,
            "the moment has passed"
        );
    }
}
