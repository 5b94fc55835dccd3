//! One file per command.

pub mod bench;
pub mod compare;
pub mod completions;
pub mod policies;
pub mod report;
pub mod reproduce;
pub mod simulate;
pub mod trace;
