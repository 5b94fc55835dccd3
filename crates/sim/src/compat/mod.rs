//! Runs that equal those of a reference system, quirks included. The quirks live in named policy parts and in how
//! progress is counted ([`crate::Compat`]); these files only select them.

mod blox;
mod muri;
mod synergy;

pub use blox::{BLOX_POLICIES, BloxError, blox};
pub use muri::{MURI_POLICIES, MuriError, muri};
pub(crate) use muri::{opportunistic_period_s, start_up_s};
pub use synergy::{SYNERGY_POLICIES, SYNERGY_SIZINGS, SynergyError, synergy};
