//! Maximum-weight matching over real weights that breaks ties as Muri's code does: the search starts at all single
//! vertices in order of their numbers, is breadth-first, and takes the first tight edge it finds.
//!
//! It is the primal-dual method with blossoms (Edmonds; Galil 1986) on a dense graph, in floating point. Which of many
//! equally good matchings results depends on the order of every step and on the rounding of every sum, so both are the same
//! as in Muri's code. Use [`super::maximum_weight`] for anything but a comparison with Muri: it is exact, proves its result
//! and is faster.
//!
//! Vertices are numbered from one, blossoms from one past the last vertex; zero means none.

mod blossoms;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

/// Returns the partner of each vertex (zero-based) in a complete graph of `count` vertices; a weight of zero is no edge.
pub fn first_found(count: usize, weight: impl Fn(usize, usize) -> f64) -> Vec<Option<usize>> {
    let mut search = DenseSearch::new(count, &weight);
    if search.heaviest > 0.0 {
        while search.grow_matching() {}
    }
    let mate = |v: usize| search.mate[v].checked_sub(1);
    (1..=count)
        .map(|v| mate(v).filter(|m| mate(m + 1) == Some(v - 1)))
        .collect()
}

/// An edge between two surface vertices (or blossoms), by the two real vertices it joins.
#[derive(Debug, Clone, Copy, Default)]
struct Edge {
    from: u32,
    to: u32,
    weight: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TreeLabel {
    Free,
    Outer,
    Inner,
}

/// Two values closer than this, relative to the larger one, count as equal where duals reach zero.
const CLOSE: f64 = 1e-5;

fn is_close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= CLOSE * a.abs().max(b.abs())
}

struct DenseSearch {
    count: usize,
    /// The largest number in use, blossoms included.
    last: usize,
    stride: usize,
    edges: Vec<Edge>,
    /// The child of a blossom that contains a vertex.
    holder: Vec<usize>,
    heaviest: f64,
    mate: Vec<usize>,
    parent: Vec<usize>,
    surface: Vec<usize>,
    label: Vec<TreeLabel>,
    nearest: Vec<usize>,
    /// The slack of the edge to the nearest one, until the duals change.
    nearest_slack: Vec<f64>,
    /// Weights between vertices, row by row.
    weights: Vec<f64>,
    dual: Vec<f64>,
    petals: Vec<Vec<usize>>,
    seen: Vec<usize>,
    look: usize,
    queue: VecDeque<usize>,
}

impl DenseSearch {
    fn new(count: usize, weight: &impl Fn(usize, usize) -> f64) -> Self {
        let stride = count + count / 2 + 2;
        let mut edges = vec![Edge::default(); stride * stride];
        let mut weights = vec![0.0; (count + 1) * stride];
        let mut heaviest = 0.0f64;
        for from in 1..=count {
            for to in 1..=count {
                let weight = if from == to { 0.0 } else { weight(from - 1, to - 1) };
                heaviest = heaviest.max(weight);
                weights[from * stride + to] = weight;
                edges[from * stride + to] = Edge {
                    from: from as u32,
                    to: to as u32,
                    weight,
                };
            }
        }
        let mut holder = vec![0; stride * stride];
        (1..=count).for_each(|v| holder[v * stride + v] = v);
        let mut surface: Vec<usize> = (0..stride).collect();
        surface[count + 1..].fill(0);
        let mut dual = vec![0.0; stride];
        dual[..=count].fill(heaviest);
        Self {
            count,
            last: count,
            stride,
            edges,
            holder,
            heaviest,
            mate: vec![0; stride],
            parent: vec![0; stride],
            surface,
            label: vec![TreeLabel::Free; stride],
            nearest: vec![0; stride],
            nearest_slack: vec![0.0; stride],
            weights,
            dual,
            petals: vec![Vec::new(); stride],
            seen: vec![0; stride],
            look: 0,
            queue: VecDeque::new(),
        }
    }

    fn edge(&self, from: usize, to: usize) -> Edge {
        self.edges[from * self.stride + to]
    }

    /// How far an edge is from being tight.
    fn slack(&self, edge: Edge) -> f64 {
        let (from, to) = (edge.from as usize, edge.to as usize);
        self.dual[from] + self.dual[to] - self.weights[from * self.stride + to] * 2.0
    }

    fn label_of(&self, vertex: usize) -> TreeLabel {
        self.label[self.surface[vertex]]
    }

    fn is_surface(&self, x: usize) -> bool {
        self.surface[x] == x
    }

    /// Records the outer vertex with the smallest slack to `x`.
    fn approach(&mut self, outer: usize, x: usize, slack: f64) {
        if self.nearest[x] == 0 || slack < self.nearest_slack[x] {
            (self.nearest[x], self.nearest_slack[x]) = (outer, slack);
        }
    }

    fn approach_from_all(&mut self, x: usize) {
        self.nearest[x] = 0;
        for outer in 1..=self.count {
            if self.edge(outer, x).weight > 0.0
                && self.surface[outer] != x
                && self.label_of(outer) == TreeLabel::Outer
            {
                self.approach(outer, x, self.slack(self.edge(outer, x)));
            }
        }
    }

    /// Handles a tight edge: it grows a tree, forms a blossom, or ends the search, which is reported by `true`.
    fn use_tight_edge(&mut self, edge: Edge) -> bool {
        let (x, y) = (self.surface[edge.from as usize], self.surface[edge.to as usize]);
        match self.label[y] {
            TreeLabel::Free => {
                (self.parent[y], self.label[y]) = (edge.from as usize, TreeLabel::Inner);
                let next = self.surface[self.mate[y]];
                (self.nearest[y], self.nearest[next]) = (0, 0);
                self.label[next] = TreeLabel::Outer;
                self.enqueue(next);
                false
            }
            TreeLabel::Outer => match self.meeting(x, y) {
                0 => {
                    self.swap_path(x, y);
                    self.swap_path(y, x);
                    true
                }
                base => {
                    self.form_blossom(x, base, y);
                    false
                }
            },
            TreeLabel::Inner => false,
        }
    }

    /// Runs one search from all single vertices; returns false if no path makes the matching heavier.
    fn grow_matching(&mut self) -> bool {
        self.label[..=self.last].fill(TreeLabel::Free);
        self.nearest[..=self.last].fill(0);
        self.queue.clear();
        for x in 1..=self.last {
            if self.is_surface(x) && self.mate[x] == 0 {
                (self.parent[x], self.label[x]) = (0, TreeLabel::Outer);
                self.enqueue(x);
            }
        }
        if self.queue.is_empty() {
            return false;
        }
        loop {
            if self.explore() {
                return true;
            }
            if !self.change_duals() {
                return false;
            }
            self.queue.clear();
            for x in 1..=self.last {
                let near = self.nearest[x];
                if self.is_surface(x)
                    && near != 0
                    && self.surface[near] != x
                    && self.nearest_slack[x] <= 0.0
                    && self.use_tight_edge(self.edge(near, x))
                {
                    return true;
                }
            }
            for blossom in self.count + 1..=self.last {
                if self.is_surface(blossom)
                    && self.label[blossom] == TreeLabel::Inner
                    && self.dual[blossom] <= 0.0
                {
                    self.dissolve(blossom);
                }
            }
        }
    }

    /// Follows tight edges from the queue; returns true if one of them ended the search.
    fn explore(&mut self) -> bool {
        while let Some(outer) = self.queue.pop_front() {
            if self.label_of(outer) == TreeLabel::Inner {
                continue;
            }
            for to in 1..=self.count {
                let (weight, top) = (self.weights[outer * self.stride + to], self.surface[to]);
                if weight <= 0.0 || self.surface[outer] == top {
                    continue;
                }
                let slack = self.dual[outer] + self.dual[to] - weight * 2.0;
                if slack <= 0.0 {
                    if self.use_tight_edge(self.edge(outer, to)) {
                        return true;
                    }
                } else if top == to {
                    self.approach(outer, top, slack);
                } else {
                    self.approach(outer, top, self.slack(self.edge(outer, top)));
                }
            }
        }
        false
    }

    /// Changes all duals as far as possible; returns false if the dual of an outer vertex reaches zero.
    fn change_duals(&mut self) -> bool {
        let mut step = f64::INFINITY;
        for blossom in self.count + 1..=self.last {
            if self.is_surface(blossom) && self.label[blossom] == TreeLabel::Inner {
                step = step.min(self.dual[blossom] / 2.0);
            }
        }
        for x in 1..=self.last {
            if self.is_surface(x) && self.nearest[x] != 0 {
                let slack = self.nearest_slack[x];
                match self.label[x] {
                    TreeLabel::Free => step = step.min(slack),
                    TreeLabel::Outer => step = step.min(slack / 2.0),
                    TreeLabel::Inner => {}
                }
            }
        }
        for vertex in 1..=self.count {
            match self.label_of(vertex) {
                TreeLabel::Outer => {
                    if is_close(self.dual[vertex], step) || self.dual[vertex] <= step {
                        return false;
                    }
                    self.dual[vertex] -= step;
                }
                TreeLabel::Inner => self.dual[vertex] += step,
                TreeLabel::Free => {}
            }
        }
        for blossom in self.count + 1..=self.last {
            if self.is_surface(blossom) {
                match self.label[blossom] {
                    TreeLabel::Outer => self.dual[blossom] += step * 2.0,
                    TreeLabel::Inner => self.dual[blossom] -= step * 2.0,
                    TreeLabel::Free => {}
                }
            }
        }
        for x in 1..=self.last {
            if self.nearest[x] != 0 {
                self.nearest_slack[x] = self.slack(self.edge(self.nearest[x], x));
            }
        }
        true
    }
}
