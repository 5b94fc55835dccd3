//! The primal-dual search of Edmonds, one alternating tree at a time.
//!
//! Every vertex has a price, and some odd sets (blossoms) have one, such that the prices cover every edge: its *slack*, the
//! amount paid beyond its weight, is never negative. Matched edges and the edges of blossoms have slack zero: they are
//! *tight*. If in addition every single vertex has price zero, the prices prove that the matching has maximum weight.
//!
//! One search fixes one single vertex whose price is positive. It grows a tree of tight edges from it. *Outer* nodes are at
//! an even distance from the root, *inner* ones at an odd distance. While the tree cannot grow, the prices of outer vertices
//! decrease and those of inner vertices increase by the same amount, which keeps the edges of the tree tight, until
//!
//! * an edge to a node outside the tree becomes tight: the node and its partner join the tree (*grow*);
//! * an edge between two outer nodes becomes tight: the odd ring it closes becomes a blossom (*shrink*);
//! * the price of an inner blossom reaches zero: it is dissolved (*expand*);
//! * an edge to a single node becomes tight: the path from the root to it is flipped, which matches two more vertices;
//! * the price of an outer vertex reaches zero: the path to it is flipped, which leaves it single instead of the root.
//!
//! The last two end the search. The earliest of them is always known as the `limit`; later events are not even queued, which
//! is what makes the search fast.
//!
//! Prices are not updated while they change: `shift` is the total change, an outer vertex stores its price plus the shift
//! and an inner one its price less the shift. All are integers because weights are doubled: two outer vertices are connected
//! by a path of tight edges, so their prices are both even or both odd, and the slack of their edge is even.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::NONE;
use super::blossoms::{Blossoms, Link};
use super::graph::Graph;
use super::start::Start;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Outside,
    Outer,
    Inner,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Vertex {
    /// The price: plus the shift if outer, less the shift if inner.
    pub(super) price: i64,
    /// The smallest stored price of an outer neighbour less the doubled weight of the edge to it.
    pub(super) near: i64,
    /// That neighbour.
    near_from: u32,
    pub(super) label: Label,
}

/// An event of a search before its end, in the order in which ties are broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Grow(u32),
    Shrink(u32, u32),
    Expand(u32),
}

/// How a search ends.
#[derive(Debug, Clone, Copy)]
enum Goal {
    /// An edge from an outer vertex to a vertex of a single node.
    Pair(u32, u32),
    /// An outer vertex whose price reaches zero.
    Release(u32),
}

/// The state of the method between and during searches.
#[derive(Debug)]
pub(crate) struct Solver<'g, G> {
    graph: &'g G,
    pub(super) nodes: Blossoms,
    pub(super) vertices: Vec<Vertex>,
    /// The price of each blossom: less twice the shift if outer, plus twice the shift if inner.
    pub(super) blossom_price: Vec<i64>,
    /// The label of each outermost node.
    pub(super) label: Vec<Label>,
    /// The edge through which an inner node was reached, from the outer vertex to the inner one.
    pub(super) entry: Vec<Link>,
    pub(super) shift: i64,
    pub(super) limit: i64,
    goal: Goal,
    events: BinaryHeap<Reverse<(i64, Event)>>,
    /// Outer vertices whose edges are still to be scanned.
    pub(super) unscanned: Vec<u32>,
    /// Nodes that were labelled, vertices that were labelled, and vertices whose `near` was set in this search.
    pub(super) labelled: Vec<u32>,
    pub(super) moved: Vec<u32>,
    pub(super) neared: Vec<u32>,
    pub(super) visit: Vec<u32>,
    pub(super) visits: u32,
}

impl<'g, G: Graph> Solver<'g, G> {
    pub(crate) fn new(graph: &'g G, start: Start) -> Self {
        let vertex = |&price: &i64| Vertex {
            price,
            near: i64::MAX,
            near_from: NONE,
            label: Label::Outside,
        };
        let vertices = start.price.iter().map(vertex).collect();
        let nodes = Blossoms::new(start.mate);
        let slots = nodes.slots();
        Self {
            graph,
            nodes,
            vertices,
            blossom_price: vec![0; slots],
            label: vec![Label::Outside; slots],
            entry: vec![(NONE, NONE); slots],
            shift: 0,
            limit: 0,
            goal: Goal::Release(NONE),
            events: BinaryHeap::new(),
            unscanned: Vec::new(),
            labelled: Vec::new(),
            moved: Vec::new(),
            neared: Vec::new(),
            visit: vec![0; slots],
            visits: 0,
        }
    }

    /// Searches from every single vertex with a positive price. One search is enough for each: it ends with the vertex
    /// matched or its price zero, and any vertex it leaves single has price zero.
    pub(crate) fn run(&mut self) {
        for root in 0..self.graph.len() as u32 {
            if self.nodes.mate[root as usize] == NONE && self.vertices[root as usize].price > 0 {
                self.search(root);
            }
        }
    }

    fn search(&mut self, root: u32) {
        self.shift = 0;
        self.limit = i64::MAX;
        self.events.clear();
        self.make_outer(self.nodes.top(root));
        while self.shift < self.limit {
            if let Some(u) = self.unscanned.pop() {
                self.scan(u);
                continue;
            }
            match self.events.pop() {
                Some(Reverse((at, event))) if at < self.limit => {
                    self.shift = at;
                    self.handle(event);
                }
                _ => break,
            }
        }
        self.shift = self.limit;
        match self.goal {
            Goal::Pair(u, v) => {
                self.nodes.turn(self.nodes.top(v), v);
                self.nodes.mate[v as usize] = u;
                self.flip(u, v);
            }
            Goal::Release(u) => self.flip(u, NONE),
        }
        self.settle();
    }

    /// Scans the edges of an outer vertex.
    fn scan(&mut self, u: u32) {
        let graph = self.graph;
        let price = self.vertices[u as usize].price;
        let top = self.nodes.top(u);
        for (v, doubled) in graph.neighbours(u) {
            let near = price - doubled;
            let vertex = &mut self.vertices[v as usize];
            let sum = near + vertex.price;
            match vertex.label {
                Label::Outer => {
                    if sum < 2 * self.limit && self.nodes.top(v) != top {
                        self.events.push(Reverse((sum / 2, Event::Shrink(u, v))));
                    }
                }
                Label::Outside | Label::Inner => {
                    if near >= vertex.near {
                        continue;
                    }
                    if vertex.near == i64::MAX {
                        self.neared.push(v);
                    }
                    vertex.near = near;
                    vertex.near_from = u;
                    if vertex.label == Label::Outside && sum < self.limit {
                        self.reachable(v, sum);
                        if self.limit <= self.shift {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Records that a vertex outside the tree will be reached when the shift is `at`.
    pub(super) fn reachable(&mut self, v: u32, at: i64) {
        if self.nodes.mate_of(self.nodes.top(v)) == NONE {
            self.limit = at;
            self.goal = Goal::Pair(self.vertices[v as usize].near_from, v);
        } else {
            self.events.push(Reverse((at, Event::Grow(v))));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Grow(v) => {
                let Vertex {
                    price,
                    near,
                    near_from,
                    label,
                } = self.vertices[v as usize];
                if label == Label::Outside && near + price == self.shift {
                    let node = self.nodes.top(v);
                    self.make_inner(node, (near_from, v));
                    self.make_outer(self.nodes.top(self.nodes.mate_of(node)));
                }
            }
            Event::Shrink(u, v) => {
                if self.nodes.top(u) != self.nodes.top(v) {
                    self.shrink(u, v);
                }
            }
            Event::Expand(blossom) => {
                if self.label[blossom as usize] == Label::Inner
                    && self.blossom_price[blossom as usize] == 2 * self.shift
                {
                    self.expand(blossom);
                }
            }
        }
    }

    /// Labels a node outside the tree, or the inner child of a blossom that becomes outer.
    pub(super) fn make_outer(&mut self, node: u32) {
        self.label[node as usize] = Label::Outer;
        self.labelled.push(node);
        if self.nodes.is_blossom(node) {
            self.blossom_price[node as usize] -= 2 * self.shift;
        }
        self.move_vertices(node, Label::Outer);
    }

    pub(super) fn make_inner(&mut self, node: u32, entry: Link) {
        self.label[node as usize] = Label::Inner;
        self.labelled.push(node);
        self.entry[node as usize] = entry;
        if self.nodes.is_blossom(node) {
            let gone = self.shift + self.blossom_price[node as usize] / 2;
            if gone < self.limit {
                self.events.push(Reverse((gone, Event::Expand(node))));
            }
            self.blossom_price[node as usize] += 2 * self.shift;
        }
        self.move_vertices(node, Label::Inner);
    }

    /// Gives the vertices of a node a new label and converts their stored prices.
    pub(super) fn move_vertices(&mut self, node: u32, label: Label) {
        let leaves = self.nodes.leaves(node);
        for &v in &leaves {
            let vertex = &mut self.vertices[v as usize];
            let actual = match vertex.label {
                Label::Outside => vertex.price,
                Label::Outer => vertex.price - self.shift,
                Label::Inner => vertex.price + self.shift,
            };
            vertex.label = label;
            match label {
                Label::Outside => vertex.price = actual,
                Label::Inner => {
                    vertex.price = actual - self.shift;
                    self.moved.push(v);
                }
                Label::Outer => {
                    vertex.price = actual + self.shift;
                    if vertex.price < self.limit {
                        self.limit = vertex.price;
                        self.goal = Goal::Release(v);
                    }
                    self.moved.push(v);
                    self.unscanned.push(v);
                }
            }
        }
        self.nodes.give_back(leaves);
    }

    /// Removes the label of an outermost node and applies the shift to its price.
    pub(super) fn unlabel(&mut self, node: u32) {
        let label = std::mem::replace(&mut self.label[node as usize], Label::Outside);
        if self.nodes.is_blossom(node) {
            self.blossom_price[node as usize] += match label {
                Label::Outside => 0,
                Label::Outer => 2 * self.shift,
                Label::Inner => -2 * self.shift,
            };
        }
    }
}
