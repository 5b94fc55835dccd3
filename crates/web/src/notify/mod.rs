//! Notifications of users about their jobs, by mail and webhook.
//!
//! A separate task reads events; the scheduler never waits for it. Failed deliveries are retried for a while and then
//! given up, and the number of pending notifications is bounded.

mod config;
mod deliver;
mod message;
mod outbox;
mod watch;

pub(crate) use config::Counts;
pub use config::{Notifier, NotifyConfig, NotifyTiming, SmtpConfig};
