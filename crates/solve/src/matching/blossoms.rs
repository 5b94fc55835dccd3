//! The nested odd sets of a weighted matching, and how the matching inside them is rotated.
//!
//! A *node* is a vertex (its number) or a blossom (numbers from `n` on). A blossom is an odd ring of nodes; the matching
//! covers all of its vertices but one, its *base*, which is in the first child of the ring. Children 1 and 2, 3 and 4 and
//! so on are matched to each other over the link between them.

use super::NONE;

/// A directed edge: from a vertex to a vertex.
pub(crate) type Link = (u32, u32);

/// The matching and the blossoms around it.
#[derive(Debug)]
pub(crate) struct Blossoms {
    n: usize,
    /// The partner of each vertex, or [`NONE`].
    pub(crate) mate: Vec<u32>,
    /// The vertex of each node that the matching inside leaves single.
    pub(crate) base: Vec<u32>,
    parent: Vec<u32>,
    size: Vec<u32>,
    /// The ring of each blossom, by its number less `n`, and the links from each child to the next.
    ring: Vec<Ring>,
    unused: Vec<u32>,
    /// A vertex finds its outermost node through a tag, so that joining nodes relabels only the smaller ones.
    tag_of_vertex: Vec<u32>,
    tag_of_node: Vec<u32>,
    owner: Vec<u32>,
    leaves: Vec<u32>,
    stack: Vec<u32>,
    turns: Vec<(u32, u32)>,
}

/// The children of a blossom in order, the first one with the base, and the link from each to the next.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ring {
    pub(crate) nodes: Vec<u32>,
    pub(crate) links: Vec<Link>,
}

impl Blossoms {
    /// A matching without blossoms.
    pub(crate) fn new(mate: Vec<u32>) -> Self {
        let n = mate.len();
        let slots = n + n / 2;
        let ids: Vec<u32> = (0..n as u32).collect();
        let with_slots = |mut of_vertex: Vec<u32>, filler| {
            of_vertex.resize(slots, filler);
            of_vertex
        };
        Self {
            n,
            mate,
            base: with_slots(ids.clone(), NONE),
            parent: vec![NONE; slots],
            size: with_slots(vec![1; n], 0),
            ring: vec![Ring::default(); n / 2],
            unused: (n as u32..slots as u32).rev().collect(),
            tag_of_vertex: ids.clone(),
            tag_of_node: with_slots(ids.clone(), NONE),
            owner: ids,
            leaves: Vec::new(),
            stack: Vec::new(),
            turns: Vec::new(),
        }
    }

    /// The largest number of nodes.
    pub(crate) fn slots(&self) -> usize {
        self.parent.len()
    }

    /// Whether a node is a blossom rather than a vertex.
    pub(crate) fn is_blossom(&self, node: u32) -> bool {
        node as usize >= self.n
    }

    /// The blossom directly around a node, or [`NONE`].
    pub(crate) fn parent(&self, node: u32) -> u32 {
        self.parent[node as usize]
    }

    /// The ring of a blossom.
    pub(crate) fn ring(&self, blossom: u32) -> &Ring {
        &self.ring[blossom as usize - self.n]
    }

    /// The outermost node that contains a vertex.
    pub(crate) fn top(&self, v: u32) -> u32 {
        self.owner[self.tag_of_vertex[v as usize] as usize]
    }

    /// The vertex matched to a node from outside, or [`NONE`].
    pub(crate) fn mate_of(&self, node: u32) -> u32 {
        self.mate[self.base[node as usize] as usize]
    }

    /// The vertices of a node. Return the list with [`Self::give_back`] to save an allocation.
    pub(crate) fn leaves(&mut self, node: u32) -> Vec<u32> {
        let mut leaves = std::mem::take(&mut self.leaves);
        leaves.clear();
        self.stack.push(node);
        while let Some(node) = self.stack.pop() {
            if node as usize >= self.n {
                self.stack
                    .extend(self.ring[node as usize - self.n].nodes.iter().rev());
            } else {
                leaves.push(node);
            }
        }
        leaves
    }

    /// Takes back a list from [`Self::leaves`] for reuse.
    pub(crate) fn give_back(&mut self, leaves: Vec<u32>) {
        self.leaves = leaves;
    }

    /// Joins a ring of outermost nodes into a blossom.
    pub(crate) fn join(&mut self, ring: Ring) -> u32 {
        let blossom = self
            .unused
            .pop()
            .expect("nested odd sets of n vertices are fewer than n / 2");
        let size_of = |node: &u32| self.size[*node as usize];
        let size = ring.nodes.iter().map(size_of).sum();
        let largest = ring
            .nodes
            .iter()
            .copied()
            .max_by_key(size_of)
            .expect("a ring has nodes");
        let tag = self.tag_of_node[largest as usize];
        for &node in &ring.nodes {
            self.parent[node as usize] = blossom;
            if node != largest {
                self.rename(node, tag);
            }
        }
        self.owner[tag as usize] = blossom;
        self.tag_of_node[blossom as usize] = tag;
        self.size[blossom as usize] = size;
        self.base[blossom as usize] = self.base[ring.nodes[0] as usize];
        self.parent[blossom as usize] = NONE;
        self.ring[blossom as usize - self.n] = ring;
        blossom
    }

    /// Dissolves an outermost blossom; its children become outermost.
    pub(crate) fn part(&mut self, blossom: u32) -> Ring {
        let ring = std::mem::take(&mut self.ring[blossom as usize - self.n]);
        let shared = self.tag_of_node[blossom as usize];
        for &node in &ring.nodes {
            self.parent[node as usize] = NONE;
            let tag = self.tag_of_node[node as usize];
            if tag != shared {
                self.rename(node, tag);
            }
            self.owner[tag as usize] = node;
        }
        self.base[blossom as usize] = NONE;
        self.unused.push(blossom);
        ring
    }

    fn rename(&mut self, node: u32, tag: u32) {
        let leaves = self.leaves(node);
        for &v in &leaves {
            self.tag_of_vertex[v as usize] = tag;
        }
        self.give_back(leaves);
    }

    /// Rotates the matching inside a node so that it leaves the given vertex single instead of the base.
    pub(crate) fn turn(&mut self, node: u32, v: u32) {
        self.turns.push((node, v));
        while let Some((node, v)) = self.turns.pop() {
            if self.base[node as usize] != v {
                self.turn_once(node, v);
            }
        }
    }

    /// One level of [`Self::turn`]: the children that must still be rotated are left in `turns`. Their order does not
    /// matter, because each changes only matches between its own vertices.
    fn turn_once(&mut self, node: u32, v: u32) {
        let mut child = v;
        while self.parent[child as usize] != node {
            child = self.parent[child as usize];
        }
        self.turns.push((child, v));
        self.base[node as usize] = v;
        let ring = &mut self.ring[node as usize - self.n];
        let at = ring
            .nodes
            .iter()
            .position(|&c| c == child)
            .expect("a child is in its parent's ring");
        let (from, to) = if at % 2 == 0 {
            (0, at)
        } else {
            (at + 1, ring.nodes.len())
        };
        for i in (from..to).step_by(2) {
            let (x, y) = ring.links[i];
            self.mate[x as usize] = y;
            self.mate[y as usize] = x;
            self.turns.push((ring.nodes[i], x));
            self.turns.push((ring.nodes[(i + 1) % ring.nodes.len()], y));
        }
        ring.nodes.rotate_left(at);
        ring.links.rotate_left(at);
    }
}
