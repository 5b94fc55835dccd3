//! Matching among many vertices of few types.
//!
//! If vertices of the same type have the same weights to everyone, only the number of pairs of each two types matters:
//! maximise Σ w(s,t)·x(s,t) over whole x ≥ 0 such that type `s` has Σ x(s,t) + 2·x(s,s) ≤ c(s) vertices to give. The
//! explicit graph, with a vertex for each of the c(s), is never built.
//!
//! # Method
//!
//! Types that are worth nothing to each other, directly or through others, are solved apart. For each such set:
//!
//! 1. **Relax.** Let each type appear twice, as giver and as taker, and solve the transportation problem between the two
//!    sides ([`transport`]). Half of what flows either way is an optimal solution in halves of the linear relaxation, and
//!    the sums of the two prices of each type, y(s), are (doubled) prices: y(s) + y(t) ≥ 2·w(s,t), with equality wherever
//!    something flows, and y(s) = 0 for each type that is not used up.
//! 2. **Round** ([`round`]). The odd halves form a graph on the types. Along a trail of it, rounding up and down in turn
//!    keeps what every type in between gives. All trails can be closed, or end at types that are not used up, so all that
//!    is lost is one vertex for each component with an odd number of edges, `q` vertices in all. Call the whole solution
//!    M, as a matching in the explicit graph.
//! 3. **Repair** ([`residual`]). Take a few of the pairs of each kind of M, and a few single vertices, as an explicit
//!    graph, and solve it exactly from M and y: at most `q` searches of the blossom method. The other pairs stay.
//!
//! # Why a few are enough
//!
//! Let M* be an optimal matching of the explicit graph that differs from M in the fewest edges, and take one component
//! of the difference: a cycle or a path on which edges of M and M* alternate. Its *gain* is what it adds if applied to M.
//!
//! *It has a positive gain*, or M* without it were as good and closer to M. Since y pays for every edge and pays exactly
//! for those of M, the gain is at most half of: the prices of the vertices it newly covers, less those it uncovers. So it
//! is *not a cycle*, but a path, and *it ends at one of the `q` lost vertices*, as all other single ones have price zero.
//! Thus there are at most `q` paths.
//!
//! *A path passes a type at most once in each direction.* Say that along the path two vertices a and, later, a' of the same
//! type are both entered by an edge of M* and left by an edge of M. Let M* exchange the partners of a and a': its weight
//! stays. If the partner of a in M was the partner of a' in M*, the two are now closer, which was excluded. Otherwise the
//! path falls into a shorter one and a cycle, and a cycle has no positive gain, so M* without it would be closer.
//!
//! An edge of M on the path that joins types s and t, taken from s to t, is entered at s by an edge of M* or is the first
//! of the path. So there are at most two such edges in each direction, four per path, and 4q in all; and a path ends at no
//! more than two single vertices. Hence a graph with 4q pairs of M of each kind and 2q single vertices of each type
//! contains some optimal solution, the rest of M being as in M*.
//!
//! In practice far fewer do: the repair begins with [`FIRST_COPIES`] and stops as soon as the proof for the small graph
//! extends to the whole one (see [`residual`]).

mod residual;
mod round;
mod transport;

/// How many pairs of each kind the repair starts with.
const FIRST_COPIES: u32 = 2;

/// How many pairs there are of each two types, and what they are worth.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeMatching {
    /// The kinds of pairs that occur, in order.
    pub pairs: Vec<TypePair>,
    /// The weight of all pairs.
    pub weight: i64,
}

/// A number of pairs of the same two types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypePair {
    /// The lower type.
    pub first: u32,
    /// The higher type, or the same.
    pub second: u32,
    /// How many pairs; never zero.
    pub count: u32,
}

impl TypeMatching {
    /// Names the vertices: `members[t]` lists those of type `t`, and each pair takes the first that are left.
    ///
    /// # Panics
    ///
    /// If there are fewer members of a type than were counted.
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
    /// How many vertices each has; not zero.
    counts: Vec<u32>,
    /// The weights, row by row; zero for what is worth nothing or less.
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

/// Whole numbers of pairs per two types, row by row and the same both ways, and single vertices of each type.
#[derive(Debug, Clone)]
pub(crate) struct Whole {
    pairs: Vec<u32>,
    single: Vec<u32>,
    /// How many vertices with a price the rounding left single.
    lost: u32,
}

/// Finds how many pairs of each two types are worth the most together: exact, whatever the counts.
///
/// `weight[s][t]` is what a pair of types `s` and `t` is worth; it must be the same as `weight[t][s]`. `weight[s][s]` is
/// for two vertices of the same type. Pairs worth nothing or less are never made.
///
/// # Panics
///
/// If the table is not square, not symmetric or not as long as the counts, or if a weight times eight times the number of
/// vertices leaves `i64`.
pub fn by_type(counts: &[u32], weight: &[Vec<i64>]) -> TypeMatching {
    check(counts, weight);
    let mut found = TypeMatching::default();
    for members in components(counts, weight) {
        solve(&members, counts, weight, &mut found);
    }
    found.pairs.sort_unstable();
    found
}

/// Sets of types that are worth nothing to the types outside; types without vertices are left out.
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

/// Solves for some of the types and adds what is found.
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
                "types {s} and {t} must be worth the same both ways"
            );
            assert!(w <= most, "the weight {w} of types {s} and {t} is beyond {most}");
        }
    }
}
