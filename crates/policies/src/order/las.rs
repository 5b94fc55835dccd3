//! Least attained service. Key: time on GPUs so far (1-D), or GPU time so far (2-D).
//!
//! With a continuous key two equal jobs would preempt each other at every instant, so service is counted in whole quanta.
//! A quantum of zero keeps the key continuous, which suits a clock with rounds.

use dovetail_engine::{Job, Part, QueueKey, QueueOrder};
use dovetail_model::Time;

use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn QueueOrder> = Entry {
    name: "las",
    what: "least attained service: the job that has used the least first",
    source: "Nuyens and Wierman 2008; Tiresias (NSDI'19); 1-D as in Blox",
    key: "time on GPUs (× GPUs for dims=2), in whole quanta",
    companions: &[(Kind::Discipline, "preempt")],
    knobs: &[
        Knob {
            name: "dims",
            default: "2",
            what: "1: time on GPUs; 2: time × GPUs",
        },
        Knob {
            name: "quantum",
            default: "1h",
            what: "service is counted in whole quanta of GPU time; 0 is continuous",
        },
    ],
    build: |knobs| {
        let two_d = match knobs.text("dims") {
            "1" => false,
            "2" => true,
            _ => return Err(knobs.invalid("dims", "1 or 2")),
        };
        Ok(Box::new(Las {
            two_d,
            quantum: knobs.span("quantum")?,
            name: knobs.name(),
        }))
    },
};

/// Least attained service.
#[derive(Debug, Clone)]
struct Las {
    two_d: bool,
    quantum: Time,
    name: String,
}

impl Part for Las {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl QueueOrder for Las {
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        let (service, speed) = match self.two_d {
            true => (job.service(now), i64::from(job.width())),
            false => (i128::from(job.attained(now).0), 1),
        };
        let speed = if job.holds_gpus() { speed } else { 0 };
        if self.quantum == Time::ZERO {
            return QueueKey::moving(now, service, speed);
        }
        let level = service / i128::from(self.quantum.0);
        QueueKey::fixed(level).until(reaches(
            (level + 1) * i128::from(self.quantum.0) - service,
            speed,
            now,
        ))
    }

    fn time_slice(&self, gpus: u32) -> Option<Time> {
        let speed = if self.two_d { i64::from(gpus.max(1)) } else { 1 };
        (self.quantum > Time::ZERO).then(|| Time(self.quantum.0 / speed))
    }
}

/// Returns when a service that grows by `speed` has grown by `gap`; `None` if it does not grow.
pub(super) fn reaches(gap: i128, speed: i64, now: Time) -> Option<Time> {
    let span = (gap.max(1) as u128).div_ceil(u128::try_from(speed).ok().filter(|s| *s > 0)?);
    Some(Time(
        now.0.saturating_add(i64::try_from(span).unwrap_or(i64::MAX)),
    ))
}
