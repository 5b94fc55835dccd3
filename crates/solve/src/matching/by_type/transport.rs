//! The transportation problem between the types as givers and the same types as takers.
//!
//! Successive cheapest paths from each giver that has something left, with prices on both sides that make every step a
//! search for the nearest taker (Dijkstra on a dense table). It is the search of [`super::super::search`] without blossoms:
//! it ends at a taker with room or at a giver whose price reaches zero, whichever is nearer.

use super::Types;

const NOBODY: usize = usize::MAX;

/// An optimal solution of the relaxation.
#[derive(Debug)]
pub(super) struct Relaxed {
    /// What flows, row by row with a row for each **taker**.
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
enum Goal {
    Room(usize),
    Release(usize),
}

struct Plan<'t> {
    types: &'t Types,
    flow: Vec<u32>,
    /// What each giver has left and each taker has room for.
    left: Vec<u32>,
    room: Vec<u32>,
    give_price: Vec<i64>,
    take_price: Vec<i64>,
    // The search: how far each is from the source, and through whom.
    near: Vec<i64>,
    taker_from: Vec<usize>,
    giver_from: Vec<usize>,
    givers: Vec<(usize, i64)>,
    takers: Vec<(usize, i64)>,
    seen: Vec<bool>,
    passed: Vec<bool>,
    limit: i64,
    goal: Goal,
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
            near: vec![0; n],
            taker_from: vec![NOBODY; n],
            giver_from: vec![NOBODY; n],
            givers: Vec::with_capacity(n),
            takers: Vec::with_capacity(n),
            seen: vec![false; n],
            passed: vec![false; n],
            limit: 0,
            goal: Goal::Release(NOBODY),
        }
    }

    /// One search and what it moves.
    fn step(&mut self, source: usize) {
        self.near.fill(i64::MAX);
        self.seen.fill(false);
        self.passed.fill(false);
        self.givers.clear();
        self.takers.clear();
        self.limit = i64::MAX;
        self.reach_giver(source, NOBODY, 0);
        while let Some((taker, at)) = self.nearest() {
            self.passed[taker] = true;
            self.takers.push((taker, at));
            for giver in 0..self.types.len() {
                if self.flow[taker * self.types.len() + giver] > 0 && !self.seen[giver] {
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

    /// The nearest taker that is nearer than the goal.
    fn nearest(&self) -> Option<(usize, i64)> {
        let (mut best, mut at) = (NOBODY, self.limit);
        for (taker, &near) in self.near.iter().enumerate() {
            if near < at && !self.passed[taker] {
                (best, at) = (taker, near);
            }
        }
        (best != NOBODY).then_some((best, at))
    }

    fn reach_giver(&mut self, giver: usize, through: usize, at: i64) {
        self.seen[giver] = true;
        self.giver_from[giver] = through;
        self.givers.push((giver, at));
        let ahead = at + self.give_price[giver];
        if ahead < self.limit {
            self.limit = ahead;
            self.goal = Goal::Release(giver);
        }
        for (taker, &weight) in self.types.row(giver).iter().enumerate() {
            let near = ahead + self.take_price[taker] - weight;
            if weight > 0 && near < self.near[taker] && near < self.limit {
                self.near[taker] = near;
                self.taker_from[taker] = giver;
                if self.room[taker] > 0 {
                    self.limit = near;
                    self.goal = Goal::Room(taker);
                }
            }
        }
    }

    /// Moves as much as the path to the goal carries.
    fn push(&mut self, source: usize) {
        let (end, mut amount) = match self.goal {
            Goal::Room(taker) => (self.taker_from[taker], self.room[taker]),
            Goal::Release(giver) if giver == source => return,
            Goal::Release(giver) => (giver, u32::MAX),
        };
        amount = amount.min(self.left[source]);
        let mut giver = end;
        while giver != source {
            let taker = self.giver_from[giver];
            amount = amount.min(self.flow[taker * self.types.len() + giver]);
            giver = self.taker_from[taker];
        }
        match self.goal {
            Goal::Room(taker) => {
                self.room[taker] -= amount;
                self.flow[taker * self.types.len() + end] += amount;
            }
            Goal::Release(giver) => self.left[giver] += amount,
        }
        self.left[source] -= amount;
        let mut giver = end;
        while giver != source {
            let taker = self.giver_from[giver];
            self.flow[taker * self.types.len() + giver] -= amount;
            giver = self.taker_from[taker];
            self.flow[taker * self.types.len() + giver] += amount;
        }
    }
}
