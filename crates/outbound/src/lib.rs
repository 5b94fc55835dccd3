//! Outgoing HTTP requests and mail. This crate knows nothing about jobs.
//!
//! The other side may be slow, broken or hostile. Every exchange has a timeout and a size limit, redirects are not
//! followed, and a resolved address is checked before a connection is opened to it.

mod address;
mod error;
mod http;
mod mail;
mod smtp;
mod trust;
mod url;

pub use address::AddressPolicy;
pub use error::OutboundError;
pub use http::{Client, HttpRequest, HttpResponse};
pub use mail::{Mail, is_address};
pub use smtp::{Security, Smtp};
pub use trust::Trust;
pub use url::{Url, percent_encode};
