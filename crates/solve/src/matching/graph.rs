//! The graph interface of the search.

use super::NONE;

/// A graph whose edges can be listed vertex by vertex, with **doubled** weights, all positive.
pub(crate) trait Graph {
    /// The number of vertices.
    fn len(&self) -> usize;

    /// The neighbours of a vertex and twice the weights of the edges to them, always in the same order.
    fn neighbours(&self, u: u32) -> impl Iterator<Item = (u32, i64)>;
}

/// An explicit graph: the neighbours of each vertex in one array.
#[derive(Debug)]
pub(crate) struct Adjacency {
    first: Vec<u32>,
    head: Vec<u32>,
    doubled: Vec<i64>,
}

impl Adjacency {
    /// Keeps the edges of positive weight.
    pub(crate) fn new(n: usize, edges: &[(u32, u32, i64)]) -> Self {
        let most = i64::MAX / 8 / (n as i64 + 1);
        let mut first = vec![0u32; n + 2];
        for &(u, v, w) in edges {
            assert!(
                (u as usize) < n && (v as usize) < n,
                "edge ({u}, {v}) names a vertex beyond the {n} vertices"
            );
            assert!(w <= most, "weight {w} of edge ({u}, {v}) exceeds {most}");
            if u != v && w > 0 {
                first[u as usize + 2] += 1;
                first[v as usize + 2] += 1;
            }
        }
        for v in 0..n {
            first[v + 2] += first[v + 1];
        }
        let ends = first[n + 1] as usize;
        let (mut head, mut doubled) = (vec![0u32; ends], vec![0i64; ends]);
        let mut put = |from: u32, to: u32, w: i64| {
            let at = &mut first[from as usize + 1];
            head[*at as usize] = to;
            doubled[*at as usize] = 2 * w;
            *at += 1;
        };
        for &(u, v, w) in edges {
            if u != v && w > 0 {
                put(u, v, w);
                put(v, u, w);
            }
        }
        first.pop();
        Self { first, head, doubled }
    }

    /// The weight of a matching given by its partner table.
    pub(crate) fn weight_of(&self, mate: &[u32]) -> i64 {
        let mut total = 0;
        for (u, &partner) in mate.iter().enumerate() {
            if partner != NONE && (u as u32) < partner {
                let pair = self.neighbours(u as u32).filter(|&(v, _)| v == partner);
                total += pair
                    .map(|(_, doubled)| doubled / 2)
                    .max()
                    .expect("a pair is an edge");
            }
        }
        total
    }
}

impl Graph for Adjacency {
    fn len(&self) -> usize {
        self.first.len() - 1
    }

    fn neighbours(&self, u: u32) -> impl Iterator<Item = (u32, i64)> {
        let range = self.first[u as usize] as usize..self.first[u as usize + 1] as usize;
        self.head[range.clone()]
            .iter()
            .copied()
            .zip(self.doubled[range].iter().copied())
    }
}
