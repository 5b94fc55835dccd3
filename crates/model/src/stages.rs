//! Stages of a training iteration, and the duration of an iteration when jobs interleave their stages on the same GPUs.
//!
//! An iteration loads data, computes on the GPU and uses the network, in sequence. Jobs that share GPUs can be offset by one
//! stage each, so that one loads while another computes (Muri, SIGCOMM'22). The functions here are pure and do not
//! allocate.

use serde::{Deserialize, Serialize};

/// The most jobs that can share one set of GPUs: one for each resource.
pub const MOST_SHARERS: usize = 4;

/// Durations of the stages of one iteration of a job that runs alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stages {
    /// Data, GPU and network, or storage, CPU, GPU and network if `four` is set; in microseconds.
    pub times_us: [u32; 4],
    /// Whether storage and CPU are separate stages. If not, the data stage may use both.
    pub four: bool,
    /// The whole iteration, in microseconds; less than the sum of its stages if they overlap.
    pub iteration_us: u32,
}

impl Stages {
    /// Returns three stages: data (storage and CPU together), GPU and network.
    pub fn three(data_us: u32, gpu_us: u32, network_us: u32, iteration_us: u32) -> Self {
        Self {
            times_us: [data_us, gpu_us, network_us, 0],
            four: false,
            iteration_us,
        }
    }

    /// Returns the sum of all stages, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.times_us.iter().map(|t| u64::from(*t)).sum()
    }

    fn time(&self, stage: usize, unit_us: f64) -> f64 {
        f64::from(self.times_us[stage]) / unit_us
    }
}

/// Which order of the members of a group is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ordering {
    /// The order with the shortest period.
    #[default]
    Best,
    /// The order with the longest period, to measure the benefit of ordering.
    Worst,
}

/// What is needed to interleave the stages of a job with those of other jobs on the same GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterleavingTerms {
    /// The stages of an iteration of the job.
    pub stages: Stages,
    /// Which order of the members of a group is used.
    #[serde(default)]
    pub ordering: Ordering,
}

/// How much longer a period is because sharing is not perfect, by number of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Contention {
    /// Factors for one, two, three and four jobs.
    pub factors: [f64; MOST_SHARERS],
}

impl Contention {
    /// No contention.
    pub const NONE: Self = Self {
        factors: [1.0; MOST_SHARERS],
    };
}

impl Default for Contention {
    /// Returns the factors measured by Muri on V100 GPUs: 1.33, 1.5 and 1.37 divided by a start-up factor of 1.015.
    fn default() -> Self {
        Self {
            factors: [1.0, 1.33 / 1.015, 1.5 / 1.015, 1.37 / 1.015],
        }
    }
}

/// Returns the duration of one iteration of all members together, in microseconds, without contention. A single member
/// takes its own iteration time. There must be one to four members.
pub fn period_us(members: &[Stages], ordering: Ordering) -> f64 {
    period(members, ordering, 1.0)
}

/// Returns [`period_us`] computed in seconds, which rounds as Muri's code does.
pub fn period_s(members: &[Stages], ordering: Ordering) -> f64 {
    period(members, ordering, 1e6)
}

fn period(members: &[Stages], ordering: Ordering, unit_us: f64) -> f64 {
    if let [alone] = members {
        return f64::from(alone.iteration_us) / unit_us;
    }
    let mut order = [0, 1, 2, 3];
    let mut found: Option<f64> = None;
    permute(&mut order, members.len(), 0, &mut |order| {
        let (shortest, longest) = period_of(members, &order[..members.len()], unit_us);
        found = Some(match (ordering, found) {
            (Ordering::Best, known) => known.map_or(shortest, |k| k.min(shortest)),
            (Ordering::Worst, known) => known.map_or(longest, |k| k.max(longest)),
        });
    });
    found.unwrap_or(0.0)
}

/// Returns the mean utilization of the four resources when the members share GPUs, including contention.
pub fn efficiency(members: &[Stages], ordering: Ordering, contention: &Contention) -> f64 {
    let used: u64 = members.iter().map(Stages::sum_us).sum();
    used as f64 / (4.0 * shared_period_us(members, ordering, contention))
}

/// Returns the period with contention, at least the time for which the busiest resource is needed. The bound matters
/// because Muri's phases converge to a thousandth only and let data stages overlap: without contention a few groups would
/// otherwise do more work than storage and CPU have time for.
pub fn shared_period_us(members: &[Stages], ordering: Ordering, contention: &Contention) -> f64 {
    let period = period_us(members, ordering) * contention.factors[members.len() - 1];
    if members.len() > 1 {
        period.max(busiest_us(members))
    } else {
        period
    }
}

/// Returns the time for which the busiest resource is needed. Without four stages, two resources share the data stage.
fn busiest_us(members: &[Stages]) -> f64 {
    let four = members.iter().all(|m| m.four);
    let needed = |stage: usize| -> f64 {
        let sum: f64 = members.iter().map(|m| m.time(stage, 1.0)).sum();
        if stage == 0 && !four { sum / 2.0 } else { sum }
    };
    (0..4).map(needed).fold(0.0, f64::max)
}

/// Calls `visit` with every permutation of the first `count` positions.
fn permute(order: &mut [usize; 4], count: usize, from: usize, visit: &mut impl FnMut(&[usize; 4])) {
    if from == count {
        return visit(order);
    }
    for i in from..count {
        order.swap(from, i);
        permute(order, count, from + 1, visit);
        order.swap(from, i);
    }
}

/// Returns the shortest and the longest period of one order. They differ only for pairs, which can interleave in two ways.
fn period_of(members: &[Stages], order: &[usize], unit_us: f64) -> (f64, f64) {
    let stage = |slot: usize, stage: usize| order.get(slot).map(|m| members[*m].time(stage, unit_us));
    if members.iter().all(|m| m.four) {
        let phase = |i: usize| {
            (0..4)
                .filter_map(|s| stage(s, (i + 4 - s) % 4))
                .fold(0.0, f64::max)
        };
        let sum = (0..4).map(phase).sum();
        return (sum, sum);
    }
    let by_phases = phases(&stage);
    if let [a, b] = order {
        let (a, b) = (&members[*a], &members[*b]);
        let data = |m: &Stages| m.time(0, unit_us);
        let compute = |m: &Stages| m.time(1, unit_us) + m.time(2, unit_us);
        let by_turns = data(a).max(compute(b)) + data(b).max(compute(a));
        return (by_phases.min(by_turns), by_phases.max(by_turns));
    }
    (by_phases, by_phases)
}

/// Simulates four slots, each one stage behind the previous one: the network stage of one job, the GPU stage of the next
/// and the data stage of the third, which may have begun one phase earlier, run at the same time. Ends when four phases take
/// the same time twice.
fn phases(stage: &impl Fn(usize, usize) -> Option<f64>) -> f64 {
    let mut end = [0.0f64; 9];
    for i in 0..8 {
        let network = stage((i + 1) % 4, 2).map(|t| end[i] + t);
        let gpu = stage((i + 2) % 4, 1).map(|t| end[i] + t);
        let data = if i > 0 {
            stage((i + 3) % 4, 0).map(|t| end[i - 1] + t)
        } else {
            None
        };
        end[i + 1] = network
            .into_iter()
            .chain(gpu)
            .chain(data)
            .reduce(f64::max)
            .unwrap_or(end[i]);
    }
    for i in 4..8 {
        let (now, before) = (end[i + 1] - end[i - 3], end[i] - end[i - 4]);
        if (now - before).abs() <= 1e-3 * now.abs().max(before.abs()) {
            return now;
        }
    }
    end[8] - end[4]
}

#[cfg(test)]
mod tests {
    use super::*;

    const A2C: Stages = Stages {
        times_us: [514_000, 14_000, 0, 0],
        four: false,
        iteration_us: 517_000,
    };
    const BERT: Stages = Stages {
        times_us: [500, 160_000, 0, 0],
        four: false,
        iteration_us: 178_000,
    };

    #[test]
    fn periods_match_the_paper() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * b;
        assert!(near(period_us(&[A2C, A2C], Ordering::Best), 542_000.0));
        assert!(near(period_us(&[A2C, A2C], Ordering::Worst), 1_028_000.0));
        assert!(near(period_us(&[A2C, BERT], Ordering::Best), 528_000.0));
        let contention = Contention::default();
        assert!(near(
            efficiency(&[A2C, A2C], Ordering::Best, &contention),
            0.371_722_664_595_066_9
        ));
        assert_eq!(period_us(&[A2C], Ordering::Best), 517_000.0);
    }

    #[test]
    fn the_order_of_the_arguments_does_not_matter() {
        let group = [A2C, BERT, A2C, BERT];
        let turned = [BERT, A2C, BERT, A2C];
        for ordering in [Ordering::Best, Ordering::Worst] {
            assert_eq!(period_us(&group, ordering), period_us(&turned, ordering));
        }
        assert!(period_us(&group, Ordering::Best) <= period_us(&group, Ordering::Worst));
    }

    #[test]
    fn four_stages_run_in_four_phases() {
        let stage = |t: [u32; 4]| Stages {
            times_us: t,
            four: true,
            iteration_us: t.iter().sum(),
        };
        let group = [
            stage([10, 0, 0, 0]),
            stage([0, 10, 0, 0]),
            stage([0, 0, 10, 0]),
            stage([0, 0, 0, 10]),
        ];
        assert_eq!(period_us(&group, Ordering::Best), 10.0);
        assert_eq!(period_us(&group, Ordering::Worst), 30.0);
    }
}
