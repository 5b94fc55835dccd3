//! The transportation problem between the types as suppliers and the same types as consumers.
//!
//! Successive shortest paths from each supplier that has something left, with prices on both sides that make every step a
//! search for the nearest consumer (Dijkstra on a dense table). It is the search of [`super::super::search`] without
//! blossoms: it ends at a consumer with room or at a supplier whose price reaches zero, whichever is nearer.

use super::Types;

const NO_NODE: usize = usize::MAX;

/// An optimal solution of the relaxation.
#[derive(Debug)]
pub(super) struct Relaxation {
    /// The flow, row by row with a row for each consumer.
    pub(super) flow: Vec<u32>,
    /// The doubled price of each type.
    pub(super) price: Vec<i64>,
}

pub(super) fn solve(types: &Types) -> Relaxation {
    let mut plan = Plan::new(types);
    for source in 0..types.len() {
        while plan.left[source] > 0 && plan.supply_price[source] > 0 {
            plan.step(source);
        }
    }
    let both = plan.supply_price.iter().zip(&plan.demand_price);
    Relaxation {
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
    supply_price: Vec<i64>,
    demand_price: Vec<i64>,
    /// The consumers with which each supplier has a positive weight, the heaviest first, row by row.
    offers: Vec<Vec<(i64, u32)>>,
    /// The suppliers with flow to each consumer.
    carriers: Vec<Vec<u32>>,
    // The search: the distance of each from the source, and its predecessor.
    near: Vec<i64>,
    open: Vec<u32>,
    consumer_from: Vec<usize>,
    supplier_from: Vec<usize>,
    suppliers: Vec<(usize, i64)>,
    consumers: Vec<(usize, i64)>,
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
            supply_price: (0..n).map(heaviest).collect(),
            demand_price: vec![0; n],
            offers: (0..n).map(|s| offers(types.row(s))).collect(),
            carriers: vec![Vec::new(); n],
            near: vec![i64::MAX; n],
            open: Vec::with_capacity(n),
            consumer_from: vec![NO_NODE; n],
            supplier_from: vec![NO_NODE; n],
            suppliers: Vec::with_capacity(n),
            consumers: Vec::with_capacity(n),
            seen: vec![false; n],
            limit: 0,
            goal: PathEnd::Release(NO_NODE),
        }
    }

    /// Runs one search and moves the flow along its path.
    fn step(&mut self, source: usize) {
        self.near.fill(i64::MAX);
        self.seen.fill(false);
        self.open.clear();
        self.suppliers.clear();
        self.consumers.clear();
        self.limit = i64::MAX;
        self.reach_supplier(source, NO_NODE, 0);
        while let Some((consumer, at)) = self.nearest() {
            self.consumers.push((consumer, at));
            for i in 0..self.carriers[consumer].len() {
                let supplier = self.carriers[consumer][i] as usize;
                if !self.seen[supplier] {
                    self.reach_supplier(supplier, consumer, at);
                }
            }
        }
        for &(supplier, at) in &self.suppliers {
            self.supply_price[supplier] -= self.limit - at;
        }
        for &(consumer, at) in &self.consumers {
            self.demand_price[consumer] += self.limit - at;
        }
        self.push(source);
    }

    /// Removes the nearest consumer that is nearer than the goal.
    fn nearest(&mut self) -> Option<(usize, i64)> {
        let (mut best, mut at) = (usize::MAX, self.limit);
        for (i, &consumer) in self.open.iter().enumerate() {
            let near = self.near[consumer as usize];
            if near < at {
                (best, at) = (i, near);
            }
        }
        (best < self.open.len()).then(|| (self.open.swap_remove(best) as usize, at))
    }

    fn reach_supplier(&mut self, supplier: usize, through: usize, at: i64) {
        self.seen[supplier] = true;
        self.supplier_from[supplier] = through;
        self.suppliers.push((supplier, at));
        let ahead = at + self.supply_price[supplier];
        if ahead < self.limit {
            self.limit = ahead;
            self.goal = PathEnd::Release(supplier);
        }
        for &(weight, consumer) in &self.offers[supplier] {
            // Prices only add to it, so none of the lighter edges can be nearer than the goal either.
            if ahead - weight >= self.limit {
                break;
            }
            let consumer = consumer as usize;
            let near = ahead - weight + self.demand_price[consumer];
            if near < self.near[consumer] && near < self.limit {
                if self.near[consumer] == i64::MAX {
                    self.open.push(consumer as u32);
                }
                self.near[consumer] = near;
                self.consumer_from[consumer] = supplier;
                if self.room[consumer] > 0 {
                    self.limit = near;
                    self.goal = PathEnd::Room(consumer);
                }
            }
        }
    }

    /// Moves as much flow as the path to the goal carries.
    fn push(&mut self, source: usize) {
        let (end, mut amount) = match self.goal {
            PathEnd::Room(consumer) => (self.consumer_from[consumer], self.room[consumer]),
            PathEnd::Release(supplier) if supplier == source => return,
            PathEnd::Release(supplier) => (supplier, u32::MAX),
        };
        amount = amount.min(self.left[source]);
        let mut supplier = end;
        while supplier != source {
            let consumer = self.supplier_from[supplier];
            amount = amount.min(self.flow[consumer * self.types.len() + supplier]);
            supplier = self.consumer_from[consumer];
        }
        match self.goal {
            PathEnd::Room(consumer) => {
                self.room[consumer] -= amount;
                self.add(end, consumer, amount);
            }
            PathEnd::Release(supplier) => self.left[supplier] += amount,
        }
        self.left[source] -= amount;
        let mut supplier = end;
        while supplier != source {
            let consumer = self.supplier_from[supplier];
            self.remove(supplier, consumer, amount);
            supplier = self.consumer_from[consumer];
            self.add(supplier, consumer, amount);
        }
    }

    fn add(&mut self, supplier: usize, consumer: usize, amount: u32) {
        let flow = &mut self.flow[consumer * self.types.len() + supplier];
        if *flow == 0 {
            self.carriers[consumer].push(supplier as u32);
        }
        *flow += amount;
    }

    fn remove(&mut self, supplier: usize, consumer: usize, amount: u32) {
        let flow = &mut self.flow[consumer * self.types.len() + supplier];
        *flow -= amount;
        if *flow == 0 {
            self.carriers[consumer].retain(|&carrier| carrier != supplier as u32);
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
    offers.sort_unstable_by_key(|&(weight, consumer)| (-weight, consumer));
    offers
}
