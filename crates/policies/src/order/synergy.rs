//! The keys of Synergy's simulator, computed in floating point as it does, so that ties are broken the same way.
//!
//! Some differ from what their names suggest: its FTF serves the job with the *smallest* delay, and its DRF and TETRIS look
//! at one job alone. The orders `ftf`, `drf` and `tetris` implement the real ones.

use dovetail_engine::{ClusterLoad, Job, Knowledge, Need, NeedSet, Part, QueueKey, QueueOrder};
use dovetail_model::{Share, Time};

/// One of Synergy's sort keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SynergyKey {
    /// Time of submission.
    Fifo,
    /// Run time left.
    Srtf,
    /// Time held × GPUs.
    Las,
    /// (Time since submission + run time left) ÷ total run time.
    Ftf,
    /// The largest of its shares of GPUs, CPU and memory.
    Drf,
    /// The sum of those shares × run time left.
    Tetris,
}

/// What Synergy's profiles state about a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SynergyFacts {
    /// Time of an iteration with the proportional share, in seconds.
    pub iteration_s: f64,
    /// Number of iterations.
    pub iterations: u64,
    /// Speed-up with the share that makes it fastest.
    pub speedup: f64,
    /// CPU and memory per GPU that make it fastest.
    pub preferred: Share,
}

impl SynergyFacts {
    /// The time of an iteration, in microseconds.
    pub fn iteration_us(&self) -> u64 {
        ((self.iteration_s * 1e6).round() as u64).max(1)
    }
}

/// One of Synergy's sort keys over all jobs.
#[derive(Debug, Clone)]
pub struct SynergyOrder {
    key: SynergyKey,
    /// Whether jobs run at the speed of their proportional share, whatever they hold.
    fair: bool,
    facts: Vec<SynergyFacts>,
    gpus: f64,
    capacity: Share,
}

impl SynergyOrder {
    /// Orders these jobs by `key`, on a cluster with this many GPUs and this much CPU and memory in total.
    pub fn new(key: SynergyKey, fair: bool, facts: Vec<SynergyFacts>, gpus: u32, capacity: Share) -> Self {
        Self {
            key,
            fair,
            facts,
            gpus: f64::from(gpus),
            capacity,
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

    /// Run time left at the speed of the last round, or at full speed.
    fn time_left(&self, job: &Job, facts: &SynergyFacts, now: Time) -> f64 {
        let work = job.spec.expected.map_or(0, |w| w.minus(job.done(now)).0);
        let left = facts.iteration_s * (work / facts.iteration_us()) as f64;
        if self.fair {
            return left;
        }
        let cut_back = job.allocation.as_ref().is_some_and(|held| {
            held.shares.iter().any(|part| {
                let all = facts.preferred.times(part.gpus.count());
                part.cpu_milli < all.cpu_milli || part.memory_mib < all.memory_mib
            })
        });
        left / if cut_back { 1.0 } else { facts.speedup }
    }

    fn shares(&self, job: &Job, facts: &SynergyFacts) -> [f64; 3] {
        let preferred = facts.preferred.times(job.spec.gpus);
        [
            f64::from(job.spec.gpus) / self.gpus,
            f64::from(preferred.cpu_milli) / 1000.0 / (f64::from(self.capacity.cpu_milli) / 1000.0),
            preferred.memory_mib as f64 / 1024.0 / (self.capacity.memory_mib as f64 / 1024.0),
        ]
    }
}

impl Part for SynergyOrder {
    fn name(&self) -> String {
        format!("synergy:key={:?}", self.key).to_lowercase()
    }

    fn needs(&self) -> NeedSet {
        match self.key {
            SynergyKey::Fifo | SynergyKey::Las | SynergyKey::Drf => NeedSet::EMPTY,
            SynergyKey::Srtf | SynergyKey::Ftf | SynergyKey::Tetris => {
                [Need::RemainingTime, Need::Rate].into()
            }
        }
    }

    fn knowledge(&self) -> Knowledge {
        match self.needs().contains(Need::RemainingTime) {
            true => Knowledge::Oracle,
            false => Knowledge::None,
        }
    }
}

impl QueueOrder for SynergyOrder {
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        // The bits of non-negative floating-point numbers compare like the numbers.
        QueueKey::fixed(i128::from(self.value(job, now).max(0.0).to_bits()))
    }

    fn key_under_load(&self, job: &Job, _load: &ClusterLoad, now: Time) -> QueueKey {
        self.key(job, now)
    }

    /// All keys are recomputed every round.
    fn depends_on_all_jobs(&self) -> bool {
        true
    }
}
