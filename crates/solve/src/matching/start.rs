//! The start of the search: feasible prices and a matching on tight edges.

use super::NONE;
use super::graph::Graph;

/// Vertex prices that cover every edge, and a matching that only uses edges whose prices equal their weight.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    /// The doubled price of each vertex, not negative.
    pub(crate) price: Vec<i64>,
    /// The partner of each vertex, or [`NONE`].
    pub(crate) mate: Vec<u32>,
}

/// The greedy warm start: every vertex first offers half of its heaviest edge, which covers every edge. Then each single
/// vertex in turn lowers its price as far as its edges allow, and is matched if one of them becomes tight.
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

/// The same from any prices that cover every edge.
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

/// Lowers the price of a single vertex as far as its edges allow, and matches it if an edge to a single vertex is tight.
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
