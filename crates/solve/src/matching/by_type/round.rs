//! From halves to integers, losing as few vertices as possible.

use super::transport::Relaxation;
use super::{IntegralSolution, Types};

/// Rounds half of the flow in both directions.
///
/// The pairs of types with an odd flow are the edges of a graph on the types (an odd flow of a type to itself is a loop).
/// A type of odd degree supplies a half-integral number of vertices, so it is not exhausted and has price zero: joining all
/// of these to one extra node makes every degree even. Each component then has a closed trail through all of its edges.
/// Along it, edges are rounded up and down in turn, which does not change the totals of the types passed. Trails between two
/// visits of the extra node may start and end with either. A closed trail of odd length without the extra node starts and
/// ends with down, and its first type, one with the lowest price, loses a vertex.
pub(super) fn round(types: &Types, relaxed: &Relaxation) -> IntegralSolution {
    let n = types.len();
    let mut odd = OddGraph {
        at: vec![Vec::new(); n + 1],
        ends: Vec::new(),
        used: Vec::new(),
    };
    let mut pairs = vec![0u32; n * n];
    for s in 0..n {
        for t in s..n {
            let both = both_ways(relaxed, n, s, t);
            set(&mut pairs, n, s, t, both / 2);
            if both % 2 == 1 {
                odd.add(s, t);
            }
        }
    }
    let extra = n;
    for s in 0..n {
        let loops = odd.at[s].iter().filter(|&&edge| odd.ends[edge] == (s, s)).count();
        if (odd.at[s].len() + loops) % 2 == 1 {
            odd.add(s, extra);
        }
    }
    let mut starts: Vec<usize> = (0..n).collect();
    starts.sort_by_key(|&s| relaxed.price[s]);
    let mut lost = 0;
    for start in std::iter::once(extra).chain(starts) {
        let trail = odd.closed_trail(start);
        let mut up = start == extra || trail.len().is_multiple_of(2);
        if !up && relaxed.price[start] > 0 {
            lost += 1;
        }
        for edge in trail {
            let (s, t) = odd.ends[edge];
            if t == extra {
                up = true;
                continue;
            }
            if up {
                let more = pairs[s * n + t] + 1;
                set(&mut pairs, n, s, t, more);
            }
            up = !up;
        }
    }
    let single = (0..n).map(|s| types.counts[s] - given(&pairs, n, s)).collect();
    IntegralSolution { pairs, single, lost }
}

/// The flow between two types, or within one: twice the number of pairs.
fn both_ways(relaxed: &Relaxation, n: usize, s: usize, t: usize) -> u32 {
    let one = relaxed.flow[s * n + t];
    if s == t {
        one
    } else {
        one + relaxed.flow[t * n + s]
    }
}

fn set(pairs: &mut [u32], n: usize, s: usize, t: usize, count: u32) {
    pairs[s * n + t] = count;
    pairs[t * n + s] = count;
}

/// Number of vertices of a type that are in pairs.
fn given(pairs: &[u32], n: usize, s: usize) -> u32 {
    pairs[s * n..(s + 1) * n].iter().sum::<u32>() + pairs[s * n + s]
}

struct OddGraph {
    /// The edges at each node; a loop is listed once.
    at: Vec<Vec<usize>>,
    ends: Vec<(usize, usize)>,
    used: Vec<bool>,
}

impl OddGraph {
    fn add(&mut self, s: usize, t: usize) {
        let edge = self.ends.len();
        self.ends.push((s, t));
        self.used.push(false);
        self.at[s].push(edge);
        if s != t {
            self.at[t].push(edge);
        }
    }

    /// Uses all edges of the component of a node, every degree being even, in one trail that returns to the node
    /// (Hierholzer's method; the trail is found backwards, which is a trail as well).
    fn closed_trail(&mut self, start: usize) -> Vec<usize> {
        let mut trail = Vec::new();
        let mut stack = vec![(start, None)];
        while let Some(&(node, by)) = stack.last() {
            match self.at[node].pop() {
                Some(edge) if self.used[edge] => {}
                Some(edge) => {
                    self.used[edge] = true;
                    let (s, t) = self.ends[edge];
                    stack.push((if s == node { t } else { s }, Some(edge)));
                }
                None => {
                    trail.extend(by);
                    stack.pop();
                }
            }
        }
        trail
    }
}
