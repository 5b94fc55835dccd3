//! The steps of a search that change the blossoms or the matching: shrink, expand, flip, and cleanup at its end.

use super::blossoms::{Link, Ring};
use super::graph::Graph;
use super::search::{Label, Solver};
use super::{BlossomDual, Duals, NONE};

impl<G: Graph> Solver<'_, G> {
    /// Joins the ring that a tight edge between two outer nodes closes.
    pub(super) fn shrink(&mut self, u: u32, v: u32) {
        let meet = self.meet(self.nodes.top(u), self.nodes.top(v));
        let ring = self.ring_through(u, v, meet);
        let was_inner: Vec<u32> = ring
            .nodes
            .iter()
            .copied()
            .filter(|&node| self.label[node as usize] == Label::Inner)
            .collect();
        for &node in &ring.nodes {
            self.unlabel(node);
        }
        let blossom = self.nodes.join(ring);
        self.label[blossom as usize] = Label::Outer;
        self.labelled.push(blossom);
        self.blossom_price[blossom as usize] = -2 * self.shift;
        for node in was_inner {
            self.move_vertices(node, Label::Outer);
        }
    }

    /// The lowest outer node on the paths of both to the root.
    fn meet(&mut self, mut a: u32, mut b: u32) -> u32 {
        self.visits += 1;
        loop {
            if a != NONE {
                if self.visit[a as usize] == self.visits {
                    return a;
                }
                self.visit[a as usize] = self.visits;
                a = self.outer_above(a);
            }
            std::mem::swap(&mut a, &mut b);
        }
    }

    /// The next outer node towards the root, or [`NONE`] at the root.
    fn outer_above(&self, node: u32) -> u32 {
        let mate = self.nodes.mate_of(node);
        if mate == NONE {
            NONE
        } else {
            self.nodes.top(self.entry[self.nodes.top(mate) as usize].0)
        }
    }

    /// The ring from `meet` down to the node of `u`, over the edge to the node of `v`, and back up.
    fn ring_through(&self, u: u32, v: u32, meet: u32) -> Ring {
        let mut ring = self.climb(self.nodes.top(u), meet);
        ring.nodes.push(meet);
        ring.nodes.reverse();
        ring.links.reverse();
        for link in &mut ring.links {
            *link = (link.1, link.0);
        }
        let up = self.climb(self.nodes.top(v), meet);
        ring.links.push((u, v));
        ring.nodes.extend(up.nodes);
        ring.links.extend(up.links);
        ring
    }

    /// The nodes from an outer node up to `meet`, exclusive, and the links from each to the next.
    fn climb(&self, mut node: u32, meet: u32) -> Ring {
        let mut path = Ring::default();
        while node != meet {
            let (base, mate) = (self.nodes.base[node as usize], self.nodes.mate_of(node));
            let inner = self.nodes.top(mate);
            let (above, below) = self.entry[inner as usize];
            path.nodes.extend([node, inner]);
            path.links.extend([(base, mate), (below, above)]);
            node = self.nodes.top(above);
        }
        path
    }

    /// Dissolves an inner blossom whose price is zero. The children between the one where the tree enters and the one with
    /// the base stay in the tree, inner and outer in turn; the others, matched among each other, leave it.
    pub(super) fn expand(&mut self, blossom: u32) {
        let entry = self.entry[blossom as usize];
        self.unlabel(blossom);
        let ring = self.nodes.part(blossom);
        let child = self.nodes.top(entry.1);
        let count = ring.nodes.len();
        let at = ring
            .nodes
            .iter()
            .position(|&node| node == child)
            .expect("the entry is a child of the blossom");
        let (way, rest): (Vec<usize>, _) = if at % 2 == 0 {
            ((0..=at).rev().collect(), at + 1..count)
        } else {
            ((at..count).chain([0]).collect(), 1..at)
        };
        for i in rest {
            self.leave(ring.nodes[i]);
        }
        self.make_inner(child, entry);
        for step in way[1..].chunks_exact(2) {
            let &[outer, inner] = step else {
                unreachable!("chunks of two")
            };
            self.make_outer(ring.nodes[outer]);
            let link = if at % 2 == 0 {
                flipped(ring.links[inner])
            } else {
                ring.links[outer]
            };
            self.make_inner(ring.nodes[inner], link);
        }
    }

    /// Removes a child of an expanded blossom from the tree.
    fn leave(&mut self, node: u32) {
        self.move_vertices(node, Label::Outside);
        let leaves = self.nodes.leaves(node);
        for &v in &leaves {
            let vertex = &self.vertices[v as usize];
            if vertex.near < i64::MAX && vertex.near + vertex.price < self.limit {
                self.reachable(v, vertex.near + vertex.price);
            }
        }
        self.nodes.give_back(leaves);
    }

    /// Flips the matching along the tree from the root to `u` and gives `u` the partner (or [`NONE`]).
    pub(super) fn flip(&mut self, mut u: u32, mut partner: u32) {
        loop {
            let node = self.nodes.top(u);
            let mate = self.nodes.mate_of(node);
            self.nodes.turn(node, u);
            self.nodes.mate[u as usize] = partner;
            if mate == NONE {
                return;
            }
            let inner = self.nodes.top(mate);
            let (above, below) = self.entry[inner as usize];
            self.nodes.turn(inner, below);
            self.nodes.mate[below as usize] = above;
            (u, partner) = (above, below);
        }
    }

    /// Applies the shift to all prices, removes the tree, and dissolves the blossoms whose price is zero.
    pub(super) fn settle(&mut self) {
        let mut labelled = std::mem::take(&mut self.labelled);
        for &node in &labelled {
            self.unlabel(node);
        }
        for v in self.moved.drain(..) {
            let vertex = &mut self.vertices[v as usize];
            match std::mem::replace(&mut vertex.label, Label::Outside) {
                Label::Outside => {}
                Label::Outer => vertex.price -= self.shift,
                Label::Inner => vertex.price += self.shift,
            }
        }
        for v in self.neared.drain(..) {
            self.vertices[v as usize].near = i64::MAX;
        }
        while let Some(node) = labelled.pop() {
            let outermost = self.nodes.parent(node) == NONE && self.nodes.base[node as usize] != NONE;
            if outermost && self.nodes.is_blossom(node) && self.blossom_price[node as usize] == 0 {
                labelled.extend(self.nodes.part(node).nodes);
            }
        }
        self.labelled = labelled;
        self.unscanned.clear();
    }

    /// The partners and the proof.
    pub(crate) fn into_parts(self) -> (Vec<u32>, Duals) {
        let n = self.vertices.len();
        let mut duals = Duals {
            vertex: self.vertices.iter().map(|vertex| vertex.price).collect(),
            blossom_of: vec![None; n],
            blossoms: Vec::new(),
        };
        let there = |&node: &u32| self.nodes.base[node as usize] != NONE && self.nodes.parent(node) == NONE;
        let mut stack: Vec<(u32, Option<u32>)> = (0..self.nodes.slots() as u32)
            .filter(there)
            .map(|node| (node, None))
            .collect();
        while let Some((node, within)) = stack.pop() {
            if !self.nodes.is_blossom(node) {
                duals.blossom_of[node as usize] = within;
                continue;
            }
            let mut around = within;
            let value = self.blossom_price[node as usize];
            if value > 0 {
                around = Some(duals.blossoms.len() as u32);
                duals.blossoms.push(BlossomDual {
                    value,
                    parent: within,
                });
            }
            stack.extend(self.nodes.ring(node).nodes.iter().map(|&child| (child, around)));
        }
        (self.nodes.mate, duals)
    }
}

fn flipped(link: Link) -> Link {
    (link.1, link.0)
}
