//! Writes ended jobs and events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::error::{At, HistoryError};
use crate::row::{EventRow, JobRow};

/// The only connection that writes.
#[derive(Debug)]
pub struct Writer {
    connection: Connection,
    path: PathBuf,
    words: Words,
}

/// Numbers of words that rows refer to: users, virtual clusters and outcomes.
#[derive(Debug, Default)]
struct Words(BTreeMap<String, i64>);

impl Words {
    fn number(&mut self, transaction: &Transaction<'_>, text: &str) -> rusqlite::Result<i64> {
        if let Some(number) = self.0.get(text) {
            return Ok(*number);
        }
        transaction
            .prepare_cached("INSERT OR IGNORE INTO words(text) VALUES (?1)")?
            .execute([text])?;
        let number = transaction
            .prepare_cached("SELECT id FROM words WHERE text = ?1")?
            .query_row([text], |row| row.get(0))?;
        self.0.insert(text.to_owned(), number);
        Ok(number)
    }
}

/// Returns the word for a state with its reason, as it is stored.
pub(crate) fn outcome(state: &str, reason: &str) -> String {
    match reason {
        "" => state.to_owned(),
        reason => format!("{state} {reason}"),
    }
}

/// The numbers that stand for the words of a job.
struct Numbers {
    outcome: i64,
    user: i64,
    tenant: i64,
}

impl Writer {
    pub(crate) fn new(connection: Connection, path: &Path) -> Result<Self, HistoryError> {
        Ok(Self {
            connection,
            path: path.to_owned(),
            words: Words::default(),
        })
    }

    /// Stores jobs and events: all of them, or none on an error. A job that is stored already gets the new record and
    /// labels; the rest of an ended job never changes.
    ///
    /// # Errors
    /// If the disk is full or fails.
    pub fn write(&mut self, jobs: &[JobRow], events: &[EventRow]) -> Result<(), HistoryError> {
        let written = self.try_write(jobs, events);
        if written.is_err() {
            // Words that the failed transaction added have no number.
            self.words = Words::default();
        }
        written.at(&self.path)
    }

    fn try_write(&mut self, jobs: &[JobRow], events: &[EventRow]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for job in jobs {
            write_job(&transaction, &mut self.words, job)?;
        }
        for event in events {
            transaction
                .prepare_cached("INSERT OR REPLACE INTO events(number, job, body) VALUES (?1, ?2, ?3)")?
                .execute(params![event.number, event.job, event.body])?;
        }
        transaction.commit()
    }

    /// Returns the record of a job.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn record(&self, id: u64) -> Result<Option<Vec<u8>>, HistoryError> {
        let record = self
            .connection
            .prepare_cached("SELECT record FROM records WHERE id = ?1")
            .and_then(|mut statement| statement.query_row([id], |row| row.get(0)).optional());
        record.at(&self.path)
    }

    /// Returns the numbers of the stored jobs from this one on.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn ids_from(&self, id: u64) -> Result<Vec<u64>, HistoryError> {
        let read = || {
            let mut statement = self
                .connection
                .prepare_cached("SELECT id FROM jobs WHERE id >= ?1 ORDER BY id")?;
            let ids = statement.query_map([id], |row| row.get(0))?;
            ids.collect::<rusqlite::Result<Vec<u64>>>()
        };
        read().at(&self.path)
    }

    /// Returns those of these jobs that are not stored.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn missing(&self, ids: &[u64]) -> Result<Vec<u64>, HistoryError> {
        let read = || {
            let mut missing = Vec::new();
            for id in ids {
                if !is_stored(&self.connection, *id)? {
                    missing.push(*id);
                }
            }
            Ok(missing)
        };
        read().at(&self.path)
    }

    /// Removes jobs that the journal does not have, or has as unfinished: the journal was restored from an older copy.
    /// Returns how many there were.
    ///
    /// # Errors
    /// If the disk is full or fails.
    pub fn remove(&mut self, ids: &[u64]) -> Result<u64, HistoryError> {
        let removed = (|| {
            let transaction = self.connection.transaction()?;
            let mut removed = 0;
            for id in ids {
                removed += u64::from(remove_job(&transaction, *id)?);
            }
            transaction.commit()?;
            Ok(removed)
        })();
        removed.at(&self.path)
    }

    /// Removes events from this number on, which the journal does not have.
    ///
    /// # Errors
    /// If the disk is full or fails.
    pub fn remove_events_from(&mut self, number: u64) -> Result<(), HistoryError> {
        let removed = self
            .connection
            .execute("DELETE FROM events WHERE number >= ?1", [number]);
        removed.map(drop).at(&self.path)
    }
}

fn write_job(transaction: &Transaction<'_>, words: &mut Words, job: &JobRow) -> rusqlite::Result<()> {
    let numbers = Numbers {
        outcome: words.number(transaction, &outcome(&job.state, &job.reason))?,
        user: words.number(transaction, &job.user)?,
        tenant: words.number(transaction, &job.tenant)?,
    };
    let is_new = transaction
        .prepare_cached(
            "INSERT OR IGNORE INTO jobs(id, outcome, user, tenant, private, gpus, submitted, gpu_time, wait, name) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            job.id,
            numbers.outcome,
            numbers.user,
            numbers.tenant,
            job.private,
            job.gpus,
            job.submitted,
            job.gpu_time,
            job.wait,
            job.name
        ])?
        > 0;
    match is_new {
        true => count_job(transaction, &numbers, job)?,
        false => {
            transaction
                .prepare_cached("DELETE FROM labels WHERE job = ?1")?
                .execute([job.id])?;
        }
    }
    transaction
        .prepare_cached("INSERT OR REPLACE INTO records(id, record) VALUES (?1, ?2)")?
        .execute(params![job.id, job.record])?;
    for (key, value) in &job.labels {
        transaction
            .prepare_cached(
                "INSERT OR REPLACE INTO labels(key, value, job, user, tenant, private) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                key,
                value,
                job.id,
                numbers.user,
                numbers.tenant,
                job.private
            ])?;
    }
    Ok(())
}

/// Adds a new job to everything that is summed up.
fn count_job(transaction: &Transaction<'_>, numbers: &Numbers, job: &JobRow) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO outcomes(outcome, user, tenant, private, jobs) VALUES (?1, ?2, ?3, ?4, 1) \
             ON CONFLICT DO UPDATE SET jobs = jobs + 1",
        )?
        .execute(params![
            numbers.outcome,
            numbers.user,
            numbers.tenant,
            job.private
        ])?;
    if let Some(key) = &job.key {
        transaction
            .prepare_cached("INSERT OR REPLACE INTO keys(user, key, job) VALUES (?1, ?2, ?3)")?
            .execute(params![numbers.user, key, job.id])?;
    }
    for (day, gpu_time) in &job.usage {
        transaction
            .prepare_cached("INSERT INTO job_usage(job, day, gpu_time) VALUES (?1, ?2, ?3)")?
            .execute(params![job.id, day, gpu_time])?;
        transaction
            .prepare_cached(
                "INSERT INTO usage(day, user, tenant, gpu_time, jobs) VALUES (?1, ?2, ?3, ?4, 1) \
                 ON CONFLICT DO UPDATE SET gpu_time = gpu_time + excluded.gpu_time, jobs = jobs + 1",
            )?
            .execute(params![day, numbers.user, numbers.tenant, gpu_time])?;
    }
    Ok(())
}

fn is_stored(connection: &Connection, id: u64) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1")?;
    statement.exists([id])
}

/// Removes a job and what it added to sums. Returns whether it was stored.
fn remove_job(transaction: &Transaction<'_>, id: u64) -> rusqlite::Result<bool> {
    if !is_stored(transaction, id)? {
        return Ok(false);
    }
    transaction
        .prepare_cached(
            "UPDATE outcomes SET jobs = outcomes.jobs - 1 FROM jobs WHERE jobs.id = ?1 AND outcomes.outcome = jobs.outcome \
             AND outcomes.user = jobs.user AND outcomes.tenant = jobs.tenant AND outcomes.private = jobs.private",
        )?
        .execute([id])?;
    transaction
        .prepare_cached(
            "UPDATE usage SET gpu_time = usage.gpu_time - job_usage.gpu_time, jobs = usage.jobs - 1 \
             FROM jobs JOIN job_usage ON job_usage.job = jobs.id \
             WHERE jobs.id = ?1 AND usage.day = job_usage.day AND usage.user = jobs.user AND usage.tenant = jobs.tenant",
        )?
        .execute([id])?;
    for table in [
        "DELETE FROM jobs WHERE id = ?1",
        "DELETE FROM records WHERE id = ?1",
        "DELETE FROM labels WHERE job = ?1",
        "DELETE FROM job_usage WHERE job = ?1",
        "DELETE FROM keys WHERE job = ?1",
    ] {
        transaction.prepare_cached(table)?.execute([id])?;
    }
    Ok(true)
}
