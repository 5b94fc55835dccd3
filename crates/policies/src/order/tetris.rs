//! Tetris: jobs with little work left whose demand matches the free resources come first. Key: work left, increased by how
//! badly the job's demand is aligned with what is free.
//!
//! *Work left* is run time left × the sum of the shares of all GPUs, CPU and memory that the job asks for. *Alignment* is the
//! cosine between that demand and what is free now: 1 where they have the same proportions. A job that holds GPUs counts as
//! aligned as the best queued job. Otherwise, of two rivals, what is free would always suit the one that waits, and they
//! would preempt each other forever. So no job is preempted by one with more work left.

use dovetail_engine::{Cluster, ClusterLoad, Job, Need, NeedSet, Part, QueueKey, QueueOrder};
use dovetail_model::Time;

use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn QueueOrder> = Entry {
    name: "tetris",
    what: "jobs with little work left first, preferring those that match the free CPU, memory and GPUs",
    source: "Tetris (SIGCOMM'14): alignment and remaining work",
    key: "run time left × (shares of GPUs + CPU + memory) × (2 − alignment with what is free)",
    companions: &[(Kind::Discipline, "preempt")],
    knobs: &[],
    build: |_| {
        Ok(Box::new(Tetris {
            capacity: [1; 3],
            free: [0.0; 3],
            best: 1.0,
        }))
    },
};

/// Little work left and well aligned first.
#[derive(Debug, Clone)]
struct Tetris {
    capacity: [u64; 3],
    /// The share of each resource that is free, before every decision.
    free: [f64; 3],
    /// The best alignment of any queued job with what is free.
    best: f64,
}

impl Tetris {
    /// The shares of all GPUs, CPU and memory that a job asks for.
    fn parts(&self, job: &Job) -> [f64; 3] {
        let asked = super::demand(job);
        let part = |i: usize| asked[i] as f64 / self.capacity[i].max(1) as f64;
        [part(0), part(1), part(2)]
    }
}

impl Part for Tetris {
    fn name(&self) -> String {
        "tetris".to_owned()
    }

    fn needs(&self) -> NeedSet {
        [Need::RemainingTime, Need::Rate].into()
    }

    fn hints(&self) -> NeedSet {
        Need::CpuCurve.into()
    }
}

impl QueueOrder for Tetris {
    fn key(&self, job: &Job, now: Time) -> QueueKey {
        let Some(left) = job.remaining(now) else {
            return QueueKey::fixed(i128::from(job.spec.submit.0)).in_band(1);
        };
        let parts = self.parts(job);
        let aligned = match job.allocation {
            Some(_) => self.best,
            None => alignment(&parts, &self.free),
        };
        let work = left.0 as f64 * parts.iter().sum::<f64>();
        QueueKey::fixed((work * (2.0 - aligned)) as i128)
    }

    fn key_under_load(&self, job: &Job, _load: &ClusterLoad, now: Time) -> QueueKey {
        self.key(job, now)
    }

    fn depends_on_all_jobs(&self) -> bool {
        true
    }

    fn observe(&mut self, jobs: &mut dyn Iterator<Item = &Job>, cluster: &Cluster, _now: Time) {
        self.capacity = super::totals(cluster);
        let mut free = [u64::from(cluster.free_gpus(None)), 0, 0];
        for (_, node) in cluster.nodes().filter(|(_, n)| n.is_open()) {
            free[1] += u64::from(node.free_cpu_milli);
            free[2] += node.free_memory_mib;
        }
        for (i, free) in free.into_iter().enumerate() {
            self.free[i] = free as f64 / self.capacity[i].max(1) as f64;
        }
        let waiting = jobs.filter(|job| job.allocation.is_none());
        self.best = waiting
            .map(|job| alignment(&self.parts(job), &self.free))
            .fold(0.0, f64::max);
    }
}

/// The cosine between two vectors; 1 if either is zero.
fn alignment(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    let dot = |a: &[f64; 3], b: &[f64; 3]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let length = libm::sqrt(dot(a, a) * dot(b, b));
    if length > 0.0 { dot(a, b) / length } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::alignment;

    #[test]
    fn demands_with_the_proportions_of_what_is_free_are_aligned() {
        assert!((alignment(&[0.1, 0.2, 0.3], &[0.2, 0.4, 0.6]) - 1.0).abs() < 1e-12);
        assert_eq!(alignment(&[1.0, 0.0, 0.0], &[0.0, 1.0, 0.0]), 0.0);
        assert_eq!(alignment(&[1.0, 0.0, 0.0], &[0.0; 3]), 1.0);
    }
}
