//! Tetris: little work left and a demand that suits what is free go first. Key: work left, stretched by how badly the
//! job's demand is aligned with what is free.
//!
//! *Work left* is run time left × the parts of all GPUs, CPU and memory it asks for, together. *Alignment* is the cosine
//! between that demand and what nobody holds right now: one where they have the same proportions. A job that holds GPUs is
//! as well aligned as the best of those who wait: what is free would suit the other whenever one of two rivals runs, and
//! they would take each other's place for ever. So nobody has to give way to a job with more work left.

use dovetail_engine::{Cluster, Crowd, Job, Knowledge, Line, Order, Part};
use dovetail_model::Time;

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Order> = Entry {
    name: "tetris",
    what: "little work left first, and of it what suits the CPU, memory and GPUs that are free",
    source: "Tetris (SIGCOMM'14): alignment and remaining work",
    key: "run time left × (parts of GPUs + CPU + memory) × (2 − alignment with what is free)",
    knowledge: Knowledge::Estimate,
    knobs: &[],
    build: |_| {
        Ok(Box::new(Tetris {
            has: [1; 3],
            free: [0.0; 3],
            best: 1.0,
        }))
    },
};

/// Small and well aligned first.
#[derive(Debug, Clone)]
pub struct Tetris {
    has: [u64; 3],
    /// The part of each resource that is free, before every decision.
    free: [f64; 3],
    /// How well that suits the one it suits best among those who wait.
    best: f64,
}

impl Tetris {
    /// The parts of all GPUs, CPU and memory that a job asks for.
    fn parts(&self, job: &Job) -> [f64; 3] {
        let asked = super::demand(job);
        let part = |i: usize| asked[i] as f64 / self.has[i].max(1) as f64;
        [part(0), part(1), part(2)]
    }
}

impl Part for Tetris {
    fn name(&self) -> String {
        "tetris".to_owned()
    }
}

impl Order for Tetris {
    fn line(&self, job: &Job, now: Time) -> Line {
        let Some(left) = job.remaining(now) else {
            return Line::fixed(i128::from(job.spec.submit.0)).in_band(1);
        };
        let parts = self.parts(job);
        let aligned = match job.allocation {
            Some(_) => self.best,
            None => alignment(&parts, &self.free),
        };
        let work = left.0 as f64 * parts.iter().sum::<f64>();
        Line::fixed((work * (2.0 - aligned)) as i128)
    }

    fn line_among(&self, job: &Job, _crowd: &Crowd, now: Time) -> Line {
        self.line(job, now)
    }

    fn looks_at_crowd(&self) -> bool {
        true
    }

    fn see(&mut self, jobs: &mut dyn Iterator<Item = &Job>, cluster: &Cluster, _now: Time) {
        self.has = super::totals(cluster);
        let mut free = [u64::from(cluster.free_gpus(None)), 0, 0];
        for (_, node) in cluster.nodes().filter(|(_, n)| n.is_open()) {
            free[1] += u64::from(node.free_cpu_milli);
            free[2] += node.free_memory_mib;
        }
        for (i, free) in free.into_iter().enumerate() {
            self.free[i] = free as f64 / self.has[i].max(1) as f64;
        }
        let waiting = jobs.filter(|job| job.allocation.is_none());
        self.best = waiting
            .map(|job| alignment(&self.parts(job), &self.free))
            .fold(0.0, f64::max);
    }

    fn knowledge(&self) -> Knowledge {
        Knowledge::Estimate
    }
}

/// The cosine between two vectors; one where either is nothing.
fn alignment(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    let dot = |a: &[f64; 3], b: &[f64; 3]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let length = libm::sqrt(dot(a, a) * dot(b, b));
    if length > 0.0 { dot(a, b) / length } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::alignment;

    #[test]
    fn what_has_the_same_proportions_is_aligned() {
        assert!((alignment(&[0.1, 0.2, 0.3], &[0.2, 0.4, 0.6]) - 1.0).abs() < 1e-12);
        assert_eq!(alignment(&[1.0, 0.0, 0.0], &[0.0, 1.0, 0.0]), 0.0);
        assert_eq!(alignment(&[1.0, 0.0, 0.0], &[0.0; 3]), 1.0);
    }
}
