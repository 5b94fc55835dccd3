//! Blossoms of the search: how they form, how the matching inside them follows, and how they dissolve.

use std::collections::VecDeque;

use super::{DenseSearch, TreeLabel};

impl DenseSearch {
    /// Queues the vertices of `x`, those of shallower blossoms first.
    pub(super) fn enqueue(&mut self, x: usize) {
        let mut open = VecDeque::from([x]);
        while let Some(x) = open.pop_front() {
            if x <= self.count {
                self.queue.push_back(x);
            } else {
                open.extend(self.petals[x].iter());
            }
        }
    }

    pub(super) fn set_surface(&mut self, x: usize, top: usize) {
        self.surface[x] = top;
        for i in 0..self.petals[x].len() {
            self.set_surface(self.petals[x][i], top);
        }
    }

    /// The index of a petal, an even number of steps from the base; reverses the blossom if necessary.
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

    /// Matches `x` with `y`, and the petals inside `x` accordingly.
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
    pub(super) fn swap_path(&mut self, mut x: usize, mut y: usize) {
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

    /// The node where the paths to the roots meet; zero if they do not.
    pub(super) fn meeting(&mut self, mut x: usize, mut y: usize) -> usize {
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

    pub(super) fn form_blossom(&mut self, x: usize, base: usize, y: usize) {
        let unused = (self.count + 1..=self.last).find(|b| self.surface[*b] == 0);
        let blossom = unused.unwrap_or(self.last + 1);
        if blossom > self.last {
            self.last = blossom;
            self.seen[blossom] = 0;
        }
        (self.dual[blossom], self.label[blossom]) = (0.0, TreeLabel::Outer);
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

    /// Adds the petals on the path from `x` up to the base.
    fn gather_petals(&mut self, blossom: usize, mut x: usize, base: usize) {
        while x != base {
            let inner = self.surface[self.mate[x]];
            self.petals[blossom].extend([x, inner]);
            self.enqueue(inner);
            x = self.surface[self.parent[inner]];
        }
    }

    /// Sets the blossom's edge to each other vertex to that of this petal if its slack is smaller.
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

    /// Dissolves an inner blossom whose dual has reached zero.
    pub(super) fn dissolve(&mut self, blossom: usize) {
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
            (self.label[inner], self.label[outer]) = (TreeLabel::Inner, TreeLabel::Outer);
            self.nearest[inner] = 0;
            self.approach_from_all(outer);
            self.enqueue(outer);
        }
        (self.label[entry], self.parent[entry]) = (TreeLabel::Inner, self.parent[blossom]);
        for petal in &petals[place + 1..] {
            self.label[*petal] = TreeLabel::Free;
            self.approach_from_all(*petal);
        }
        self.surface[blossom] = 0;
    }
}
