//! Exact matching on complete graphs that are too large to store: keep the best edges, solve, and use the prices to decide
//! whether an edge that was left out matters.

use super::graph::Adjacency;
use super::start;
use super::{Duals, Matching, greedy, solve};

/// How many edges to keep, and how often to solve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruning {
    /// Number of heaviest edges that each vertex keeps at first, and of uncovered ones that it may add in a round.
    pub keep: usize,
    /// Most rounds.
    pub rounds: u32,
}

impl Default for Pruning {
    fn default() -> Self {
        Self { keep: 10, rounds: 20 }
    }
}

/// A matching found on some of the edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrunedMatching {
    /// The partner of each vertex.
    pub mate: Vec<Option<u32>>,
    /// The sum of the weights of the pairs.
    pub weight: i64,
    /// Whether it is proven to be a maximum over all edges.
    pub certified: bool,
    /// Largest possible difference to a maximum; zero if certified.
    pub loss_bound: i64,
    /// Number of rounds.
    pub rounds: u32,
    /// Number of edges in the last round.
    pub edges: usize,
}

/// Finds a matching in the complete graph on `n` vertices, solving only parts of it.
///
/// The first part contains the `keep` heaviest edges of each vertex. Its prices cover all edges of the part. Edges outside
/// that they do not cover are added, the `keep` worst of each vertex, until there are none (then the prices prove that the
/// matching is a maximum of the whole graph) or the rounds are used up (then the vertices still single are paired greedily,
/// and the missing payments bound the loss).
///
/// Of equally heavy edges a vertex keeps those to the vertices that follow it cyclically, so that many equal vertices do not
/// all choose the same few. `weight(u, v)` is called with `u < v`, once a round and twice at first.
pub fn pruned(n: usize, weight: impl Fn(u32, u32) -> i64, pruning: Pruning) -> PrunedMatching {
    let keep = pruning.keep.max(1);
    let mut edges = heaviest(n, &weight, keep);
    let mut prices: Option<Vec<i64>> = None;
    let mut rounds = 0;
    loop {
        rounds += 1;
        let graph = Adjacency::new(n, &edges);
        let start = match prices.take() {
            None => start::from_graph(&graph),
            Some(prices) => start::from_prices(&graph, prices),
        };
        let matching = solve(&graph, start);
        let uncovered = UncoveredEdges::find(n, &weight, &matching.duals, keep);
        if uncovered.edges.is_empty() || rounds >= pruning.rounds {
            return finish(matching, &uncovered, &weight, rounds, edges.len());
        }
        prices = Some(covering(&uncovered.edges, folded(&matching.duals)));
        edges.extend(uncovered.edges);
    }
}

/// The heaviest edges of each vertex, without duplicates.
fn heaviest(n: usize, weight: &impl Fn(u32, u32) -> i64, keep: usize) -> Vec<(u32, u32, i64)> {
    let mut edges = Vec::with_capacity(n * keep);
    let mut mine: Vec<(i64, u32)> = Vec::with_capacity(n);
    for u in 0..n as u32 {
        mine.clear();
        for step in 1..n as u32 {
            let v = (u + step) % n as u32;
            let w = weight(u.min(v), u.max(v));
            if w > 0 {
                mine.push((-w, step));
            }
        }
        for &(minus, step) in least(&mut mine, keep) {
            let v = (u + step) % n as u32;
            edges.push((u.min(v), u.max(v), -minus));
        }
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// The smallest `keep` entries, in no particular order.
fn least(all: &mut [(i64, u32)], keep: usize) -> &[(i64, u32)] {
    if all.len() > keep {
        all.select_nth_unstable(keep);
    }
    &all[..keep.min(all.len())]
}

/// Edges that a dual solution does not cover.
struct UncoveredEdges {
    /// The worst ones of each vertex.
    edges: Vec<(u32, u32, i64)>,
    /// The total of the missing halves, if each vertex were to cover the edges to those after it.
    missing: i64,
}

impl UncoveredEdges {
    fn find(n: usize, weight: &impl Fn(u32, u32) -> i64, duals: &Duals, keep: usize) -> Self {
        let around = duals.paid_by_blossom();
        let mut found = Self {
            edges: Vec::new(),
            missing: 0,
        };
        let mut mine: Vec<(i64, u32)> = Vec::new();
        for u in 0..n as u32 {
            mine.clear();
            for v in u + 1..n as u32 {
                let slack = duals.vertex[u as usize] + duals.vertex[v as usize] - 2 * weight(u, v);
                if slack < 0 {
                    let slack = slack + duals.shared(u, v).map_or(0, |blossom| around[blossom as usize]);
                    if slack < 0 {
                        mine.push((slack, v));
                    }
                }
            }
            found.missing -= mine.iter().map(|&(slack, _)| slack).min().unwrap_or(0);
            found
                .edges
                .extend(least(&mut mine, keep).iter().map(|&(_, v)| (u, v, weight(u, v))));
        }
        found
    }
}

/// Prices without blossoms that cover the same edges: each vertex takes over half of the blossoms that contain it.
fn folded(duals: &Duals) -> Vec<i64> {
    let around = duals.paid_by_blossom();
    let own = duals.vertex.iter().zip(&duals.blossom_of);
    own.map(|(price, blossom)| price + blossom.map_or(0, |blossom| around[blossom as usize] / 2))
        .collect()
}

/// Raises prices until they cover the given edges as well.
fn covering(edges: &[(u32, u32, i64)], mut prices: Vec<i64>) -> Vec<i64> {
    for &(u, v, w) in edges {
        let short = 2 * w - prices[u as usize] - prices[v as usize];
        prices[u as usize] += short.max(0);
    }
    prices
}

/// Pairs up the vertices that are left, and bounds the loss.
fn finish(
    matching: Matching,
    uncovered: &UncoveredEdges,
    weight: &impl Fn(u32, u32) -> i64,
    rounds: u32,
    edges: usize,
) -> PrunedMatching {
    let Matching {
        mut mate,
        weight: solved,
        ..
    } = matching;
    let certified = uncovered.edges.is_empty();
    let mut total = solved;
    if !certified {
        let single: Vec<u32> = (0..mate.len() as u32)
            .filter(|&v| mate[v as usize].is_none())
            .collect();
        let mut left = Vec::new();
        for (i, &u) in single.iter().enumerate() {
            left.extend(single[i + 1..].iter().map(|&v| (u, v, weight(u, v))));
        }
        let more = greedy(mate.len(), &left);
        total += more.weight;
        for (mine, more) in mate.iter_mut().zip(more.mate) {
            *mine = mine.or(more);
        }
    }
    let loss_bound = (solved + uncovered.missing / 2 - total).max(0);
    PrunedMatching {
        mate,
        weight: total,
        certified,
        loss_bound,
        rounds,
        edges,
    }
}
