//! Ended jobs, GPU usage and events of a cluster, in an SQLite database beside the journal.
//!
//! The journal is the source of truth. A [`Writer`] adds what the journal has made durable; every write is idempotent, so
//! that it can be repeated after a crash. [`Readers`] answer queries on the threads of their callers and never wait for the
//! writer. The [`AuditLog`] is a database of its own. A record is a byte string here; columns beside it are what jobs are found and counted by.

mod audit;
mod error;
mod list;
mod order;
mod reader;
mod row;
mod schema;
mod statement;
mod usage;
mod writer;

pub use audit::{AuditLog, AuditQuery, AuditRow};
pub use error::HistoryError;
pub use list::{Found, JobQuery, KnownJobs, Viewer};
pub use order::{Sort, SortField, SortKey};
pub use reader::Readers;
pub use row::{EventRow, JobRow, StoredEvent};
pub use schema::{Schema, open};
pub use usage::UsageSum;
pub use writer::Writer;
