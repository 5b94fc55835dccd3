//! The exact repair of a rounded solution on a small explicit graph.
//!
//! The small graph has a vertex for each end of up to `copies` pairs of each kind and for up to `copies` single vertices of
//! each type; the pairs and singles left out are unchanged. Once it is solved, its proof extends to the whole graph if
//!
//! * for every kind of pair left out there is a *model*, a pair (a, b) of that kind inside such that exactly the same
//!   priced blossoms contain a and b, and the price of a covers an edge to another vertex like it, and so does that of b;
//! * for every type with singles left out there is a vertex inside with price zero and in no priced blossom, and the type
//!   has no positive weight with itself.
//!
//! Then each pair left out can be given the prices and the blossoms of its model: the blossoms stay odd, the pair adds its
//! weight to the bound, and every edge to it is covered as the same edge to the model is.

use super::super::graph::Graph;
use super::super::search::Solver;
use super::super::start::Start;
use super::super::{Duals, NONE};
use super::{FIRST_COPIES, IntegralSolution, Types};

/// Makes a rounded solution optimal; `price` are the doubled prices of the relaxation.
///
/// Kinds without a model get twice the copies in the next attempt. If that reaches the number that suffices without a proof,
/// all kinds get that many, and the result is optimal as it is.
pub(super) fn repair(types: &Types, price: &[i64], whole: &IntegralSolution) -> IntegralSolution {
    let enough = whole.lost.saturating_mul(4);
    let n = types.len();
    let mut copies = Copies {
        pairs: vec![FIRST_COPIES; n * n],
        single: vec![FIRST_COPIES; n],
    };
    let mut last = false;
    loop {
        let (repaired, proven) = attempt(types, price, whole, &mut copies);
        if proven || last {
            return repaired;
        }
        if copies
            .pairs
            .iter()
            .chain(&copies.single)
            .any(|&copies| copies >= enough)
        {
            copies = Copies {
                pairs: vec![enough; n * n],
                single: vec![enough; n],
            };
            last = true;
        }
    }
}

/// Number of pairs of each two types (row by row, the lower type first) and of singles of each type in the small graph.
struct Copies {
    pairs: Vec<u32>,
    single: Vec<u32>,
}

/// Repairs with this many copies. Also returns whether the result is proven for the whole graph; if not, doubles the copies
/// of what is missing.
fn attempt(
    types: &Types,
    price: &[i64],
    whole: &IntegralSolution,
    copies: &mut Copies,
) -> (IntegralSolution, bool) {
    let n = types.len();
    let mut outside = whole.clone();
    let mut kind: Vec<u32> = Vec::new();
    let mut mate: Vec<u32> = Vec::new();
    for s in 0..n {
        for t in s..n {
            let taken = whole.pairs[s * n + t].min(copies.pairs[s * n + t]);
            outside.pairs[s * n + t] -= taken;
            for _ in 0..taken {
                let at = kind.len() as u32;
                kind.extend([s as u32, t as u32]);
                mate.extend([at + 1, at]);
            }
        }
        let taken = whole.single[s].min(copies.single[s]);
        outside.single[s] -= taken;
        kind.extend(std::iter::repeat_n(s as u32, taken as usize));
        mate.extend(std::iter::repeat_n(NONE, taken as usize));
    }
    let graph = TypedGraph { types, kind };
    let start = Start {
        price: graph.kind.iter().map(|&s| price[s as usize]).collect(),
        mate,
    };
    let mut solver = Solver::new(&graph, start);
    solver.run();
    let (mate, duals) = solver.into_parts();
    let proven = extends(&graph, &mate, &duals, &outside, copies);
    (merged(&graph, &mate, outside), proven)
}

/// Whether the proof for the small graph extends to what was left out; doubles the copies of what it does not cover.
fn extends(
    graph: &TypedGraph<'_>,
    mate: &[u32],
    duals: &Duals,
    outside: &IntegralSolution,
    copies: &mut Copies,
) -> bool {
    let n = graph.types.len();
    let paid = duals.paid_by_blossom();
    let mut modelled = vec![false; n * n];
    let mut idle = vec![false; n];
    for (v, &s) in graph.kind.iter().enumerate() {
        let s = s as usize;
        let own = 2 * graph.types.row(s)[s];
        let blossom = duals.blossom_of[v];
        idle[s] |= duals.vertex[v] == 0 && blossom.is_none() && own == 0;
        let partner = mate[v];
        if partner == NONE || duals.blossom_of[partner as usize] != blossom {
            continue;
        }
        let t = graph.kind[partner as usize] as usize;
        let around = blossom.map_or(0, |blossom| paid[blossom as usize]);
        let pays = |x: usize, own: i64| 2 * duals.vertex[x] + around >= own;
        modelled[s * n + t] |= pays(v, own) && pays(partner as usize, 2 * graph.types.row(t)[t]);
    }
    let double_missing = |outside: &[u32], there: &[bool], copies: &mut [u32]| {
        let mut missing = false;
        for ((&outside, &there), copies) in outside.iter().zip(there).zip(copies) {
            if outside > 0 && !there {
                missing = true;
                *copies = copies.saturating_mul(2);
            }
        }
        missing
    };
    // The lower triangle of the pairs mirrors the upper one, and only the upper one is used.
    let upper = |s: usize, t: usize| if s <= t { outside.pairs[s * n + t] } else { 0 };
    let pairs: Vec<u32> = (0..n).flat_map(|s| (0..n).map(move |t| upper(s, t))).collect();
    let no_pair = double_missing(&pairs, &modelled, &mut copies.pairs);
    let no_single = double_missing(&outside.single, &idle, &mut copies.single);
    !no_pair && !no_single
}

/// Adds the pairs and singles of the small graph to those left out.
fn merged(graph: &TypedGraph<'_>, mate: &[u32], mut all: IntegralSolution) -> IntegralSolution {
    let n = graph.types.len();
    for (v, &partner) in mate.iter().enumerate() {
        let s = graph.kind[v] as usize;
        if partner == NONE {
            all.single[s] += 1;
        } else {
            let t = graph.kind[partner as usize] as usize;
            if (s, v) < (t, partner as usize) {
                all.pairs[s * n + t] += 1;
            }
        }
    }
    all
}

/// The complete graph over some vertices of each type.
struct TypedGraph<'t> {
    types: &'t Types,
    kind: Vec<u32>,
}

impl Graph for TypedGraph<'_> {
    fn len(&self) -> usize {
        self.kind.len()
    }

    fn neighbours(&self, u: u32) -> impl Iterator<Item = (u32, i64)> {
        let row = self.types.row(self.kind[u as usize] as usize);
        let all = self
            .kind
            .iter()
            .zip(0u32..)
            .map(|(&kind, v)| (v, 2 * row[kind as usize]));
        all.filter(move |&(v, doubled)| doubled > 0 && v != u)
    }
}
