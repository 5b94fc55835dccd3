//! Auction: GPUs are given for a lease, and those whose lease has ended are sold anew.
//!
//! Nobody is stopped inside a lease. The front of the line, a part 1 − f of all who have no lease, bids for the GPUs
//! that are free or whose lease has ended; what remains goes down the line, to whoever fits. Who holds GPUs and wins
//! them again stays where it is. While nobody waits there is nothing to sell: holders go on without a lease, and
//! whoever comes next finds their GPUs on offer.
//!
//! A gang cannot take a part of its GPUs and wait for the rest. If the first in line is wider than all that is on
//! offer, GPUs are gathered for it: leases given from then on end when the running ones have set enough free, and it is
//! served before the next auction.

mod market;

use std::collections::{BTreeMap, BTreeSet};

use dovetail_engine::{Candidate, Discipline, Job, Knowledge, Part, Rank, Round};
use dovetail_model::{JobId, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use market::{Award, Bid, hold};

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "auction",
    what: "GPUs for a lease; when it ends the front of the line bids, and the product of all values decides",
    source: "Themis (NSDI'20), partial allocation after Cole, Gkatzelis and Goel (EC'13)",
    key: "the sets of gangs that fit with the largest product of 1/ρ; winners pay with a part of their lease",
    knowledge: Knowledge::Estimate,
    knobs: &[
        Knob {
            name: "lease",
            default: "20m",
            what: "for how long GPUs are given; a span",
        },
        Knob {
            name: "f",
            default: "0.8",
            what: "the part of the line that does not bid, 0 to 1; at least one job does",
        },
        Knob {
            name: "min_lease",
            default: "0.25",
            what: "no payment makes a lease shorter than this part of it, 0 to 1",
        },
        Knob {
            name: "gather",
            default: "true",
            what: "whether GPUs are gathered for the first in line where it is wider than what is on offer",
        },
    ],
    build: |knobs| {
        let part = |name: &str| {
            let expected = "a number from 0 to 1";
            let part: f64 = knobs.get(name, expected)?;
            let fine = (0.0..=1.0).contains(&part);
            fine.then_some(part).ok_or_else(|| knobs.bad(name, expected))
        };
        let lease = knobs.span("lease")?;
        if lease == Time::ZERO {
            return Err(knobs.bad("lease", "a span of time above zero"));
        }
        Ok(Box::new(Auction {
            lease,
            f: part("f")?,
            min_lease: part("min_lease")?,
            gather: knobs.get("gather", "true or false")?,
            books: Books::default(),
            name: knobs.name(),
        }))
    },
};

/// Leases and auctions.
#[derive(Debug, Clone)]
pub struct Auction {
    lease: Time,
    f: f64,
    min_lease: f64,
    gather: bool,
    books: Books,
    name: String,
}

/// Who holds a lease until when, and for whom GPUs are gathered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Books {
    leases: BTreeMap<JobId, Time>,
    gathering: Option<JobId>,
}

/// GPUs will be there for a wide gang at a moment, and so many beside it.
#[derive(Debug, Clone, Copy)]
struct Gathering {
    job: JobId,
    gpus: u32,
    at: Time,
    spare: u32,
}

/// What an auction decides, by places in line.
#[derive(Debug, Default)]
struct Sale {
    /// For whom GPUs have been gathered: it is served before all others.
    first: Option<usize>,
    /// The winners, and what part of a lease each keeps.
    won: BTreeMap<usize, f64>,
    /// Who gets what is left, by the number of GPUs.
    rest: BTreeSet<usize>,
    /// For whom GPUs are still gathered.
    gathering: Option<Gathering>,
}

/// Someone without a running lease, in line.
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

    fn save(&self) -> Value {
        serde_json::to_value(&self.books).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), String> {
        self.books = serde_json::from_value(saved.clone()).map_err(|e| format!("auction: {e}"))?;
        Ok(())
    }
}

impl Discipline for Auction {
    fn walk(&mut self, round: &mut Round<'_>) {
        let holders = round.holders();
        let held: BTreeSet<JobId> = holders.iter().map(|rank| rank.job).collect();
        self.books.leases.retain(|job, _| held.contains(job));
        let waiting = round.waiting();
        if waiting.is_empty() {
            self.books.gathering = None;
            return;
        }
        let line = self.line(round, &holders, waiting);
        let ended = line.iter().filter(|buyer| buyer.holds);
        let offer =
            round.cluster().free_gpus(None) + ended.map(|b| of_use(round, b.candidate.job)).sum::<u32>();
        if offer > 0 {
            let gathering = self.gathering(round, &line, &holders, offer);
            self.sell(round, &line, offer, gathering);
        }
        let next = self.books.leases.values().filter(|end| **end > round.now()).min();
        if let Some(end) = next {
            round.wake_at(*end);
        }
    }

    fn looks_at_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}

impl Auction {
    /// Everyone without a running lease, best first.
    fn line(&self, round: &Round<'_>, holders: &[Rank], waiting: Vec<Candidate>) -> Vec<Buyer> {
        let over = |rank: &&Rank| {
            self.books
                .leases
                .get(&rank.job)
                .is_none_or(|end| *end <= round.now())
        };
        let ended = holders
            .iter()
            .filter(over)
            .map(|rank| (Candidate::holder(*rank), true));
        let mut line: Vec<Buyer> = ended
            .chain(waiting.into_iter().map(|candidate| (candidate, false)))
            .map(|(candidate, holds)| Buyer {
                candidate,
                gpus: round.job(candidate.job).width(),
                holds,
            })
            .collect();
        line.sort_unstable_by_key(|buyer| buyer.candidate.rank);
        line
    }

    /// For whom GPUs are gathered, and when they will be there: for whom they were gathered before, else for the first
    /// in line if it is wider than the offer.
    fn gathering(
        &mut self,
        round: &mut Round<'_>,
        line: &[Buyer],
        holders: &[Rank],
        offer: u32,
    ) -> Option<Gathering> {
        let before = line
            .iter()
            .find(|b| Some(b.candidate.job) == self.books.gathering && !b.holds);
        let wide = line.first().filter(|b| self.gather && !b.holds && b.gpus > offer);
        self.books.gathering = None;
        let buyer = before.or(wide)?;
        let lease = |rank: &Rank| {
            self.books
                .leases
                .get(&rank.job)
                .copied()
                .filter(|end| *end > round.now())
        };
        let mut ends: Vec<(Time, u32)> = holders
            .iter()
            .filter_map(|rank| Some((lease(rank)?, of_use(round, rank.job))))
            .collect();
        ends.sort_unstable();
        let (mut at, mut there) = (round.now(), offer);
        for (end, gpus) in ends {
            if there >= buyer.gpus {
                break;
            }
            (at, there) = (end, there + gpus);
        }
        let spare = there.checked_sub(buyer.gpus)?;
        self.books.gathering = Some(buyer.candidate.job);
        round.keep_for(&buyer.candidate, Some(at));
        Some(Gathering {
            job: buyer.candidate.job,
            gpus: buyer.gpus,
            at,
            spare,
        })
    }

    /// One auction, and what remains down the line. Holders that go on stay where they are; only if someone finds no
    /// place beside them are they placed anew, last.
    fn sell(&mut self, round: &mut Round<'_>, line: &[Buyer], offer: u32, gathering: Option<Gathering>) {
        let sale = self.sale(round, line, offer, gathering);
        if sale.first.is_some() {
            self.books.gathering = None;
        }
        let (here, books) = (round.checkpoint(), self.books.clone());
        if !self.hand_over(round, line, &sale, true) {
            round.rollback(here);
            self.books = books;
            self.hand_over(round, line, &sale, false);
        }
    }

    /// Who wins, and who else should get GPUs as far as their number goes.
    fn sale(&self, round: &Round<'_>, line: &[Buyer], offer: u32, gathering: Option<Gathering>) -> Sale {
        let now = round.now();
        let due = gathering.filter(|g| g.at <= now);
        let is_first = |i: &usize| due.is_some_and(|d| d.job == line[*i].candidate.job);
        let mut sale = Sale {
            first: (0..line.len()).find(is_first),
            gathering: gathering.filter(|g| g.at > now),
            ..Sale::default()
        };
        let others: Vec<usize> = (0..line.len()).filter(|i| !is_first(i)).collect();
        let bidders = (((1.0 - self.f) * others.len() as f64).ceil() as usize).max(1);
        let bidders = &others[..bidders.min(others.len())];
        let bid = |i: &usize| self.bid(round.job(line[*i].candidate.job), line[*i].gpus, now);
        let bids: Vec<Bid> = bidders.iter().map(bid).collect();
        let mut room = offer - due.map_or(0, |d| d.gpus);
        for award in hold(&bids, room) {
            sale.won.insert(bidders[award.bid], award.kept);
        }
        room -= sale.won.keys().map(|i| line[*i].gpus).sum::<u32>();
        for i in others.into_iter().filter(|i| !sale.won.contains_key(i)) {
            if line[i].gpus <= room && self.is_worth_it(round, &line[i], sale.gathering) {
                room -= line[i].gpus;
                sale.rest.insert(i);
            }
        }
        sale
    }

    /// Takes GPUs from those who lose them and gives them to those who get them. Tells whether everyone who should get
    /// some found a place.
    fn hand_over(&mut self, round: &mut Round<'_>, line: &[Buyer], sale: &Sale, stay: bool) -> bool {
        let stays =
            |i: &usize| line[*i].holds && (sale.won.contains_key(i) || (stay && sale.rest.contains(i)));
        let holders = (0..line.len()).filter(|i| line[*i].holds);
        for i in holders.filter(|i| !stays(i)) {
            round.withdraw(line[i].candidate.rank);
        }
        let (mut all_placed, mut gathering) = (true, sale.gathering);
        let winners = sale.won.iter().map(|(i, kept)| (*i, *kept));
        let ahead: Vec<(usize, f64)> = sale.first.map(|i| (i, 1.0)).into_iter().chain(winners).collect();
        let mut served = BTreeSet::new();
        for (i, kept) in ahead {
            let placed = stays(&i) || self.can_start(round, &line[i], gathering);
            all_placed &= placed;
            if placed {
                served.insert(i);
                self.grant(round.now(), &line[i], kept, &mut gathering);
            }
        }
        for i in (0..line.len()).filter(|i| !served.contains(i)) {
            if stays(&i) || self.can_start(round, &line[i], gathering) {
                self.grant(round.now(), &line[i], 1.0, &mut gathering);
            } else {
                all_placed &= !sale.rest.contains(&i);
            }
        }
        all_placed
    }

    /// What the gang is worth for one lease: the inverse of ρ if the job has it from now on, and if it has it only when
    /// the lease is over. The ideal time is the same in both and cancels out.
    fn bid(&self, job: &Job, gpus: u32, now: Time) -> Bid {
        let waited = now.since(job.spec.submit);
        // Of a job of unknown size it is assumed that half is done.
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

    /// Whether a lease that ends when GPUs have been gathered is long enough to start the job for it. Where it is on
    /// GPUs already, any is.
    fn is_worth_it(&self, round: &Round<'_>, buyer: &Buyer, gathering: Option<Gathering>) -> bool {
        let Some(g) = gathering.filter(|g| !buyer.holds && buyer.gpus > g.spare) else {
            return true;
        };
        let now = round.now();
        let long = g.at.since(now).0 as f64 >= self.min_lease * self.lease.0 as f64;
        let end = round.job(buyer.candidate.job).expected_end(now);
        long || end.is_some_and(|end| end <= g.at)
    }

    /// Starts a job that holds nothing, if there is a place and a lease long enough for it.
    fn can_start(&self, round: &mut Round<'_>, buyer: &Buyer, gathering: Option<Gathering>) -> bool {
        round.cluster().free_gpus(None) >= buyer.gpus
            && self.is_worth_it(round, buyer, gathering)
            && round.start(&buyer.candidate).is_ok()
    }

    /// Writes down the lease: the part of it that is kept, and no longer than until GPUs are needed for the gang they
    /// are gathered for, unless there will be enough beside it.
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
        self.books.leases.insert(buyer.candidate.job, end);
    }
}

/// GPUs of a holder that others could use: those on nodes that take new jobs.
fn of_use(round: &Round<'_>, holder: JobId) -> u32 {
    let shares = round.job(holder).allocation.iter().flat_map(|a| &a.shares);
    let open = shares.filter(|share| round.cluster().is_open(share.node));
    open.map(|share| share.gpus.count()).sum()
}
