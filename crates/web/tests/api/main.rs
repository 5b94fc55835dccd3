//! Tests of the API over a real socket: authorization, validation and behaviour.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accounts;
mod document;
mod history;
mod matrix;
mod notify;
mod oidc;
mod policies;
mod provider;
mod requests;
mod server;
mod virtual_clusters;
