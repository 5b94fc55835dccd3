//! The partial-allocation mechanism for gangs: who wins, and what part of the prize each winner keeps.
//!
//! A bidder values its gang at `with`, and going without at `without`. The winners are those that make the product of
//! all values the largest (Nash welfare); in logarithms that is a knapsack. A winner keeps the part
//!
//! c = product of the others' values with it in the market / the same without it,
//!
//! which is what its presence costs the others. In logarithms this is the Clarke payment, and c does not depend on what
//! the winner itself bids: it wins exactly if `c × with ≥ without`. So nobody gains by bidding more or less than the
//! truth, as long as the market is solved exactly and the part that is kept is really c.

use dovetail_solve::knapsack::{Item, pack};

/// What a bidder asks for, and what that is worth to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bid {
    /// Its gang.
    pub gpus: u32,
    /// Its value with the gang.
    pub with: f64,
    /// Its value without.
    pub without: f64,
}

/// A bid that won.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Award {
    /// The place of the bid in the list.
    pub bid: usize,
    /// The part it keeps, above zero and not above one.
    pub kept: f64,
}

/// Logarithms are whole numbers of so many to the unit, so that sums are exact in any order.
const FINE: f64 = (1u64 << 32) as f64;

/// Sells the GPUs. Awards are in the order of the bids.
pub fn hold(bids: &[Bid], gpus: u32) -> Vec<Award> {
    let items: Vec<Item> = bids.iter().map(item).collect();
    let packing = pack(&items, gpus);
    let awards = packing.chosen.iter().zip(&packing.without);
    let award = |(bid, without): (&usize, &u64)| {
        let others = packing.gain - items[*bid].gain;
        Award {
            bid: *bid,
            kept: (-((without - others) as f64) / FINE).exp(),
        }
    };
    awards.map(award).collect()
}

fn item(bid: &Bid) -> Item {
    let gain = (bid.with / bid.without).ln();
    Item {
        weight: bid.gpus,
        gain: (gain * FINE).clamp(0.0, 64.0 * FINE) as u64,
    }
}
