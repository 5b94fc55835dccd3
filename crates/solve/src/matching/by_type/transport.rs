//! The transportation problem between the types as suppliers and the same types as consumers.
//!
//! Successive shortest paths from each supplier that has something left, with prices on both sides that make every step a
//! search for the nearest consumer (Dijkstra on a dense table). It is the search of [`super::super::search`] without
//! blossoms: it ends at a consumer with room or at a supplier whose price reaches zero, whichever is nearer.

use super::Types;

const NOBODY: usize = usize::MAX;

/// An optimal solution of the relaxation.
#[derive(Debug)]
pub(super) struct Relaxed {
    /// The flow, row by row with a row for each consumer.
    pub(super) flow: Vec<u32>,
    /// The doubled price of each type.
    pub(super) price: Vec<i64>,
}

pub(super) fn solve(types: &Types) -> Relaxed {
    let mut plan = Plan::new(types);
    for source in 0..types.len() {
        while plan.left[source] > 0 && plan.give_price[source] > 0 {
            plan.step(source);
        }
    }
    let both = plan.give_price.iter().zip(&plan.take_price);
    Relaxed {
        price: both.map(|(give, take)| give + take).collect(),
        flow: plan.flow,
    }
}

#[derive(Clone, Copy)]
enum PathEnd {
    Room(usize),
    Release(usize),
}

struct Plan<'t> {
    types: &'t Types,
    flow: Vec<u32>,
    /// What each supplier has left, and what each consumer has room for.
    left: Vec<u32>,
    room: Vec<u32>,
    give_price: Vec<i64>,
    take_price: Vec<i64>,
    /// The consumers with which each supplier has a positive weight, the heaviest first, row by row.
    offers: Vec<Vec<(i64, u32)>>,
    /// The suppliers with flow to each consumer.
    carriers: Vec<Vec<u32>>,
    // The search: the distance of each from the source, and its predecessor.
    near: Vec<i64>,
    open: Vec<u32>,
    taker_from: Vec<usize>,
    giver_from: Vec<usize>,
    givers: Vec<(usize, i64)>,
    takers: Vec<(usize, i64)>,
    seen: Vec<bool>,
    limit: i64,
    goal: PathEnd,
}

impl<'t> Plan<'t> {
    fn new(types: &'t Types) -> Self {
        let n = types.len();
        let heaviest = |s| types.row(s).iter().copied().max().unwrap_or(0);
        Self {
            types,
            flow: vec![0; n * n],
            left: types.counts.clone(),
            room: types.counts.clone(),
            give_price: (0..n).map(heaviest).collect(),
            take_price: vec![0; n],
            offers: (0..n).map(|s| offers(types.row(s))).collect(),
            carriers: vec![Vec::new(); n],
            near: vec![i64::MAX; n],
            open: Vec::with_capacity(n),
            taker_from: vec![NOBODY; n],
            giver_from: vec![NOBODY; n],
            givers: Vec::with_capacity(n),
            takers: Vec::with_capacity(n),
            seen: vec![false; n],
            limit: 0,
            goal: PathEnd::Release(NOBODY),
        }
    }

    /// Runs one search and moves the flow along its path.
    fn step(&mut self, source: usize) {
        self.near.fill(i64::MAX);
        self.seen.fill(false);
        self.open.clear();
        self.givers.clear();
        self.takers.clear();
        self.limit = i64::MAX;
        self.reach_giver(source, NOBODY, 0);
        while let Some((taker, at)) = self.nearest() {
            self.takers.push((taker, at));
            for i in 0..self.carriers[taker].len() {
                let giver = self.carriers[taker][i] as usize;
                if !self.seen[giver] {
                    self.reach_giver(giver, taker, at);
                }
            }
        }
        for &(giver, at) in &self.givers {
            self.give_price[giver] -= self.limit - at;
        }
        for &(taker, at) in &self.takers {
            self.take_price[taker] += self.limit - at;
        }
        self.push(source);
    }

    /// Removes the nearest consumer that is nearer than the goal.
    fn nearest(&mut self) -> Option<(usize, i64)> {
        let (mut best, mut at) = (usize::MAX, self.limit);
        for (i, &taker) in self.open.iter().enumerate() {
            let near = self.near[taker as usize];
            if near < at {
                (best, at) = (i, near);
            }
        }
        (best < self.open.len()).then(|| (self.open.swap_remove(best) as usize, at))
    }

    fn reach_giver(&mut self, giver: usize, through: usize, at: i64) {
        self.seen[giver] = true;
        self.giver_from[giver] = through;
        self.givers.push((giver, at));
        let ahead = at + self.give_price[giver];
        if ahead < self.limit {
            self.limit = ahead;
            self.goal = PathEnd::Release(giver);
        }
        for &(weight, taker) in &self.offers[giver] {
            // Prices only add to it, so none of the lighter edges can be nearer than the goal either.
            if ahead - weight >= self.limit {
                break;
            }
            let taker = taker as usize;
            let near = ahead - weight + self.take_price[taker];
            if near < self.near[taker] && near < self.limit {
                if self.near[taker] == i64::MAX {
                    self.open.push(taker as u32);
                }
                self.near[taker] = near;
                self.taker_from[taker] = giver;
                if self.room[taker] > 0 {
                    self.limit = near;
                    self.goal = PathEnd::Room(taker);
                }
            }
        }
    }

    /// Moves as much flow as the path to the goal carries.
    fn push(&mut self, source: usize) {
        let (end, mut amount) = match self.goal {
            PathEnd::Room(taker) => (self.taker_from[taker], self.room[taker]),
            PathEnd::Release(giver) if giver == source => return,
            PathEnd::Release(giver) => (giver, u32::MAX),
        };
        amount = amount.min(self.left[source]);
        let mut giver = end;
        while giver != source {
            let taker = self.giver_from[giver];
            amount = amount.min(self.flow[taker * self.types.len() + giver]);
            giver = self.taker_from[taker];
        }
        match self.goal {
            PathEnd::Room(taker) => {
                self.room[taker] -= amount;
                self.add(end, taker, amount);
            }
            PathEnd::Release(giver) => self.left[giver] += amount,
        }
        self.left[source] -= amount;
        let mut giver = end;
        while giver != source {
            let taker = self.giver_from[giver];
            self.remove(giver, taker, amount);
            giver = self.taker_from[taker];
            self.add(giver, taker, amount);
        }
    }

    fn add(&mut self, giver: usize, taker: usize, amount: u32) {
        let flow = &mut self.flow[taker * self.types.len() + giver];
        if *flow == 0 {
            self.carriers[taker].push(giver as u32);
        }
        *flow += amount;
    }

    fn remove(&mut self, giver: usize, taker: usize, amount: u32) {
        let flow = &mut self.flow[taker * self.types.len() + giver];
        *flow -= amount;
        if *flow == 0 {
            self.carriers[taker].retain(|&carrier| carrier != giver as u32);
        }
    }
}

/// The weights of a supplier with consumers, the heaviest first.
fn offers(row: &[i64]) -> Vec<(i64, u32)> {
    let mut offers: Vec<(i64, u32)> = row
        .iter()
        .copied()
        .zip(0..)
        .filter(|&(weight, _)| weight > 0)
        .collect();
    offers.sort_unstable_by_key(|&(weight, taker)| (-weight, taker));
    offers
}
