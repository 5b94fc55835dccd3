//! Matching among many vertices of few types.
//!
//! If vertices of the same type have the same weights to all others, only the number of pairs of each two types matters:
//! maximize Σ w(s,t)·x(s,t) over integers x ≥ 0 such that type `s` has Σ x(s,t) + 2·x(s,s) ≤ c(s) vertices. The explicit
//! graph, with a vertex for each of the c(s), is never built.
//!
//! # Method
//!
//! Sets of types that have no positive weight to each other, directly or through others, are solved separately. For each:
//!
//! 1. **Relax.** Let each type appear twice, as supplier and as consumer, and solve the transportation problem between the
//!    two sides ([`transport`]). Half of the flow in both directions is an optimal half-integral solution of the linear
//!    relaxation, and the sums of the two prices of each type, y(s), are (doubled) prices: y(s) + y(t) ≥ 2·w(s,t), with
//!    equality wherever there is flow, and y(s) = 0 for each type that is not exhausted.
//! 2. **Round** ([`round`]). The odd halves form a graph on the types. Rounding up and down in turn along a trail of it
//!    keeps the total of every type in between. All trails can be closed, or end at types that are not exhausted, so the only
//!    loss is one vertex for each component with an odd number of edges, `q` vertices in total. Call the integral solution M,
//!    as a matching in the explicit graph.
//! 3. **Repair** ([`residual`]). Take a few of the pairs of each kind of M, and a few single vertices, as an explicit
//!    graph, and solve it exactly from M and y: at most `q` searches of the blossom method. The other pairs are kept.
//!
//! # Why a few are enough
//!
//! Let M* be an optimal matching of the explicit graph that differs from M in the fewest edges, and take one component
//! of the difference: a cycle or a path on which edges of M and M* alternate. Its *gain* is what it adds if applied to M.
//!
//! *It has a positive gain*, or M* without it would be as good and closer to M. Since y covers every edge, and exactly so
//! those of M, the gain is at most half of: the prices of the vertices it newly covers, less those it uncovers. So it is
//! *not a cycle*, but a path, and *it ends at one of the `q` lost vertices*, as all other single ones have price zero. Thus
//! there are at most `q` paths.
//!
//! *A path passes a type at most once in each direction.* Say that along the path two vertices a and, later, a' of the same
//! type are both entered by an edge of M* and left by an edge of M. Let M* exchange the partners of a and a': its weight
//! stays. If the partner of a in M was the partner of a' in M*, the two are now closer, which was excluded. Otherwise the
//! path splits into a shorter one and a cycle, and a cycle has no positive gain, so M* without it would be closer.
//!
//! An edge of M on the path that joins types s and t, taken from s to t, is entered at s by an edge of M* or is the first
//! of the path. So there are at most two such edges in each direction, four per path, and 4q in all; and a path ends at no
//! more than two single vertices. Hence a graph with 4q pairs of M of each kind and 2q single vertices of each type
//! contains some optimal solution, the rest of M being as in M*.
//!
//! In practice far fewer suffice: the repair begins with [`FIRST_COPIES`] and stops as soon as the proof for the small graph
//! extends to the whole one (see [`residual`]).

mod residual;
mod round;
mod transport;

/// Number of pairs of each kind that the repair starts with.
const FIRST_COPIES: u32 = 2;

/// The number of pairs of each two types, and their total weight.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeMatching {
    /// The kinds of pairs that occur, sorted.
    pub pairs: Vec<TypePair>,
    /// The total weight of all pairs.
    pub weight: i64,
}

/// Pairs of the same two types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypePair {
    /// The lower type.
    pub first: u32,
    /// The higher type, or the same one.
    pub second: u32,
    /// Number of pairs; never zero.
    pub count: u32,
}

impl TypeMatching {
    /// Names the vertices: `members[t]` lists those of type `t`, and each pair takes the first remaining ones.
    ///
    /// # Panics
    ///
    /// If a type has fewer members than were counted.
    pub fn assign(&self, members: &[Vec<u32>]) -> Vec<(u32, u32)> {
        let mut next = vec![0; members.len()];
        let mut take = |kind: u32| {
            let at: &mut usize = &mut next[kind as usize];
            *at += 1;
            members[kind as usize][*at - 1]
        };
        let each = self
            .pairs
            .iter()
            .flat_map(|pair| (0..pair.count).map(move |_| pair));
        each.map(|pair| (take(pair.first), take(pair.second))).collect()
    }
}

/// The types that occur and their weights to each other.
#[derive(Debug)]
pub(crate) struct Types {
    /// Number of vertices of each type; not zero.
    counts: Vec<u32>,
    /// The weights, row by row; zero instead of negative ones.
    weight: Vec<i64>,
}

impl Types {
    fn len(&self) -> usize {
        self.counts.len()
    }

    fn row(&self, s: usize) -> &[i64] {
        &self.weight[s * self.len()..(s + 1) * self.len()]
    }
}

/// Integral numbers of pairs for each two types, row by row and symmetric, and of single vertices of each type.
#[derive(Debug, Clone)]
pub(crate) struct IntegralSolution {
    pairs: Vec<u32>,
    single: Vec<u32>,
    /// Number of vertices with a positive price that the rounding left single.
    lost: u32,
}

/// Finds how many pairs of each two types have the largest total weight: exact, whatever the counts.
///
/// `weight[s][t]` is the weight of a pair of types `s` and `t`; it must equal `weight[t][s]`. `weight[s][s]` is for two
/// vertices of the same type. Pairs of weight zero or less are never made.
///
/// # Panics
///
/// If the table is not square, not symmetric or not as long as the counts, or if a weight times eight times the number of
/// vertices overflows `i64`.
pub fn by_type(counts: &[u32], weight: &[Vec<i64>]) -> TypeMatching {
    check(counts, weight);
    let mut found = TypeMatching::default();
    for members in components(counts, weight) {
        solve(&members, counts, weight, &mut found);
    }
    found.pairs.sort_unstable();
    found
}

/// Sets of types without positive weight to the types outside; types without vertices are left out.
fn components(counts: &[u32], weight: &[Vec<i64>]) -> Vec<Vec<u32>> {
    let mut seen: Vec<bool> = counts.iter().map(|&count| count == 0).collect();
    let mut all = Vec::new();
    for first in 0..counts.len() {
        if std::mem::replace(&mut seen[first], true) {
            continue;
        }
        let mut members = vec![first as u32];
        let mut at = 0;
        while let Some(&s) = members.get(at) {
            for (t, &w) in weight[s as usize].iter().enumerate() {
                if w > 0 && !std::mem::replace(&mut seen[t], true) {
                    members.push(t as u32);
                }
            }
            at += 1;
        }
        members.sort_unstable();
        all.push(members);
    }
    all
}

/// Solves for some of the types and adds the result.
fn solve(members: &[u32], counts: &[u32], weight: &[Vec<i64>], found: &mut TypeMatching) {
    let worth = |s: u32, t: u32| weight[s as usize][t as usize].max(0);
    let types = Types {
        counts: members.iter().map(|&t| counts[t as usize]).collect(),
        weight: members
            .iter()
            .flat_map(|&s| members.iter().map(move |&t| worth(s, t)))
            .collect(),
    };
    let relaxed = transport::solve(&types);
    let mut whole = round::round(&types, &relaxed);
    if whole.lost > 0 {
        whole = residual::repair(&types, &relaxed.price, &whole);
    }
    for (s, &first) in members.iter().enumerate() {
        for (t, &second) in members.iter().enumerate().skip(s) {
            let count = whole.pairs[s * types.len() + t];
            if count > 0 {
                found.pairs.push(TypePair { first, second, count });
                found.weight += i64::from(count) * types.row(s)[t];
            }
        }
    }
}

fn check(counts: &[u32], weight: &[Vec<i64>]) {
    let types = counts.len();
    assert_eq!(
        weight.len(),
        types,
        "there must be a row of weights for each type"
    );
    let vertices: i64 = counts.iter().map(|&count| i64::from(count)).sum();
    let most = i64::MAX / 8 / (vertices + 1);
    for (s, row) in weight.iter().enumerate() {
        assert_eq!(
            row.len(),
            types,
            "row {s} of the weights must have a weight for each type"
        );
        for (t, &w) in row.iter().enumerate() {
            assert_eq!(
                w, weight[t][s],
                "the weights of types {s} and {t} must be symmetric"
            );
            assert!(w <= most, "weight {w} of types {s} and {t} exceeds {most}");
        }
    }
}
