//! The partial-allocation mechanism for gangs: which bids win, and which fraction of the prize each winner keeps.
//!
//! A bidder's value is `with` if it gets its gang and `without` otherwise. The winners are the bids that maximize the
//! product of all values (Nash welfare); in logarithms that is a knapsack problem. A winner keeps the fraction
//!
//! c = product of the others' values with it in the market / the same without it,
//!
//! which is what its presence costs the others. In logarithms this is the Clarke payment, and c does not depend on the
//! winner's own bid: it wins exactly if `c × with ≥ without`. So no bidder gains by overstating or understating its value,
//! provided that the market is solved exactly and the fraction that is kept is really c.

use dovetail_solve::knapsack::{Item, pack};

/// What a bidder asks for, and its value with and without it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bid {
    /// GPUs of its gang.
    pub gpus: u32,
    /// Its value with the gang.
    pub with: f64,
    /// Its value without the gang.
    pub without: f64,
}

/// A winning bid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Award {
    /// The index of the bid.
    pub bid: usize,
    /// The fraction that it keeps, above 0 and at most 1.
    pub kept: f64,
}

/// Logarithms are rounded to multiples of 1/SCALE, so that sums are exact in any order.
const SCALE: f64 = (1u64 << 32) as f64;

/// Holds an auction for the GPUs. Awards are in the order of the bids.
pub fn hold(bids: &[Bid], gpus: u32) -> Vec<Award> {
    let items: Vec<Item> = bids.iter().map(item).collect();
    let packing = pack(&items, gpus);
    let awards = packing.chosen.iter().zip(&packing.without);
    let award = |(bid, without): (&usize, &u64)| {
        let others = packing.gain - items[*bid].gain;
        Award {
            bid: *bid,
            kept: (-((without - others) as f64) / SCALE).exp(),
        }
    };
    awards.map(award).collect()
}

fn item(bid: &Bid) -> Item {
    let gain = (bid.with / bid.without).ln();
    Item {
        weight: bid.gpus,
        gain: (gain * SCALE).clamp(0.0, 64.0 * SCALE) as u64,
    }
}
