//! One file per command.

pub mod bench;
pub mod calc;
pub mod compare;
pub mod completions;
pub mod convert;
pub mod forecast;
pub mod from_journal;
pub mod policies;
pub mod profile;
pub mod profile_run;
pub mod report;
pub mod reproduce;
pub mod sensitivity;
pub mod simulate;
pub mod trace;
pub mod vc;
