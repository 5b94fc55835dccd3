//! Notifications of users about their jobs, by mail and webhook.
//!
//! A separate task reads events; the scheduler never waits for it. Failed deliveries are retried for a while and then
//! given up, and the number of pending notifications is bounded.

mod conditions;
mod config;
mod deliver;
mod message;
mod outbox;
mod watch;

pub use config::{NotifyConfig, NotifyTiming, SmtpConfig};
pub(crate) use deliver::Counts;
pub use watch::Notifier;
