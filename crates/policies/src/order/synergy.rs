//! The keys of Synergy's simulator, counted in floating point as it does, so that ties fall as they do there.
//!
//! Some are not what their names promise: its FTF serves the job that is *least* behind, its DRF and TETRIS look at one
//! job alone. The real ones are `ftf`, `drf` and `tetris`.

use dovetail_engine::{Crowd, Job, Knowledge, Line, Order, Part};
use dovetail_model::{Share, Time};

/// Which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SynergyKey {
    /// Time of arrival.
    Fifo,
    /// Run time left.
    Srtf,
    /// Time held × GPUs.
    Las,
    /// (Time since arrival + run time left) ÷ whole run time.
    Ftf,
    /// The largest of its shares of GPUs, CPU and memory.
    Drf,
    /// The sum of those shares × run time left.
    Tetris,
}

/// What its profiles say of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SynergyFacts {
    /// Seconds of an iteration with the proportional share.
    pub iteration_s: f64,
    /// Iterations in all.
    pub iterations: u64,
    /// How many times faster it is with what it would like.
    pub speedup: f64,
    /// What it would like beside each GPU.
    pub wish: Share,
}

impl SynergyFacts {
    /// An iteration in microseconds.
    pub fn iteration_us(&self) -> u64 {
        ((self.iteration_s * 1e6).round() as u64).max(1)
    }
}

/// Synergy's keys.
#[derive(Debug, Clone)]
pub struct SynergyOrder {
    key: SynergyKey,
    /// Jobs run at the speed of their proportional share whatever they have.
    fair: bool,
    facts: Vec<SynergyFacts>,
    gpus: f64,
    has: Share,
}

impl SynergyOrder {
    /// The key over these jobs, on a cluster with so many GPUs and so much CPU and memory in all.
    pub fn new(key: SynergyKey, fair: bool, facts: Vec<SynergyFacts>, gpus: u32, has: Share) -> Self {
        Self {
            key,
            fair,
            facts,
            gpus: f64::from(gpus),
            has,
        }
    }

    fn value(&self, job: &Job, now: Time) -> f64 {
        let facts = &self.facts[job.spec.id.0 as usize];
        let left = || self.time_left(job, facts, now);
        let [gpus, cpu, memory] = self.shares(job, facts);
        match self.key {
            SynergyKey::Fifo => job.spec.submit.as_secs_f64(),
            SynergyKey::Srtf => left(),
            SynergyKey::Las => job.attained(now).as_secs_f64() * f64::from(job.spec.gpus),
            SynergyKey::Ftf => {
                let since = now.as_secs_f64() - job.spec.submit.as_secs_f64();
                (since + left()) / (facts.iteration_s * facts.iterations as f64)
            }
            SynergyKey::Drf => gpus.max(cpu).max(memory),
            SynergyKey::Tetris => {
                let left = left();
                gpus * left + cpu * left + memory * left
            }
        }
    }

    /// Run time left at the speed it had in the last round, or would have with what it would like.
    fn time_left(&self, job: &Job, facts: &SynergyFacts, now: Time) -> f64 {
        let work = job.spec.expected.map_or(0, |w| w.minus(job.done(now)).0);
        let left = facts.iteration_s * (work / facts.iteration_us()) as f64;
        if self.fair {
            return left;
        }
        let cut_back = job.allocation.as_ref().is_some_and(|held| {
            held.shares.iter().any(|part| {
                let all = facts.wish.times(part.gpus.count());
                part.cpu_milli < all.cpu_milli || part.memory_mib < all.memory_mib
            })
        });
        left / if cut_back { 1.0 } else { facts.speedup }
    }

    fn shares(&self, job: &Job, facts: &SynergyFacts) -> [f64; 3] {
        let wish = facts.wish.times(job.spec.gpus);
        [
            f64::from(job.spec.gpus) / self.gpus,
            f64::from(wish.cpu_milli) / 1000.0 / (f64::from(self.has.cpu_milli) / 1000.0),
            wish.memory_mib as f64 / 1024.0 / (self.has.memory_mib as f64 / 1024.0),
        ]
    }
}

impl Part for SynergyOrder {
    fn name(&self) -> String {
        format!("synergy:key={:?}", self.key).to_lowercase()
    }
}

impl Order for SynergyOrder {
    fn line(&self, job: &Job, now: Time) -> Line {
        // Bits of floating point numbers that are not negative are in the order of the numbers.
        Line::fixed(i128::from(self.value(job, now).max(0.0).to_bits()))
    }

    fn line_among(&self, job: &Job, _crowd: &Crowd, now: Time) -> Line {
        self.line(job, now)
    }

    /// All keys are reckoned anew every round.
    fn looks_at_crowd(&self) -> bool {
        true
    }

    fn knowledge(&self) -> Knowledge {
        match self.key {
            SynergyKey::Fifo | SynergyKey::Las | SynergyKey::Drf => Knowledge::None,
            SynergyKey::Srtf | SynergyKey::Ftf | SynergyKey::Tetris => Knowledge::Oracle,
        }
    }
}
