//! The server of a live cluster: the driver with its journal, the hub that agents connect to, and the HTTP API with the
//! page, wired together in one process.
//!
//! [`ServerConfig`] combines `server.yaml` with overrides and defaults. [`Server::start`] opens the journal and the
//! sockets, and [`Server::run_until`] serves until a signal, or until a part of the server fails. `dovetail server` and
//! `dovetail up` are these two calls; `up` also has [`LocalAgents`] in the same process.

mod config;
mod error;
mod file;
mod first_client;
mod host;
mod local_agents;
mod server;
mod span;

pub use config::{Overrides, ServerConfig};
pub use error::{ConfigError, ServerError};
pub use first_client::FirstUser;
pub use host::{host_name, user_name};
pub use local_agents::LocalAgents;
pub use server::{Server, join_token};
pub use span::{InvalidSpan, parse_positive_span};
