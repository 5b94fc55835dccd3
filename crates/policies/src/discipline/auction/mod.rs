//! Auction: a job gets GPUs for a lease, and GPUs whose lease has ended are auctioned again.
//!
//! No job is preempted within its lease. The front of the queue, a fraction 1 − f of all jobs without a lease, bids for the
//! GPUs that are free or whose lease has ended; the rest goes to the jobs that fit, in order. A holder that wins its GPUs
//! again keeps them. While no job is queued there is no auction: holders keep running without a lease, and the next queued
//! job finds their GPUs on offer.
//!
//! A gang cannot take some of its GPUs and wait for the others. If the first job in the queue is wider than the offer, GPUs
//! are gathered for it: leases granted from then on end when the running ones have freed enough, and the job is served
//! before the next auction.

mod market;

use std::collections::{BTreeMap, BTreeSet};

use dovetail_engine::{Candidate, Discipline, Job, LoadError, Need, NeedSet, Part, Rank, Round};
use dovetail_model::{JobKey, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use market::{Award, Bid, hold};

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "auction",
    what: "GPUs for a lease; when it ends, the front of the queue bids, and the largest product of all values wins",
    source: "Themis (NSDI'20), partial allocation after Cole, Gkatzelis and Goel (EC'13)",
    key: "the set of gangs that fits with the largest product of 1/ρ; winners pay with a part of their lease",
    companions: &[],
    knobs: &[
        Knob {
            name: "lease",
            default: "20m",
            what: "length of a lease; a span",
        },
        Knob {
            name: "f",
            default: "0.8",
            what: "fraction of the queue that does not bid, 0 to 1; at least one job bids",
        },
        Knob {
            name: "min_lease",
            default: "0.25",
            what: "payments never make a lease shorter than this fraction of it, 0 to 1",
        },
        Knob {
            name: "gather",
            default: "true",
            what: "true: GPUs are gathered for the first job in the queue if it is wider than the offer",
        },
    ],
    build: |knobs| {
        let fraction = |name: &str| {
            let expected = "a number from 0 to 1";
            let fraction: f64 = knobs.get(name, expected)?;
            let is_valid = (0.0..=1.0).contains(&fraction);
            is_valid
                .then_some(fraction)
                .ok_or_else(|| knobs.invalid(name, expected))
        };
        let lease = knobs.span("lease")?;
        if lease == Time::ZERO {
            return Err(knobs.invalid("lease", "a span of time above zero"));
        }
        Ok(Box::new(Auction {
            lease,
            f: fraction("f")?,
            min_lease: fraction("min_lease")?,
            gather: knobs.get("gather", "true or false")?,
            state: AuctionState::default(),
            name: knobs.name(),
        }))
    },
};

/// Leases and auctions.
#[derive(Debug, Clone)]
struct Auction {
    lease: Time,
    f: f64,
    min_lease: f64,
    gather: bool,
    state: AuctionState,
    name: String,
}

/// The end of each lease, and the job that GPUs are gathered for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct AuctionState {
    leases: BTreeMap<JobKey, Time>,
    gathering: Option<JobKey>,
}

/// A wide gang that GPUs are gathered for, when it will have them, and how many others will be free then.
#[derive(Debug, Clone, Copy)]
struct Gathering {
    job: JobKey,
    gpus: u32,
    at: Time,
    spare: u32,
}

/// The outcome of an auction, by positions in the queue.
#[derive(Debug, Default)]
struct Sale {
    /// The job whose GPUs have been gathered: it is served before all others.
    first: Option<usize>,
    /// The winners, and the fraction of a lease that each keeps.
    won: BTreeMap<usize, f64>,
    /// Jobs that get the rest, as far as the number of GPUs goes.
    rest: BTreeSet<usize>,
    /// The job that GPUs are still gathered for.
    gathering: Option<Gathering>,
}

/// A job without a running lease: queued, or a holder whose lease has ended.
#[derive(Debug, Clone, Copy)]
struct Buyer {
    candidate: Candidate,
    gpus: u32,
    holds: bool,
}

impl Part for Auction {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn needs(&self) -> NeedSet {
        [Need::RemainingTime, Need::Rate].into()
    }

    fn without(&self, need: Need) -> &'static str {
        match need {
            Need::RemainingTime => "assumed to be half done",
            _ => need.without(),
        }
    }

    fn save(&self) -> Value {
        serde_json::to_value(&self.state).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        self.state = serde_json::from_value(saved.clone()).map_err(|e| LoadError::new("auction", e))?;
        Ok(())
    }
}

impl Discipline for Auction {
    fn walk(&mut self, round: &mut Round<'_>) {
        let holders = round.holders();
        let held: BTreeSet<JobKey> = holders.iter().map(|rank| rank.job).collect();
        self.state.leases.retain(|job, _| held.contains(job));
        let waiting = round.queued();
        if waiting.is_empty() {
            self.state.gathering = None;
            return;
        }
        let queue = self.queue(round, &holders, waiting);
        let ended = queue.iter().filter(|buyer| buyer.holds);
        let offer = round.cluster().free_gpus(None)
            + ended.map(|b| reusable_gpus(round, b.candidate.job)).sum::<u32>();
        if offer > 0 {
            let gathering = self.gathering(round, &queue, &holders, offer);
            self.sell(round, &queue, offer, gathering);
        }
        let next = self.state.leases.values().filter(|end| **end > round.now()).min();
        if let Some(end) = next {
            round.wake_at(*end);
        }
    }

    fn needs_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}

impl Auction {
    /// Returns all jobs without a running lease, best first.
    fn queue(&self, round: &Round<'_>, holders: &[Rank], waiting: Vec<Candidate>) -> Vec<Buyer> {
        let has_ended = |rank: &&Rank| {
            self.state
                .leases
                .get(&rank.job)
                .is_none_or(|end| *end <= round.now())
        };
        let ended = holders
            .iter()
            .filter(has_ended)
            .map(|rank| (Candidate::from_holder(*rank), true));
        let mut queue: Vec<Buyer> = ended
            .chain(waiting.into_iter().map(|candidate| (candidate, false)))
            .map(|(candidate, holds)| Buyer {
                candidate,
                gpus: round.job(candidate.job).width(),
                holds,
            })
            .collect();
        queue.sort_unstable_by_key(|buyer| buyer.candidate.rank);
        queue
    }

    /// Returns the job that GPUs are gathered for, and when it will have them: the same as before, else the first job in the queue
    /// if it is wider than the offer.
    fn gathering(
        &mut self,
        round: &mut Round<'_>,
        queue: &[Buyer],
        holders: &[Rank],
        offer: u32,
    ) -> Option<Gathering> {
        let before = queue
            .iter()
            .find(|b| Some(b.candidate.job) == self.state.gathering && !b.holds);
        let wide = queue
            .first()
            .filter(|b| self.gather && !b.holds && b.gpus > offer);
        self.state.gathering = None;
        let buyer = before.or(wide)?;
        let lease = |rank: &Rank| {
            self.state
                .leases
                .get(&rank.job)
                .copied()
                .filter(|end| *end > round.now())
        };
        let mut ends: Vec<(Time, u32)> = holders
            .iter()
            .filter_map(|rank| Some((lease(rank)?, reusable_gpus(round, rank.job))))
            .collect();
        ends.sort_unstable();
        let (mut at, mut available) = (round.now(), offer);
        for (end, gpus) in ends {
            if available >= buyer.gpus {
                break;
            }
            (at, available) = (end, available + gpus);
        }
        let spare = available.checked_sub(buyer.gpus)?;
        self.state.gathering = Some(buyer.candidate.job);
        round.reserve_for(&buyer.candidate, Some(at));
        Some(Gathering {
            job: buyer.candidate.job,
            gpus: buyer.gpus,
            at,
            spare,
        })
    }

    /// Holds one auction and hands out the rest. Holders that continue keep their GPUs; only if another job does not fit
    /// beside them are they placed again, last.
    fn sell(&mut self, round: &mut Round<'_>, queue: &[Buyer], offer: u32, gathering: Option<Gathering>) {
        let sale = self.sale(round, queue, offer, gathering);
        if sale.first.is_some() {
            self.state.gathering = None;
        }
        let (here, state) = (round.checkpoint(), self.state.clone());
        if !self.hand_over(round, queue, &sale, true) {
            round.rollback(here);
            self.state = state;
            self.hand_over(round, queue, &sale, false);
        }
    }

    /// Returns the winners, and the other jobs that should get GPUs as far as their number goes.
    fn sale(&self, round: &Round<'_>, queue: &[Buyer], offer: u32, gathering: Option<Gathering>) -> Sale {
        let now = round.now();
        let due = gathering.filter(|g| g.at <= now);
        let is_first = |i: &usize| due.is_some_and(|d| d.job == queue[*i].candidate.job);
        let mut sale = Sale {
            first: (0..queue.len()).find(is_first),
            gathering: gathering.filter(|g| g.at > now),
            ..Sale::default()
        };
        let others: Vec<usize> = (0..queue.len()).filter(|i| !is_first(i)).collect();
        let bidders = (((1.0 - self.f) * others.len() as f64).ceil() as usize).max(1);
        let bidders = &others[..bidders.min(others.len())];
        let bid = |i: &usize| self.bid(round.job(queue[*i].candidate.job), queue[*i].gpus, now);
        let bids: Vec<Bid> = bidders.iter().map(bid).collect();
        let mut room = offer - due.map_or(0, |d| d.gpus);
        for award in hold(&bids, room) {
            sale.won.insert(bidders[award.bid], award.kept);
        }
        room -= sale.won.keys().map(|i| queue[*i].gpus).sum::<u32>();
        for i in others.into_iter().filter(|i| !sale.won.contains_key(i)) {
            if queue[i].gpus <= room && self.is_worth_it(round, &queue[i], sale.gathering) {
                room -= queue[i].gpus;
                sale.rest.insert(i);
            }
        }
        sale
    }

    /// Takes GPUs from the jobs that lose them and starts the jobs that get them. Returns whether all jobs that should get
    /// GPUs fitted.
    fn hand_over(&mut self, round: &mut Round<'_>, queue: &[Buyer], sale: &Sale, stay: bool) -> bool {
        let stays =
            |i: &usize| queue[*i].holds && (sale.won.contains_key(i) || (stay && sale.rest.contains(i)));
        let holders = (0..queue.len()).filter(|i| queue[*i].holds);
        for i in holders.filter(|i| !stays(i)) {
            round.withdraw(queue[i].candidate.rank);
        }
        let (mut all_placed, mut gathering) = (true, sale.gathering);
        let winners = sale.won.iter().map(|(i, kept)| (*i, *kept));
        let ahead: Vec<(usize, f64)> = sale.first.map(|i| (i, 1.0)).into_iter().chain(winners).collect();
        let mut served = BTreeSet::new();
        for (i, kept) in ahead {
            let placed = stays(&i) || self.try_start(round, &queue[i], gathering);
            all_placed &= placed;
            if placed {
                served.insert(i);
                self.grant(round.now(), &queue[i], kept, &mut gathering);
            }
        }
        for i in (0..queue.len()).filter(|i| !served.contains(i)) {
            if stays(&i) || self.try_start(round, &queue[i], gathering) {
                self.grant(round.now(), &queue[i], 1.0, &mut gathering);
            } else {
                all_placed &= !sale.rest.contains(&i);
            }
        }
        all_placed
    }

    /// Returns the value of the gang for one lease: the inverse of ρ if the job gets it now, and if it gets it only after the lease.
    /// The ideal time is the same in both and cancels out.
    fn bid(&self, job: &Job, gpus: u32, now: Time) -> Bid {
        let waited = now.since(job.spec.submit);
        // A job of unknown length is assumed to be half done.
        let left = job
            .expected_end(now)
            .map_or(job.attained(now), |end| end.since(now));
        let shared = (waited + left).0.max(1) as f64;
        Bid {
            gpus,
            with: 1.0 / shared,
            without: 1.0 / (shared + self.lease.0 as f64),
        }
    }

    /// Whether a lease that ends when GPUs have been gathered is long enough to start the job for it. For a holder any
    /// lease is.
    fn is_worth_it(&self, round: &Round<'_>, buyer: &Buyer, gathering: Option<Gathering>) -> bool {
        let Some(g) = gathering.filter(|g| !buyer.holds && buyer.gpus > g.spare) else {
            return true;
        };
        let now = round.now();
        let long = g.at.since(now).0 as f64 >= self.min_lease * self.lease.0 as f64;
        let end = round.job(buyer.candidate.job).expected_end(now);
        long || end.is_some_and(|end| end <= g.at)
    }

    /// Starts a job that holds no GPUs, if it fits and its lease would be long enough. Returns whether it started.
    fn try_start(&self, round: &mut Round<'_>, buyer: &Buyer, gathering: Option<Gathering>) -> bool {
        round.cluster().free_gpus(None) >= buyer.gpus
            && self.is_worth_it(round, buyer, gathering)
            && round.start(&buyer.candidate).is_ok()
    }

    /// Records the lease: the fraction that is kept, and no longer than until the GPUs are needed for the gang they are
    /// gathered for, unless enough others will be free.
    fn grant(&mut self, now: Time, buyer: &Buyer, kept: f64, gathering: &mut Option<Gathering>) {
        let span = (self.lease.0 as f64 * kept.max(self.min_lease)).round() as i64;
        let mut end = now.saturating_add(Time(span.max(1)));
        if let Some(g) = gathering.as_mut().filter(|g| end > g.at) {
            if buyer.gpus <= g.spare {
                g.spare -= buyer.gpus;
            } else {
                end = g.at;
            }
        }
        self.state.leases.insert(buyer.candidate.job, end);
    }
}

/// Returns the number of GPUs of a holder that other jobs could use: those on nodes that accept new jobs.
fn reusable_gpus(round: &Round<'_>, holder: JobKey) -> u32 {
    let shares = round.job(holder).allocation.iter().flat_map(|a| &a.shares);
    let open = shares.filter(|share| round.cluster().is_open(share.node));
    open.map(|share| share.gpus.count()).sum()
}
