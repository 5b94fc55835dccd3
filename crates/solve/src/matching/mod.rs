//! Maximum-weight matching: pair vertices so that the total weight of the pairs is largest.
//!
//! | function | solution | use it for |
//! |---|---|---|
//! | [`maximum_weight`] | exact, with a proof | explicit graphs up to a few thousand vertices |
//! | [`pruned`] | exact and proven, or with a bound on the loss | complete graphs too large to hold |
//! | [`by_type`] | exact | many vertices of few types, in time that hardly depends on their number |
//! | [`greedy`] | at least half of the optimum | any graph, when time is short |
//! | [`first_found`] | exact up to rounding | comparisons with Muri, as it breaks ties like Muri |
//!
//! All of them may leave vertices single, ignore edges of weight zero or less, and break ties deterministically.

mod blossoms;
mod by_type;
mod certificate;
mod first_found;
mod graph;
mod greedy;
mod pruned;
mod reshape;
mod search;
mod start;

pub use by_type::{TypeMatching, TypePair, by_type};
pub use certificate::{CertificateError, verify};
pub use first_found::first_found;
pub use greedy::greedy;
pub use pruned::{PrunedMatching, Pruning, pruned};

use graph::Adjacency;
use search::Solver;

/// Stands for "no vertex" and "no blossom" inside the solvers, where an `Option` would double the tables.
pub(crate) const NONE: u32 = u32::MAX;

/// A matching without a proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairing {
    /// The partner of each vertex.
    pub mate: Vec<Option<u32>>,
    /// The sum of the weights of the pairs.
    pub weight: i64,
}

/// A maximum-weight matching with the dual solution that proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matching {
    /// The partner of each vertex.
    pub mate: Vec<Option<u32>>,
    /// The sum of the weights of the pairs.
    pub weight: i64,
    /// The proof; see [`verify`].
    pub duals: Duals,
}

/// A solution of the dual linear program, doubled: every value is twice the textbook's, so that it is an integer.
///
/// It is feasible if no value is negative and for every edge `(u, v)` of weight `w` the values of both vertices and of the
/// blossoms that contain both add up to at least `2w`. It then bounds every matching: twice the weight of any matching is at
/// most the sum of the vertex values plus, for each blossom of `k` vertices, its value times `(k - 1) / 2`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Duals {
    /// The price of each vertex.
    pub vertex: Vec<i64>,
    /// The innermost priced blossom that contains each vertex, as an index into `blossoms`.
    pub blossom_of: Vec<Option<u32>>,
    /// The priced blossoms, each after the one that contains it.
    pub blossoms: Vec<BlossomDual>,
}

impl Duals {
    /// For each blossom, the sum of its own price and those of all blossoms around it.
    pub(crate) fn paid_by_blossom(&self) -> Vec<i64> {
        let mut paid: Vec<i64> = Vec::with_capacity(self.blossoms.len());
        for blossom in &self.blossoms {
            paid.push(blossom.value + blossom.parent.map_or(0, |parent| paid[parent as usize]));
        }
        paid
    }

    /// The innermost priced blossom that contains both vertices.
    pub(crate) fn shared(&self, u: u32, v: u32) -> Option<u32> {
        let (mut a, mut b) = (self.blossom_of[u as usize], self.blossom_of[v as usize]);
        while a != b {
            // A blossom comes after the one around it and `None` before all, so the later one cannot contain the other.
            let later = if a > b { &mut a } else { &mut b };
            *later = later.and_then(|blossom| self.blossoms[blossom as usize].parent);
        }
        a
    }
}

/// The price of one odd set of vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlossomDual {
    /// The price, positive.
    pub value: i64,
    /// The next larger priced blossom around this one; its index is lower.
    pub parent: Option<u32>,
}

/// Finds a matching of maximum weight among `n` vertices, together with its proof.
///
/// Edges may be in any order and repeated (the heaviest counts); loops and edges of weight zero or less are ignored. The
/// algorithm is the primal-dual method of Edmonds with one search tree at a time: O(n m log n) at worst, and far less with a
/// good warm start.
///
/// # Panics
///
/// If an edge names a vertex that does not exist, or a weight times eight times the number of vertices overflows `i64`.
pub fn maximum_weight(n: usize, edges: &[(u32, u32, i64)]) -> Matching {
    let graph = Adjacency::new(n, edges);
    let start = start::from_graph(&graph);
    solve(&graph, start)
}

/// Solves an explicit graph from a feasible start.
pub(crate) fn solve(graph: &Adjacency, start: start::Start) -> Matching {
    let mut solver = Solver::new(graph, start);
    solver.run();
    let (mate, duals) = solver.into_parts();
    let weight = graph.weight_of(&mate);
    Matching {
        mate: options(&mate),
        weight,
        duals,
    }
}

/// The partner table in the form that callers use.
pub(crate) fn options(mate: &[u32]) -> Vec<Option<u32>> {
    mate.iter().map(|&v| (v != NONE).then_some(v)).collect()
}
