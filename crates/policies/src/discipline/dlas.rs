//! The queues of Tiresias as Muri's simulator keeps them. A job enters the first queue at its end and moves down one queue
//! at a decision once its GPU time reaches the limit. Within a queue, running jobs precede waiting ones; otherwise jobs are
//! served in order of arrival. Queue after queue, every job that fits runs.

use dovetail_engine::{Claim, Discipline, LoadError, Part, Round};
use dovetail_model::{JobKey, Time};
use serde_json::Value;

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "dlas",
    what: "as in Muri's simulator: the queues of Tiresias, in each of them running jobs ahead of waiting ones",
    source: "Muri (SIGCOMM'22), simulator, schedule dlas-gpu",
    key: "queue by GPU time; then running before waiting, then order of arrival",
    companions: &[],
    knobs: &[Knob {
        name: "queues",
        default: "3250/7200",
        what: "GPU-seconds at which a job moves down to the next queue",
    }],
    build: |knobs| {
        let limits = knobs
            .text("queues")
            .split('/')
            .map(|limit| limit.trim().parse::<i64>().ok().filter(|l| *l > 0))
            .collect::<Option<Vec<i64>>>()
            .filter(|limits| limits.is_sorted())
            .ok_or_else(|| knobs.invalid("queues", "GPU seconds in rising order, such as 3250/7200"))?;
        Ok(Box::new(Dlas {
            queues: vec![Vec::new(); limits.len() + 1],
            limits_s: limits,
            name: knobs.name(),
        }))
    },
};

/// The queues of Tiresias.
#[derive(Debug, Clone)]
struct Dlas {
    limits_s: Vec<i64>,
    queues: Vec<Vec<JobKey>>,
    name: String,
}

impl Part for Dlas {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn save(&self) -> Value {
        Value::Array(self.queues.iter().map(|q| super::save_jobs(q)).collect())
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        let queues = saved
            .as_array()
            .and_then(|queues| queues.iter().map(super::load_jobs).collect::<Option<Vec<_>>>())
            .filter(|queues| queues.len() == self.queues.len());
        let count = self.queues.len();
        self.queues =
            queues.ok_or_else(|| LoadError::new(&*self.name, format!("expected {count} queues")))?;
        Ok(())
    }
}

impl Discipline for Dlas {
    fn walk(&mut self, round: &mut Round<'_>) {
        self.update_queues(round);
        round.planner().release_all();
        for job in self.queues.iter().flatten() {
            let claim = Claim {
                members: vec![*job],
                gpus: round.job(*job).spec.gpus,
            };
            if round.cluster().free_gpus(None) >= claim.gpus {
                // A claim that does not fit waits, as it would without free GPUs.
                let _ = round.planner().place_claim(&claim);
            }
        }
        for queue in &mut self.queues {
            queue.sort_by_key(|job| round.job(*job).allocation.is_none());
        }
        self.wake_at_next_limit(round);
    }

    fn needs_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}

impl Dlas {
    /// Removes jobs that have ended, appends new ones to the first queue, and moves down those that reached its limit.
    fn update_queues(&mut self, round: &Round<'_>) {
        let mut all: Vec<JobKey> = round.all_jobs().iter().map(|r| r.job).collect();
        all.sort_unstable();
        let mut known: Vec<JobKey> = Vec::with_capacity(all.len());
        for queue in &mut self.queues {
            queue.retain(|job| all.binary_search(job).is_ok());
            known.extend(queue.iter());
        }
        known.sort_unstable();
        let mut down: Vec<(usize, JobKey)> = Vec::new();
        for (level, limit_s) in self.limits_s.iter().enumerate() {
            let used_up = |job: &&JobKey| {
                let job = round.job(**job);
                job.holds_gpus() && job.gpu_time(round.now()) >= i128::from(*limit_s) * 1_000_000
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

    /// Requests a decision when the next running job reaches the limit of its queue, in whole seconds of run time.
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
