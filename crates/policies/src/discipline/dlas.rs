//! The queues of Tiresias as Muri's simulator keeps them. Jobs enter the first queue at its end and go down by one
//! queue at a decision once their GPU time reaches its limit. Inside a queue, who runs stays ahead of who waits;
//! otherwise it is first come, first served. Queue after queue, whatever fits runs.

use dovetail_engine::{Claim, Discipline, Knowledge, Part, Round};
use dovetail_model::{JobId, Time};
use serde_json::Value;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "dlas",
    what: "as in Muri's simulator: Tiresias' queues, running jobs ahead of waiting ones in each",
    source: "Muri (SIGCOMM'22), simulator, schedule dlas-gpu",
    key: "queue by GPU time against the limits; then running before waiting, then first come",
    knowledge: Knowledge::None,
    knobs: &[Knob {
        name: "queues",
        default: "3250/7200",
        what: "GPU seconds at which a job goes down to the next queue",
    }],
    build: |knobs| {
        let limits = knobs
            .text("queues")
            .split('/')
            .map(|limit| limit.trim().parse::<i64>().ok().filter(|l| *l > 0))
            .collect::<Option<Vec<i64>>>()
            .filter(|limits| limits.is_sorted())
            .ok_or_else(|| knobs.bad("queues", "GPU seconds in rising order, such as 3250/7200"))?;
        Ok(Box::new(Dlas {
            queues: vec![Vec::new(); limits.len() + 1],
            limits_s: limits,
            name: knobs.name(),
        }))
    },
};

/// Tiresias' queues.
#[derive(Debug, Clone)]
pub struct Dlas {
    limits_s: Vec<i64>,
    queues: Vec<Vec<JobId>>,
    name: String,
}

impl Part for Dlas {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn save(&self) -> Value {
        Value::Array(self.queues.iter().map(|q| super::save_jobs(q)).collect())
    }

    fn load(&mut self, saved: &Value) -> Result<(), String> {
        let queues = saved
            .as_array()
            .and_then(|queues| queues.iter().map(super::load_jobs).collect::<Option<Vec<_>>>())
            .filter(|queues| queues.len() == self.queues.len());
        self.queues = queues.ok_or_else(|| format!("{}: not {} queues", self.name, self.queues.len()))?;
        Ok(())
    }
}

impl Discipline for Dlas {
    fn walk(&mut self, round: &mut Round<'_>) {
        self.bring_up_to_date(round);
        round.clear();
        for job in self.queues.iter().flatten() {
            let claim = Claim {
                members: vec![*job],
                gpus: round.job(*job).spec.gpus,
            };
            if round.cluster().free_gpus(None) >= claim.gpus {
                // A claim without a place waits like one without GPUs.
                let _ = round.put(&claim);
            }
        }
        for queue in &mut self.queues {
            queue.sort_by_key(|job| round.job(*job).allocation.is_none());
        }
        self.wake_at_next_limit(round);
    }

    fn looks_at_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}

impl Dlas {
    /// Who is gone leaves, who is new comes last in the first queue, and who has used up a queue goes to the next.
    fn bring_up_to_date(&mut self, round: &Round<'_>) {
        let mut all: Vec<JobId> = round.everyone().iter().map(|r| r.job).collect();
        all.sort_unstable();
        let mut known: Vec<JobId> = Vec::with_capacity(all.len());
        for queue in &mut self.queues {
            queue.retain(|job| all.binary_search(job).is_ok());
            known.extend(queue.iter());
        }
        known.sort_unstable();
        let mut down: Vec<(usize, JobId)> = Vec::new();
        for (level, limit_s) in self.limits_s.iter().enumerate() {
            let used_up = |job: &&JobId| {
                let job = round.job(**job);
                job.is_up() && job.gpu_time(round.now()) >= i128::from(*limit_s) * 1_000_000
            };
            down.extend(self.queues[level].iter().filter(used_up).map(|job| (level, *job)));
        }
        down.sort_unstable_by_key(|(_, job)| *job);
        for (level, job) in down {
            self.queues[level].retain(|j| *j != job);
            self.queues[level + 1].push(job);
        }
        self.queues[0].extend(all.into_iter().filter(|job| known.binary_search(job).is_err()));
    }

    /// Asks to be woken when the next running job uses up its queue, in whole seconds of run time.
    fn wake_at_next_limit(&self, round: &mut Round<'_>) {
        let mut next: Option<Time> = None;
        for (queue, limit_s) in self.queues.iter().zip(&self.limits_s) {
            for job in queue.iter().map(|job| round.job(*job)) {
                if job.allocation.is_some() {
                    let whole_s = (*limit_s as u64).div_ceil(u64::from(job.spec.gpus.max(1)));
                    let ran = job.attained(round.now());
                    let at = round.now() + (Time::from_secs(whole_s as i64) - ran);
                    next = Some(next.map_or(at, |n| n.min(at)));
                }
            }
        }
        if let Some(at) = next {
            round.wake_at(at);
        }
    }
}
