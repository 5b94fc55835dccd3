//! Optimisation algorithms that know nothing of jobs, nodes or time.
//!
//! Everything here is a pure function of its arguments: no clock, no I/O, no hash order, no randomness, and integers
//! throughout, so that the same input gives the same answer on every machine.

pub mod choice;
pub mod knapsack;
pub mod matching;
