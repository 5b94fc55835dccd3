//! Telling people of their jobs, by mail and by requests to an address of theirs.
//!
//! A task of its own reads what happened, as pages that watch do; nothing here is waited for by the scheduler. What
//! cannot be delivered is tried again for a while and then let go; what would pile up is not taken.

mod config;
mod deliver;
mod lanes;
mod message;
mod watch;

pub use config::{Notifier, NotifyConfig, Pace, SmtpConfig};
