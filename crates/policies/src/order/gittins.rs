//! 2-D Gittins index, learnt from finished jobs.
//!
//! With S the total GPU time of a job and `a` the GPU time it has used, the index is the largest probability of finishing
//! per GPU time spent, over all amounts Δ to spend: P(S − a ≤ Δ | S > a) / E[min(S − a, Δ) | S > a]. The key is its
//! inverse, the expected cost of a completion. It is looked up in a table over GPU time used, which is recomputed as the
//! history grows. Until the history is long enough, the key is the GPU time used (2-D LAS), in steps of one GPU-hour.

use std::collections::VecDeque;

use dovetail_engine::{Job, LoadError, Part, QueueKey, QueueOrder};
use dovetail_model::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::las::reaches;
use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn QueueOrder> = Entry {
    name: "gittins",
    what: "2-D Gittins index: the highest probability of finishing per GPU time, learnt from finished jobs",
    source: "Gittins 1979; Tiresias (NSDI'19), 2D-Gittins",
    key: "1 / max over Δ of P(finish within Δ) / E[GPU time spent within Δ], given the GPU time used",
    companions: &[(Kind::Discipline, "preempt")],
    knobs: &[
        Knob {
            name: "window",
            default: "2000",
            what: "number of finished jobs in the history; 10 to 100000",
        },
        Knob {
            name: "ages",
            default: "32",
            what: "steps of the table over GPU time used; 2 to 1024",
        },
    ],
    build: |knobs| {
        let within = |name: &str, least: usize, most: usize| {
            let expected = format!("a whole number from {least} to {most}");
            match knobs.get::<usize>(name, &expected)? {
                n if (least..=most).contains(&n) => Ok(n),
                _ => Err(knobs.invalid(name, &expected)),
            }
        };
        let (window, ages) = (within("window", 10, 100_000)?, within("ages", 2, 1024)?);
        Ok(Box::new(Gittins {
            window,
            ages,
            model: ServiceModel::default(),
            name: knobs.name(),
        }))
    },
};

/// Highest Gittins index first.
#[derive(Debug, Clone)]
struct Gittins {
    window: usize,
    ages: usize,
    model: ServiceModel,
    name: String,
}

/// The history, and the table computed from it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct ServiceModel {
    /// GPU time of finished jobs, oldest first, in GPU-microseconds.
    history: VecDeque<u64>,
    /// Jobs finished since the table was computed.
    fresh: usize,
    /// GPU time used (in GPU-microseconds) at which a step begins, and the key of the step.
    table: Vec<(u64, u64)>,
}

/// Before there is a table: a step of 2-D LAS, in GPU-microseconds (one GPU-hour).
const FIRST_STEP: i128 = 3_600_000_000;
/// Finished jobs needed for the first table.
const MIN_HISTORY: usize = 50;

impl Part for Gittins {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn save(&self) -> Value {
        serde_json::to_value(&self.model).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        self.model = serde_json::from_value(saved.clone()).map_err(|e| LoadError::new("gittins", e))?;
        Ok(())
    }
}

impl QueueOrder for Gittins {
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        let service = job.service(now);
        let speed = if job.holds_gpus() {
            i64::from(job.width())
        } else {
            0
        };
        if self.model.table.is_empty() {
            let level = service / FIRST_STEP;
            return QueueKey::fixed(level).until(reaches((level + 1) * FIRST_STEP - service, speed, now));
        }
        let table = &self.model.table;
        let step = table
            .partition_point(|(age, _)| i128::from(*age) <= service)
            .saturating_sub(1);
        let next = table
            .get(step + 1)
            .and_then(|(age, _)| reaches(i128::from(*age) - service, speed, now));
        QueueKey::fixed(i128::from(table[step].1)).until(next)
    }

    fn job_finished(&mut self, job: &Job, now: Time) -> bool {
        let model = &mut self.model;
        if model.history.len() == self.window {
            model.history.pop_front();
        }
        model
            .history
            .push_back(u64::try_from(job.gpu_time(now).max(1)).unwrap_or(u64::MAX));
        model.fresh += 1;
        let due = model.history.len() >= MIN_HISTORY && model.fresh * 10 >= model.history.len();
        if due {
            model.fresh = 0;
            model.table = table(model.history.iter().copied().collect(), self.ages);
        }
        due
    }
}

/// Computes keys at `ages` quantiles of the history, starting at zero; the last step lies beyond the history.
fn table(mut history: Vec<u64>, ages: usize) -> Vec<(u64, u64)> {
    history.sort_unstable();
    let mut steps = vec![(0, price(&history, 0))];
    for i in 1..ages {
        let age = history[i * (history.len() - 1) / ages];
        if steps.last().is_some_and(|(last, _)| *last < age) {
            steps.push((age, price(&history, age)));
        }
    }
    let beyond = history.last().copied().unwrap_or(0) + 1;
    steps.push((beyond, u64::MAX));
    steps
}

/// The smallest expected GPU time per completion for a job that has used `age`: the inverse of the Gittins index.
fn price(sorted: &[u64], age: u64) -> u64 {
    let alive = &sorted[sorted.partition_point(|s| *s <= age)..];
    let mut spent = 0.0;
    let mut best = f64::INFINITY;
    for (i, service) in alive.iter().enumerate() {
        let span = (service - age) as f64;
        spent += span;
        let finished = (i + 1) as f64;
        let total = spent + span * (alive.len() as f64 - finished);
        best = best.min(total / finished);
    }
    if best.is_finite() {
        best as u64
    } else {
        u64::MAX - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_distinguishes_short_from_long_jobs() {
        // Half the jobs take 10, half take 1000. A new job is worth trying for 10; one that has used 10 is a long one.
        let history: Vec<u64> = (0..100).map(|i| if i % 2 == 0 { 10 } else { 1000 }).collect();
        let mut sorted = history.clone();
        sorted.sort_unstable();
        assert_eq!(price(&sorted, 0), 20);
        assert_eq!(price(&sorted, 10), 990);
        assert_eq!(price(&sorted, 900), 100);
        let table = table(history, 8);
        assert_eq!(table.first(), Some(&(0, 20)));
        assert_eq!(table.last(), Some(&(1001, u64::MAX)));
    }
}
