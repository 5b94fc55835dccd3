//! The tables, and how a database is opened.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::{At, HistoryError};
use crate::{Readers, Writer};

/// What marks a file as ours, and what is in it.
pub(crate) struct Format {
    /// Four letters.
    pub(crate) application_id: i32,
    /// Format of the tables. A newer one is refused.
    pub(crate) version: u32,
    /// Statements that create the tables.
    pub(crate) tables: &'static str,
}

/// The history: "DVTH".
pub(crate) const HISTORY: Format = Format {
    application_id: 0x4456_5448,
    version: 1,
    tables: TABLES,
};
/// How long a connection waits for another one, which only happens while a database is created or closed.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Columns by which jobs are found are in a narrow table of their own, so that a scan reads little. `outcomes` counts jobs
/// by the columns that most lists are filtered by, so that these lists need no count over all rows.
const TABLES: &str = "
CREATE TABLE words(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE jobs(
    id INTEGER PRIMARY KEY, outcome INTEGER NOT NULL, user INTEGER NOT NULL, tenant INTEGER NOT NULL,
    private INTEGER NOT NULL, gpus INTEGER NOT NULL, submitted INTEGER NOT NULL, gpu_time INTEGER NOT NULL,
    wait INTEGER NOT NULL, name TEXT NOT NULL
);
CREATE INDEX jobs_by_outcome ON jobs(outcome);
CREATE INDEX jobs_by_user ON jobs(user);
CREATE INDEX jobs_by_tenant ON jobs(tenant);
CREATE INDEX jobs_by_name ON jobs(name);
CREATE INDEX jobs_by_submitted ON jobs(submitted);
CREATE TABLE records(id INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE labels(
    key TEXT NOT NULL, value TEXT NOT NULL, job INTEGER NOT NULL, user INTEGER NOT NULL, tenant INTEGER NOT NULL,
    private INTEGER NOT NULL, PRIMARY KEY(key, value, job)
) WITHOUT ROWID;
CREATE INDEX labels_by_job ON labels(job);
CREATE TABLE keys(user INTEGER NOT NULL, key TEXT NOT NULL, job INTEGER NOT NULL, PRIMARY KEY(user, key)) WITHOUT ROWID;
CREATE TABLE outcomes(
    outcome INTEGER NOT NULL, user INTEGER NOT NULL, tenant INTEGER NOT NULL, private INTEGER NOT NULL,
    jobs INTEGER NOT NULL, PRIMARY KEY(outcome, user, tenant, private)
) WITHOUT ROWID;
CREATE TABLE usage(
    day INTEGER NOT NULL, user INTEGER NOT NULL, tenant INTEGER NOT NULL, gpu_time INTEGER NOT NULL,
    jobs INTEGER NOT NULL, PRIMARY KEY(day, user, tenant)
) WITHOUT ROWID;
CREATE TABLE job_usage(
    job INTEGER NOT NULL, day INTEGER NOT NULL, gpu_time INTEGER NOT NULL, PRIMARY KEY(job, day)
) WITHOUT ROWID;
CREATE TABLE events(number INTEGER PRIMARY KEY, job INTEGER, body BLOB NOT NULL);
CREATE INDEX events_by_job ON events(job);
";

/// What was found when a database was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// The tables were created.
    Created,
    /// The tables existed.
    Existing,
}

/// Opens the database, and creates it if the file does not exist or is empty.
///
/// # Errors
/// If the file is damaged, of another program or of a newer release, or the disk fails.
pub fn open(path: &Path) -> Result<(Writer, Readers, Schema), HistoryError> {
    let (connection, schema) = open_private(path, &HISTORY)?;
    Ok((
        Writer::new(connection, path)?,
        Readers::new(path, OpenFlags::SQLITE_OPEN_READ_WRITE),
        schema,
    ))
}

/// Opens a database that only its owner can read, and creates it if the file does not exist or is empty.
pub(crate) fn open_private(path: &Path, format: &Format) -> Result<(Connection, Schema), HistoryError> {
    // Records have environments and secrets of jobs. SQLite gives its other files the mode of this one.
    let private = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path);
    private.map_err(|source| HistoryError::Create {
        path: path.to_owned(),
        source,
    })?;
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let schema = create(&mut connection, path, format)?;
    Ok((connection, schema))
}

/// Opens a connection.
pub(crate) fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, HistoryError> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).at(path)?;
    connection.busy_timeout(BUSY_TIMEOUT).at(path)?;
    connection.set_prepared_statement_cache_capacity(64);
    // The page cache of a connection, in KiB: the operating system caches the file as well.
    connection.pragma_update(None, "cache_size", -8_192).at(path)?;
    Ok(connection)
}

/// Checks that a file can be read. Returns whether it has tables.
pub(crate) fn check(connection: &Connection, path: &Path, format: &Format) -> Result<bool, HistoryError> {
    let pragma = |connection: &Connection, name: &str| -> Result<i32, HistoryError> {
        connection
            .pragma_query_value(None, name, |row| row.get(0))
            .at(path)
    };
    let tables: u32 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .at(path)?;
    let application = pragma(connection, "application_id")?;
    if tables > 0 && application != format.application_id {
        return Err(HistoryError::Foreign {
            path: path.to_owned(),
        });
    }
    let found = pragma(connection, "user_version")?.unsigned_abs();
    if found > format.version {
        return Err(HistoryError::Newer {
            path: path.to_owned(),
            found,
            known: format.version,
        });
    }
    Ok(tables > 0)
}

fn create(connection: &mut Connection, path: &Path, format: &Format) -> Result<Schema, HistoryError> {
    let has_tables = check(connection, path, format)?;
    // A job leaves the memory of the server when its row is committed, so a commit must survive a power failure.
    connection.pragma_update(None, "journal_mode", "WAL").at(path)?;
    connection.pragma_update(None, "synchronous", "FULL").at(path)?;
    if has_tables {
        return Ok(Schema::Existing);
    }
    let transaction = connection.transaction().at(path)?;
    transaction.execute_batch(format.tables).at(path)?;
    transaction
        .pragma_update(None, "application_id", format.application_id)
        .at(path)?;
    transaction
        .pragma_update(None, "user_version", format.version)
        .at(path)?;
    transaction.commit().at(path)?;
    Ok(Schema::Created)
}
