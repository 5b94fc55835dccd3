//! The scheduler's side of the protocol with its agents: who may speak, who is there, and what each is to do.
//!
//! An agent dials, shows its certificate, and says what runs on its node. The [`Hub`] keeps one session for each node,
//! passes its facts to the driver and orders back, and acknowledges facts once they are in the journal. A node that is
//! silent for longer than its lease is lost: by then its agent has ended what ran there.

mod authority;
mod convert;
mod hub;
mod loads;
mod logs;
mod service;
mod stops;
mod token;

pub use authority::{Authority, AuthorityError};
pub use hub::{Hub, HubConfig};
pub use service::{ServeError, serve};
pub use token::JoinToken;
