//! The API over a real socket: who may do what, and what is said to those who ask for what cannot be.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod document;
mod matrix;
mod notify;
mod oidc;
mod people;
mod provider;
mod requests;
mod server;
mod virtual_clusters;
