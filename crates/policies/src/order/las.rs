//! Least attained service. Key: time on GPUs so far (1-D), or GPU time so far (2-D).
//!
//! Between rounds two equal jobs would throw each other out at every instant, so service is counted in whole quanta;
//! a quantum of zero leaves the key continuous, which is what a round clock wants.

use dovetail_engine::{Job, Knowledge, Line, Order, Part};
use dovetail_model::Time;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Order> = Entry {
    name: "las",
    what: "least attained service: who has used least goes first",
    source: "Nuyens and Wierman 2008; Tiresias (NSDI'19); 1-D as in Blox",
    key: "time on GPUs (× GPUs for dims=2), in whole quanta",
    knowledge: Knowledge::None,
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
            _ => return Err(knobs.bad("dims", "1 or 2")),
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
pub struct Las {
    two_d: bool,
    quantum: Time,
    name: String,
}

impl Part for Las {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Order for Las {
    fn line(&self, job: &Job, now: Time) -> Line {
        let (service, speed) = match self.two_d {
            true => (job.service(now), i64::from(job.width())),
            false => (i128::from(job.attained(now).0), 1),
        };
        let speed = if job.is_up() { speed } else { 0 };
        if self.quantum == Time::ZERO {
            return Line::moving(now, service, speed);
        }
        let level = service / i128::from(self.quantum.0);
        Line::fixed(level).until(reaches(
            (level + 1) * i128::from(self.quantum.0) - service,
            speed,
            now,
        ))
    }

    fn turn(&self, gpus: u32) -> Option<Time> {
        let speed = if self.two_d { i64::from(gpus.max(1)) } else { 1 };
        (self.quantum > Time::ZERO).then(|| Time(self.quantum.0 / speed))
    }
}

/// When a service that grows by `speed` has grown by `gap`; never if it stands still.
pub(super) fn reaches(gap: i128, speed: i64, now: Time) -> Option<Time> {
    let span = (gap.max(1) as u128).div_ceil(u128::try_from(speed).ok().filter(|s| *s > 0)?);
    Some(Time(
        now.0.saturating_add(i64::try_from(span).unwrap_or(i64::MAX)),
    ))
}
