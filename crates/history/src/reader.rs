//! Reads on the threads of callers, with a few connections that they share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use crate::error::{At, HistoryError};
use crate::list::{self, Found, JobQuery, KnownJobs};
use crate::row::StoredEvent;
use crate::schema;
use crate::usage::{self, UsageSum};

/// Largest number of connections; further readers wait for one of them.
const MAX_CONNECTIONS: usize = 4;
/// Largest number of records that are read at once.
const MAX_RECORDS: usize = 10_000;

/// Access for readers; cheap to clone.
#[derive(Debug, Clone)]
pub struct Readers(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    path: PathBuf,
    flags: OpenFlags,
    connections: Mutex<Connections>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Connections {
    idle: Vec<Connection>,
    open: usize,
}

impl Readers {
    pub(crate) fn new(path: &Path, flags: OpenFlags) -> Self {
        Self(Arc::new(Pool {
            path: path.to_owned(),
            flags,
            connections: Mutex::default(),
            returned: Condvar::new(),
        }))
    }

    /// Opens a database for reading only.
    ///
    /// # Errors
    /// If the file does not exist, is damaged or is of a newer release.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        schema::check(&schema::connect(path, flags)?, path, &schema::HISTORY)?;
        Ok(Self::new(path, flags))
    }

    /// Returns the record of a job.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn record(&self, id: u64) -> Result<Option<Vec<u8>>, HistoryError> {
        Ok(self.records(&[id])?.into_iter().next())
    }

    /// Returns the records of jobs, in the order of their numbers; at most 10,000 of them.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn records(&self, ids: &[u64]) -> Result<Vec<Vec<u8>>, HistoryError> {
        let ids = serde_json::to_string(&ids[..ids.len().min(MAX_RECORDS)]).unwrap_or_default();
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT record FROM records WHERE id IN (SELECT value FROM json_each(?1)) ORDER BY id",
            )?;
            let records = statement.query_map([ids], |row| row.get(0))?;
            records.collect()
        })
    }

    /// Returns the records of jobs from this number on, in the order of their numbers.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn records_from(&self, id: u64, limit: usize) -> Result<Vec<Vec<u8>>, HistoryError> {
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT record FROM records WHERE id >= ?1 ORDER BY id LIMIT ?2")?;
            let records = statement.query_map(params![id, limit.min(MAX_RECORDS)], |row| row.get(0))?;
            records.collect()
        })
    }

    /// Returns the job that a user submitted with an idempotency key.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn job_of_key(&self, user: &str, key: &str) -> Result<Option<u64>, HistoryError> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT job FROM keys JOIN words ON words.id = keys.user WHERE words.text = ?1 AND keys.key = ?2",
                )?
                .query_row([user, key], |row| row.get(0))
                .optional()
        })
    }

    /// Returns the virtual clusters of all jobs.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn tenants(&self) -> Result<Vec<String>, HistoryError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT text FROM words WHERE id IN (SELECT DISTINCT tenant FROM outcomes)",
            )?;
            let tenants = statement.query_map([], |row| row.get(0))?;
            tenants.collect()
        })
    }

    /// Returns the jobs of a page, and how many there are on all pages. Jobs that the caller has are left out.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn list(&self, query: &JobQuery, known: &KnownJobs) -> Result<Found, HistoryError> {
        self.read(|connection| list::list(connection, query, known))
    }

    /// Returns the GPU usage of all jobs that the caller does not have, by day, on days from `days.0` to `days.1`.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn usage(&self, known: &KnownJobs, days: (i64, i64)) -> Result<Vec<UsageSum>, HistoryError> {
        self.read(|connection| usage::sums(connection, known, days))
    }

    /// Returns events with numbers between `after` and `before`, both excluded, oldest first; of one job if it is given.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn events(
        &self,
        (after, before): (u64, u64),
        job: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, HistoryError> {
        let only = if job.is_some() {
            "events.job = ?3"
        } else {
            "?3 IS NULL"
        };
        let sql = format!(
            "SELECT events.number, events.body, users.text, tenants.text, jobs.private FROM events \
             LEFT JOIN jobs ON jobs.id = events.job LEFT JOIN words AS users ON users.id = jobs.user \
             LEFT JOIN words AS tenants ON tenants.id = jobs.tenant \
             WHERE events.number > ?1 AND events.number < ?2 AND {only} ORDER BY events.number LIMIT ?4"
        );
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let events = statement.query_map(params![after, before, job, limit], |row| {
                let user: Option<String> = row.get(2)?;
                let owner = match user {
                    Some(user) => Some((user, row.get(3)?, row.get(4)?)),
                    None => None,
                };
                Ok(StoredEvent {
                    number: row.get(0)?,
                    body: row.get(1)?,
                    owner,
                })
            })?;
            events.collect()
        })
    }

    /// Runs a function with a connection, in one transaction: it sees one state of the database.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, HistoryError> {
        let mut connection = self.take()?;
        let result = connection
            .transaction()
            .and_then(|transaction| read(&transaction));
        let mut connections = self.lock();
        connections.idle.push(connection);
        drop(connections);
        self.0.returned.notify_one();
        result.at(&self.0.path)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Connections> {
        self.0.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection, or waits for one.
    fn take(&self) -> Result<Connection, HistoryError> {
        let mut connections = self.lock();
        loop {
            if let Some(connection) = connections.idle.pop() {
                return Ok(connection);
            }
            if connections.open < MAX_CONNECTIONS {
                connections.open += 1;
                break;
            }
            connections = self
                .0
                .returned
                .wait(connections)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(connections);
        // A connection that may write also reads a database whose writer has crashed.
        let opened = schema::connect(&self.0.path, self.0.flags).and_then(|connection| {
            connection
                .pragma_update(None, "query_only", true)
                .at(&self.0.path)?;
            Ok(connection)
        });
        if opened.is_err() {
            self.lock().open -= 1;
            self.0.returned.notify_one();
        }
        opened
    }
}
