//! The server side of the agent protocol: authentication, sessions and commands.
//!
//! An agent connects with its certificate and reports the tasks on its node. The [`Hub`] keeps one session for each node,
//! passes facts to the driver and commands to the agent, and acknowledges facts when they are in the journal. A node that is
//! silent for longer than its lease is lost: by then its agent has ended its tasks.

mod authority;
mod convert;
mod hub;
mod loads;
mod logs;
mod mps;
mod runtime;
mod service;
mod stops;
mod token;

pub use authority::{Authority, AuthorityError};
pub use convert::RegistrationError;
pub use hub::{Hub, HubConfig, HubError};
pub use runtime::AGENTS;
pub use service::{ServeError, serve};
pub use token::{InvalidToken, JoinToken};
