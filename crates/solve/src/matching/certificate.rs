//! Checks a matching against its proof, using only the edges.

use thiserror::Error;

use super::{Duals, Matching};

/// The first condition that a matching or its proof violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CertificateError {
    /// A vertex names a partner that does not name it.
    #[error("vertex {vertex} has partner {partner}, but not the other way round")]
    OneSidedPair {
        /// The vertex.
        vertex: usize,
        /// Its partner.
        partner: u32,
    },
    /// A pair is not an edge.
    #[error("pair ({vertex}, {partner}) is not an edge")]
    NoEdge {
        /// The lower vertex.
        vertex: usize,
        /// The higher vertex.
        partner: u32,
    },
    /// An edge names a vertex that does not exist.
    #[error("edge ({from}, {to}) names a vertex beyond the {vertices} vertices")]
    UnknownVertex {
        /// The first vertex of the edge.
        from: u32,
        /// The second vertex of the edge.
        to: u32,
        /// Number of vertices.
        vertices: usize,
    },
    /// The stated weight is not that of the pairs.
    #[error("the pairs have weight {found}, but {stated} is stated")]
    Weight {
        /// Weight of the pairs.
        found: i128,
        /// Weight that the matching states.
        stated: i64,
    },
    /// The prices are for another number of vertices.
    #[error("expected prices for {vertices} vertices")]
    PriceCount {
        /// Number of vertices.
        vertices: usize,
    },
    /// A vertex has a negative price.
    #[error("price of vertex {vertex} is negative")]
    NegativeVertexPrice {
        /// The vertex.
        vertex: usize,
    },
    /// A blossom has a negative price.
    #[error("price of blossom {blossom} is negative")]
    NegativeBlossomPrice {
        /// The blossom.
        blossom: usize,
    },
    /// A blossom precedes the one that contains it.
    #[error("blossom {blossom} precedes blossom {parent}, which contains it")]
    BlossomOrder {
        /// The inner blossom.
        blossom: usize,
        /// The blossom that contains it.
        parent: u32,
    },
    /// A vertex is in a blossom that does not exist.
    #[error("vertex {vertex} is in unknown blossom {blossom}")]
    UnknownBlossom {
        /// The vertex.
        vertex: usize,
        /// The blossom.
        blossom: u32,
    },
    /// A blossom has an even number of vertices.
    #[error("blossom {blossom} has {size} vertices: expected an odd number")]
    EvenBlossom {
        /// The blossom.
        blossom: usize,
        /// Number of its vertices.
        size: i128,
    },
    /// The prices do not cover an edge.
    #[error("prices do not cover edge ({from}, {to}) of weight {weight}: {missing} halves are missing")]
    UncoveredEdge {
        /// The first vertex of the edge.
        from: u32,
        /// The second vertex of the edge.
        to: u32,
        /// Weight of the edge.
        weight: i64,
        /// Half units of weight that are missing.
        missing: i128,
    },
    /// The matching does not reach the bound.
    #[error("the pairs have weight {weight} in halves, the bound is {bound}")]
    BelowBound {
        /// Twice the weight of the pairs.
        weight: i128,
        /// The bound on twice the weight of any matching.
        bound: i128,
    },
}

/// Checks that a matching is valid and has the stated weight, and that its dual solution proves that no other is heavier.
///
/// The check relies on nothing that the solver did: it is weak duality in integers. If the prices are feasible (see
/// [`Duals`]) they bound twice the weight of every matching; a matching that reaches the bound is a maximum.
///
/// # Errors
///
/// Returns the first condition that does not hold.
pub fn verify(edges: &[(u32, u32, i64)], matching: &Matching) -> Result<(), CertificateError> {
    let weight = check_pairs(edges, matching)?;
    if weight != i128::from(matching.weight) {
        return Err(CertificateError::Weight {
            found: weight,
            stated: matching.weight,
        });
    }
    let nesting = BlossomNesting::new(matching.mate.len(), &matching.duals)?;
    for &(from, to, weight) in edges {
        let slack = nesting.paid(&matching.duals, from, to) - 2 * i128::from(weight);
        if from != to && weight > 0 && slack < 0 {
            return Err(CertificateError::UncoveredEdge {
                from,
                to,
                weight,
                missing: -slack,
            });
        }
    }
    let bound = nesting.bound(&matching.duals);
    if bound != 2 * weight {
        return Err(CertificateError::BelowBound {
            weight: 2 * weight,
            bound,
        });
    }
    Ok(())
}

/// The weight of the pairs, if they are edges and each vertex is in at most one.
fn check_pairs(edges: &[(u32, u32, i64)], matching: &Matching) -> Result<i128, CertificateError> {
    let mate = &matching.mate;
    for (vertex, &partner) in mate.iter().enumerate() {
        let Some(partner) = partner else { continue };
        if partner as usize == vertex || mate.get(partner as usize).copied().flatten() != Some(vertex as u32)
        {
            return Err(CertificateError::OneSidedPair { vertex, partner });
        }
    }
    let mut best: Vec<Option<i64>> = vec![None; mate.len()];
    for &(u, v, w) in edges {
        let (Some(&partner), true) = (mate.get(u as usize), (v as usize) < mate.len()) else {
            return Err(CertificateError::UnknownVertex {
                from: u,
                to: v,
                vertices: mate.len(),
            });
        };
        if partner == Some(v) {
            let slot = &mut best[u.min(v) as usize];
            *slot = (*slot).max(Some(w));
        }
    }
    let mut weight = 0;
    for (vertex, &partner) in mate.iter().enumerate() {
        let Some(partner) = partner else { continue };
        if vertex < partner as usize {
            weight += i128::from(best[vertex].ok_or(CertificateError::NoEdge { vertex, partner })?);
        }
    }
    Ok(weight)
}

/// The blossoms of a dual solution, checked to be nested odd sets.
struct BlossomNesting {
    size: Vec<i128>,
    /// The sum of the prices of each blossom and all blossoms around it.
    paid: Vec<i128>,
}

impl BlossomNesting {
    fn new(vertices: usize, duals: &Duals) -> Result<Self, CertificateError> {
        if duals.vertex.len() != vertices || duals.blossom_of.len() != vertices {
            return Err(CertificateError::PriceCount { vertices });
        }
        if let Some(vertex) = duals.vertex.iter().position(|&price| price < 0) {
            return Err(CertificateError::NegativeVertexPrice { vertex });
        }
        let count = duals.blossoms.len();
        let mut nesting = Self {
            size: vec![0; count],
            paid: Vec::with_capacity(count),
        };
        for (i, blossom) in duals.blossoms.iter().enumerate() {
            let around = match blossom.parent {
                None => 0,
                Some(parent) if (parent as usize) < i => nesting.paid[parent as usize],
                Some(parent) => return Err(CertificateError::BlossomOrder { blossom: i, parent }),
            };
            if blossom.value < 0 {
                return Err(CertificateError::NegativeBlossomPrice { blossom: i });
            }
            nesting.paid.push(around + i128::from(blossom.value));
        }
        for (vertex, blossom) in duals.blossom_of.iter().enumerate() {
            let Some(blossom) = *blossom else { continue };
            let size = nesting.size.get_mut(blossom as usize);
            *size.ok_or(CertificateError::UnknownBlossom { vertex, blossom })? += 1;
        }
        for i in (0..count).rev() {
            if let Some(parent) = duals.blossoms[i].parent {
                nesting.size[parent as usize] += nesting.size[i];
            }
            if nesting.size[i] % 2 == 0 {
                return Err(CertificateError::EvenBlossom {
                    blossom: i,
                    size: nesting.size[i],
                });
            }
        }
        Ok(nesting)
    }

    /// The price paid for an edge.
    fn paid(&self, duals: &Duals, u: u32, v: u32) -> i128 {
        let vertices = i128::from(duals.vertex[u as usize]) + i128::from(duals.vertex[v as usize]);
        vertices
            + duals
                .shared(u, v)
                .map_or(0, |blossom| self.paid[blossom as usize])
    }

    /// The bound on twice the weight of any matching.
    fn bound(&self, duals: &Duals) -> i128 {
        let vertices: i128 = duals.vertex.iter().map(|&price| i128::from(price)).sum();
        let sets = duals.blossoms.iter().zip(&self.size);
        vertices
            + sets
                .map(|(blossom, size)| i128::from(blossom.value) * ((size - 1) / 2))
                .sum::<i128>()
    }
}
