//! Who shares GPUs with whom, and how fast each goes then.

use std::collections::BTreeMap;

use dovetail_model::stages::{Contention, MOST_SHARERS, Ordering, Stages, shared_period_us};
use dovetail_model::{Allocation, JobId, NodeId, Rate};

/// A set of GPUs, by its first one. Jobs that share do so with all their GPUs.
pub(crate) type Seat = (NodeId, u32);

/// Jobs on the same GPUs.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    seats: BTreeMap<Seat, Vec<JobId>>,
    /// Seats where someone came or went since the last look.
    touched: Vec<Seat>,
}

impl Sharing {
    /// A job comes; tells whether the GPUs were idle.
    pub(crate) fn join(&mut self, job: JobId, seat: Seat) -> bool {
        let here = self.seats.entry(seat).or_default();
        here.push(job);
        self.touched.push(seat);
        here.len() == 1
    }

    /// A job goes; tells whether the GPUs are idle now.
    pub(crate) fn leave(&mut self, job: JobId, seat: Seat) -> bool {
        let here = self
            .seats
            .get_mut(&seat)
            .expect("a job leaves the GPUs it was on");
        here.retain(|j| *j != job);
        let idle = here.is_empty();
        if idle {
            self.seats.remove(&seat);
        }
        self.touched.push(seat);
        idle
    }

    /// Everyone on GPUs where someone came or went, group by group.
    pub(crate) fn take_touched(&mut self) -> Vec<Vec<JobId>> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
            .iter()
            .filter_map(|seat| self.seats.get(seat).cloned())
            .collect()
    }
}

/// Where an allocation sits.
pub(crate) fn seat(allocation: &Allocation) -> Seat {
    let first = &allocation.shares[0];
    (first.node, first.gpus.iter().next().unwrap_or(0))
}

/// The share of its own speed that each member keeps. Without measured stages, or with more members than resources,
/// members take turns.
pub(crate) fn kept(members: &[Option<Stages>], contention: &Contention, ordering: Ordering) -> Vec<Rate> {
    let known: Option<Vec<Stages>> = members.iter().copied().collect();
    let turns = || vec![Rate::from_factor(1.0 / members.len() as f64); members.len()];
    match known {
        _ if members.len() <= 1 => vec![Rate::FULL; members.len()],
        Some(stages) if stages.len() <= MOST_SHARERS => {
            let period = shared_period_us(&stages, ordering, contention);
            stages
                .iter()
                .map(|s| Rate::from_factor(f64::from(s.iteration_us) / period))
                .collect()
        }
        _ => turns(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_share_of_the_period() {
        let a2c = Stages::three(514_000, 14_000, 0, 517_000);
        let bert = Stages::three(500, 160_000, 0, 178_000);
        let rates = kept(&[Some(a2c), Some(bert)], &Contention::default(), Ordering::Best);
        let period = 528_000.0 * 1.33 / 1.015;
        assert_eq!(
            rates,
            [
                Rate::from_factor(517_000.0 / period),
                Rate::from_factor(178_000.0 / period)
            ]
        );
        assert_eq!(
            kept(&[Some(a2c)], &Contention::default(), Ordering::Best),
            [Rate::FULL]
        );
        assert_eq!(
            kept(&[None, None], &Contention::default(), Ordering::Best),
            [Rate(500_000); 2]
        );
    }

    #[test]
    fn seats_know_who_comes_and_goes() {
        let mut sharing = Sharing::default();
        let seat = (NodeId(0), 0);
        assert!(sharing.join(JobId(1), seat));
        assert!(!sharing.join(JobId(2), seat));
        assert_eq!(sharing.take_touched(), [[JobId(1), JobId(2)]]);
        assert!(!sharing.leave(JobId(1), seat));
        assert!(sharing.leave(JobId(2), seat));
        assert!(sharing.take_touched().is_empty());
    }
}
