//! Where the search begins: feasible prices and a matching on edges that are exactly paid for.

use super::NONE;
use super::graph::Graph;

/// Vertex prices that pay for every edge, and a matching that only uses edges paid for exactly.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    /// The doubled price of each vertex, not negative.
    pub(crate) price: Vec<i64>,
    /// The partner of each vertex, or [`NONE`].
    pub(crate) mate: Vec<u32>,
}

/// The greedy warm start: every vertex first offers half of its heaviest edge (as all do, every edge is paid for), then
/// the single ones take back, one after the other, what none of their edges needs, and pair up where that is exact.
pub(crate) fn from_graph(graph: &impl Graph) -> Start {
    let heaviest = |v| {
        graph
            .neighbours(v)
            .map(|(_, doubled)| doubled / 2)
            .max()
            .unwrap_or(0)
    };
    from_prices(graph, (0..graph.len() as u32).map(heaviest).collect())
}

/// The same from any prices that pay for every edge.
pub(crate) fn from_prices(graph: &impl Graph, price: Vec<i64>) -> Start {
    let n = graph.len();
    let mut start = Start {
        price,
        mate: vec![NONE; n],
    };
    for v in 0..n as u32 {
        if start.mate[v as usize] == NONE {
            settle(graph, &mut start, v);
        }
    }
    start
}

/// Lowers the price of a single vertex as far as its edges allow and pairs it if a single neighbour is then paid for.
fn settle(graph: &impl Graph, start: &mut Start, v: u32) {
    let (mut needed, mut partner) = (0, NONE);
    for (u, doubled) in graph.neighbours(v) {
        let short = doubled - start.price[u as usize];
        let single = start.mate[u as usize] == NONE;
        if short > needed || (short == needed && single && partner == NONE) {
            needed = short;
            partner = if single { u } else { NONE };
        }
    }
    start.price[v as usize] = needed;
    if partner != NONE {
        start.mate[v as usize] = partner;
        start.mate[partner as usize] = v;
    }
}
