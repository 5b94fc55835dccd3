//! Optimisation algorithms, independent of jobs, nodes and time.
//!
//! Every function depends only on its arguments: no clock, no I/O, no hash order, no randomness, and integers throughout, so
//! the same input gives the same result on every machine.

pub mod choice;
pub mod knapsack;
pub mod matching;
