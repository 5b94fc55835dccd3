//! What the scheduler says to others: requests over HTTP and mail over SMTP. Nothing here knows of jobs.
//!
//! Whoever is spoken to may be slow, wrong or hostile: everything has an end in time and in size, nothing is followed
//! elsewhere, and an address that was looked up is looked at before it is dialled.

mod error;
mod guard;
mod http;
mod mail;
mod smtp;
mod trust;
mod url;

pub use error::CourierError;
pub use guard::Guard;
pub use http::{Client, Outgoing, Reply};
pub use mail::{Mail, is_address};
pub use smtp::{Security, Smtp};
pub use trust::Trust;
pub use url::{Url, query_value};
