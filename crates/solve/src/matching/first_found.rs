//! Maximum-weight matching over real weights that breaks ties as Muri's code does: the search starts at all single
//! vertices in order of their numbers, goes breadth first, and takes the first tight edge it finds.
//!
//! It is the primal-dual method with blossoms (Edmonds; Galil 1986) on a dense graph, in floating point. Which of many
//! equally good matchings comes out depends on the order of every step and on the rounding of every sum, so both are
//! kept as they are there. Use [`super::maximum_weight`] for anything but a comparison with that system: it is exact,
//! proves its answer and is faster.
//!
//! Vertices are numbered from one, blossoms from one past the last vertex; zero is "none".

use std::collections::VecDeque;

/// The partner of each vertex (zero based) in a complete graph of `count` vertices; a weight of zero is no edge.
pub fn first_found(count: usize, weight: impl Fn(usize, usize) -> f64) -> Vec<Option<usize>> {
    let mut search = Search::new(count, &weight);
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
enum Label {
    Free,
    Outer,
    Inner,
}

/// Two values closer than this, relative to the larger, count as equal where duals run out.
const CLOSE: f64 = 1e-5;

fn is_close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= CLOSE * a.abs().max(b.abs())
}

struct Search {
    count: usize,
    /// The largest number in use, blossoms included.
    last: usize,
    stride: usize,
    edges: Vec<Edge>,
    /// Which child of a blossom holds a vertex.
    holder: Vec<usize>,
    heaviest: f64,
    mate: Vec<usize>,
    parent: Vec<usize>,
    surface: Vec<usize>,
    label: Vec<Label>,
    nearest: Vec<usize>,
    /// The slack of the edge to the nearest, while duals stay as they are.
    nearest_slack: Vec<f64>,
    /// Weights between vertices, row by row.
    weights: Vec<f64>,
    dual: Vec<f64>,
    petals: Vec<Vec<usize>>,
    seen: Vec<usize>,
    look: usize,
    queue: VecDeque<usize>,
}

impl Search {
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
            label: vec![Label::Free; stride],
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

    fn label_of(&self, vertex: usize) -> Label {
        self.label[self.surface[vertex]]
    }

    fn is_surface(&self, x: usize) -> bool {
        self.surface[x] == x
    }

    /// Remembers the outer vertex with the least slack to `x`.
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
                && self.label_of(outer) == Label::Outer
            {
                self.approach(outer, x, self.slack(self.edge(outer, x)));
            }
        }
    }

    /// Queues the vertices of `x`, those of shallower blossoms first.
    fn enqueue(&mut self, x: usize) {
        let mut open = VecDeque::from([x]);
        while let Some(x) = open.pop_front() {
            if x <= self.count {
                self.queue.push_back(x);
            } else {
                open.extend(self.petals[x].iter());
            }
        }
    }

    fn set_surface(&mut self, x: usize, top: usize) {
        self.surface[x] = top;
        for i in 0..self.petals[x].len() {
            self.set_surface(self.petals[x][i], top);
        }
    }

    /// The place of a petal, an even number of steps from the base; the blossom is turned round if need be.
    fn even_place(&mut self, blossom: usize, petal: usize) -> usize {
        let petals = &mut self.petals[blossom];
        let place = petals.iter().position(|p| *p == petal);
        let place = place.expect("the petal is one of this blossom");
        if place % 2 == 1 {
            petals[1..].reverse();
            petals.len() - place
        } else {
            place
        }
    }

    /// Matches `x` with `y`, and inside `x` whatever follows from it.
    fn set_mate(&mut self, x: usize, y: usize) {
        let mut open = VecDeque::from([(x, y)]);
        while let Some((x, y)) = open.pop_front() {
            let edge = self.edge(x, y);
            self.mate[x] = edge.to as usize;
            if x > self.count {
                let entry = self.holder[x * self.stride + edge.from as usize];
                let place = self.even_place(x, entry);
                open.extend((0..place).map(|i| (self.petals[x][i], self.petals[x][i ^ 1])));
                open.push_back((entry, y));
                self.petals[x].rotate_left(place);
            }
        }
    }

    /// Swaps the edges of the path from `x` to the root of its tree.
    fn swap_path(&mut self, mut x: usize, mut y: usize) {
        loop {
            let next = self.surface[self.mate[x]];
            self.set_mate(x, y);
            if next == 0 {
                return;
            }
            let above = self.surface[self.parent[next]];
            self.set_mate(next, above);
            (x, y) = (above, next);
        }
    }

    /// Where the paths to the roots meet; zero if they do not.
    fn meeting(&mut self, mut x: usize, mut y: usize) -> usize {
        self.look += 1;
        while x != 0 || y != 0 {
            if x != 0 {
                if self.seen[x] == self.look {
                    return x;
                }
                self.seen[x] = self.look;
                x = self.surface[self.mate[x]];
                if x != 0 {
                    x = self.surface[self.parent[x]];
                }
            }
            std::mem::swap(&mut x, &mut y);
        }
        0
    }

    fn form_blossom(&mut self, x: usize, base: usize, y: usize) {
        let unused = (self.count + 1..=self.last).find(|b| self.surface[*b] == 0);
        let blossom = unused.unwrap_or(self.last + 1);
        if blossom > self.last {
            self.last = blossom;
            self.seen[blossom] = 0;
        }
        (self.dual[blossom], self.label[blossom]) = (0.0, Label::Outer);
        self.mate[blossom] = self.mate[base];
        self.petals[blossom] = vec![base];
        self.gather_petals(blossom, x, base);
        self.petals[blossom][1..].reverse();
        self.gather_petals(blossom, y, base);
        self.set_surface(blossom, blossom);
        for other in 1..=self.last {
            self.edges[blossom * self.stride + other].weight = 0.0;
            self.edges[other * self.stride + blossom].weight = 0.0;
        }
        self.holder[blossom * self.stride..][1..=self.count].fill(0);
        for petal in self.petals[blossom].clone() {
            self.take_edges_of(blossom, petal);
        }
        self.approach_from_all(blossom);
    }

    /// Adds the petals on the way up from `x` to the base.
    fn gather_petals(&mut self, blossom: usize, mut x: usize, base: usize) {
        while x != base {
            let inner = self.surface[self.mate[x]];
            self.petals[blossom].extend([x, inner]);
            self.enqueue(inner);
            x = self.surface[self.parent[inner]];
        }
    }

    /// The blossom's edge to each other vertex is the one of its petals with the least slack.
    fn take_edges_of(&mut self, blossom: usize, petal: usize) {
        for other in 1..=self.last {
            let known = self.edge(blossom, other);
            if known.weight <= 0.0 || self.slack(self.edge(petal, other)) < self.slack(known) {
                self.edges[blossom * self.stride + other] = self.edge(petal, other);
                self.edges[other * self.stride + blossom] = self.edge(other, petal);
            }
        }
        for vertex in 1..=self.count {
            if self.holder[petal * self.stride + vertex] != 0 {
                self.holder[blossom * self.stride + vertex] = petal;
            }
        }
    }

    /// Opens an inner blossom whose dual has run out.
    fn open_blossom(&mut self, blossom: usize) {
        for petal in self.petals[blossom].clone() {
            self.set_surface(petal, petal);
        }
        let entered = self.edge(blossom, self.parent[blossom]).from as usize;
        let entry = self.holder[blossom * self.stride + entered];
        let place = self.even_place(blossom, entry);
        let petals = self.petals[blossom].clone();
        for pair in petals[..place].chunks_exact(2) {
            let [inner, outer] = [pair[0], pair[1]];
            self.parent[inner] = self.edge(outer, inner).from as usize;
            (self.label[inner], self.label[outer]) = (Label::Inner, Label::Outer);
            self.nearest[inner] = 0;
            self.approach_from_all(outer);
            self.enqueue(outer);
        }
        (self.label[entry], self.parent[entry]) = (Label::Inner, self.parent[blossom]);
        for petal in &petals[place + 1..] {
            self.label[*petal] = Label::Free;
            self.approach_from_all(*petal);
        }
        self.surface[blossom] = 0;
    }

    /// A tight edge was found: it grows a tree, makes a blossom, or ends the search.
    fn found(&mut self, edge: Edge) -> bool {
        let (x, y) = (self.surface[edge.from as usize], self.surface[edge.to as usize]);
        match self.label[y] {
            Label::Free => {
                (self.parent[y], self.label[y]) = (edge.from as usize, Label::Inner);
                let next = self.surface[self.mate[y]];
                (self.nearest[y], self.nearest[next]) = (0, 0);
                self.label[next] = Label::Outer;
                self.enqueue(next);
                false
            }
            Label::Outer => match self.meeting(x, y) {
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
            Label::Inner => false,
        }
    }

    /// One search from all single vertices; false when no path makes the matching heavier.
    fn grow_matching(&mut self) -> bool {
        self.label[..=self.last].fill(Label::Free);
        self.nearest[..=self.last].fill(0);
        self.queue.clear();
        for x in 1..=self.last {
            if self.is_surface(x) && self.mate[x] == 0 {
                (self.parent[x], self.label[x]) = (0, Label::Outer);
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
                    && self.found(self.edge(near, x))
                {
                    return true;
                }
            }
            for blossom in self.count + 1..=self.last {
                if self.is_surface(blossom)
                    && self.label[blossom] == Label::Inner
                    && self.dual[blossom] <= 0.0
                {
                    self.open_blossom(blossom);
                }
            }
        }
    }

    /// Follows tight edges from the queue; true when one of them ended the search.
    fn explore(&mut self) -> bool {
        while let Some(outer) = self.queue.pop_front() {
            if self.label_of(outer) == Label::Inner {
                continue;
            }
            for to in 1..=self.count {
                let (weight, top) = (self.weights[outer * self.stride + to], self.surface[to]);
                if weight <= 0.0 || self.surface[outer] == top {
                    continue;
                }
                let slack = self.dual[outer] + self.dual[to] - weight * 2.0;
                if slack <= 0.0 {
                    if self.found(self.edge(outer, to)) {
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

    /// Moves all duals as far as they go; false when that is the end of a vertex's.
    fn change_duals(&mut self) -> bool {
        let mut step = f64::INFINITY;
        for blossom in self.count + 1..=self.last {
            if self.is_surface(blossom) && self.label[blossom] == Label::Inner {
                step = step.min(self.dual[blossom] / 2.0);
            }
        }
        for x in 1..=self.last {
            if self.is_surface(x) && self.nearest[x] != 0 {
                let slack = self.nearest_slack[x];
                match self.label[x] {
                    Label::Free => step = step.min(slack),
                    Label::Outer => step = step.min(slack / 2.0),
                    Label::Inner => {}
                }
            }
        }
        for vertex in 1..=self.count {
            match self.label_of(vertex) {
                Label::Outer => {
                    if is_close(self.dual[vertex], step) || self.dual[vertex] <= step {
                        return false;
                    }
                    self.dual[vertex] -= step;
                }
                Label::Inner => self.dual[vertex] += step,
                Label::Free => {}
            }
        }
        for blossom in self.count + 1..=self.last {
            if self.is_surface(blossom) {
                match self.label[blossom] {
                    Label::Outer => self.dual[blossom] += step * 2.0,
                    Label::Inner => self.dual[blossom] -= step * 2.0,
                    Label::Free => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The best weight over all matchings, by trying them all.
    fn best(weights: &[Vec<f64>], free: u32) -> f64 {
        let Some(first) = (0..weights.len()).find(|v| free & (1 << v) != 0) else {
            return 0.0;
        };
        let rest = free & !(1 << first);
        let single = best(weights, rest);
        (first + 1..weights.len())
            .filter(|v| rest & (1 << v) != 0)
            .map(|v| weights[first][v] + best(weights, rest & !(1 << v)))
            .fold(single, f64::max)
    }

    #[test]
    fn the_weight_is_the_best_there_is() {
        let mut seed = 1u64;
        let mut next = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u32
        };
        for _ in 0..3000 {
            let count = 1 + next() as usize % 9;
            let mut weights = vec![vec![0.0; count]; count];
            for (a, b) in (0..count).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let weight = f64::from(next() % 12) / 16.0;
                (weights[a][b], weights[b][a]) = (weight, weight);
            }
            let mates = first_found(count, |a, b| weights[a][b]);
            let ours: f64 = (0..count)
                .filter_map(|v| mates[v].filter(|m| *m > v).map(|m| weights[v][m]))
                .sum();
            let most = best(&weights, (1 << count) - 1);
            assert!(
                (ours - most).abs() < 1e-9,
                "{weights:?}: {ours}, but {most} can be had"
            );
            assert!((0..count).all(|v| mates[v].is_none_or(|m| mates[m] == Some(v))));
        }
    }
}
