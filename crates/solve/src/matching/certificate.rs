//! Checks a matching against its proof, using only the edges.

use super::{Duals, Matching};

/// Checks that a matching is valid and has the stated weight, and that its dual solution proves that no other is heavier.
///
/// The check relies on nothing that the solver did: it is weak duality in integers. If the prices are feasible (see
/// [`Duals`]) they bound twice the weight of every matching; a matching that reaches the bound is a maximum.
///
/// # Errors
///
/// States the first condition that does not hold.
pub fn verify(edges: &[(u32, u32, i64)], matching: &Matching) -> Result<(), String> {
    let weight = check_pairs(edges, matching)?;
    if weight != i128::from(matching.weight) {
        return Err(format!("the pairs are worth {weight}, not {}", matching.weight));
    }
    let nest = Nest::new(matching.mate.len(), &matching.duals)?;
    for &(u, v, w) in edges {
        let slack = nest.paid(&matching.duals, u, v) - 2 * i128::from(w);
        if u != v && w > 0 && slack < 0 {
            return Err(format!(
                "the edge ({u}, {v}) of weight {w} is not paid for: {} halves are missing",
                -slack
            ));
        }
    }
    let bound = nest.bound(&matching.duals);
    if bound != 2 * weight {
        return Err(format!(
            "the pairs are worth {} halves, the bound is {bound}",
            2 * weight
        ));
    }
    Ok(())
}

/// The weight of the pairs, if they are edges and each vertex is in at most one.
fn check_pairs(edges: &[(u32, u32, i64)], matching: &Matching) -> Result<i128, String> {
    let mate = &matching.mate;
    for (u, &partner) in mate.iter().enumerate() {
        let Some(v) = partner else { continue };
        if v as usize == u || mate.get(v as usize).copied().flatten() != Some(u as u32) {
            return Err(format!("the partner of {u} is {v}, but not the other way round"));
        }
    }
    let mut best: Vec<Option<i64>> = vec![None; mate.len()];
    for &(u, v, w) in edges {
        let (Some(&partner), true) = (mate.get(u as usize), (v as usize) < mate.len()) else {
            return Err(format!(
                "the edge ({u}, {v}) names a vertex beyond the {} there are",
                mate.len()
            ));
        };
        if partner == Some(v) {
            let slot = &mut best[u.min(v) as usize];
            *slot = (*slot).max(Some(w));
        }
    }
    let mut weight = 0;
    for (u, &partner) in mate.iter().enumerate() {
        let Some(v) = partner else { continue };
        if u < v as usize {
            weight += i128::from(best[u].ok_or_else(|| format!("the pair ({u}, {v}) is not an edge"))?);
        }
    }
    Ok(weight)
}

/// The blossoms of a dual solution, checked to be nested odd sets.
struct Nest {
    size: Vec<i128>,
    /// The sum of the prices of each blossom and all blossoms around it.
    paid: Vec<i128>,
}

impl Nest {
    fn new(n: usize, duals: &Duals) -> Result<Self, String> {
        if duals.vertex.len() != n || duals.blossom_of.len() != n {
            return Err(format!("the prices are not for {n} vertices"));
        }
        if let Some(v) = duals.vertex.iter().position(|&price| price < 0) {
            return Err(format!("the price of vertex {v} is negative"));
        }
        let count = duals.blossoms.len();
        let mut nest = Self {
            size: vec![0; count],
            paid: Vec::with_capacity(count),
        };
        for (i, blossom) in duals.blossoms.iter().enumerate() {
            let around = match blossom.parent {
                None => 0,
                Some(parent) if (parent as usize) < i => nest.paid[parent as usize],
                Some(parent) => return Err(format!("blossom {i} comes before blossom {parent} around it")),
            };
            if blossom.value < 0 {
                return Err(format!("the price of blossom {i} is negative"));
            }
            nest.paid.push(around + i128::from(blossom.value));
        }
        for (v, blossom) in duals.blossom_of.iter().enumerate() {
            let Some(blossom) = *blossom else { continue };
            let size = nest.size.get_mut(blossom as usize);
            *size.ok_or_else(|| format!("vertex {v} is in blossom {blossom}, which is not there"))? += 1;
        }
        for i in (0..count).rev() {
            if let Some(parent) = duals.blossoms[i].parent {
                nest.size[parent as usize] += nest.size[i];
            }
            if nest.size[i] % 2 == 0 {
                return Err(format!(
                    "blossom {i} holds {} vertices, which is not odd",
                    nest.size[i]
                ));
            }
        }
        Ok(nest)
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
