//! The audit log: who changed what, in an SQLite database of its own.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::types::ToSql;
use rusqlite::{Connection, params, params_from_iter};

use crate::error::{At, HistoryError};
use crate::schema::{self, Format};

/// The file: "DVTA".
const FORMAT: Format = Format {
    application_id: 0x4456_5441,
    version: 1,
    tables: "
CREATE TABLE audit(
    seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL, target TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX audit_by_who ON audit(who);
CREATE INDEX audit_by_what ON audit(what);
CREATE INDEX audit_by_target ON audit(target);
",
};
/// Number of entries that a log in memory keeps: the newest.
const MAX_IN_MEMORY: u64 = 10_000;

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Number of the entry, counting up; zero for the next one.
    pub seq: u64,
    /// Time of the change, in microseconds since 1970.
    pub at: i64,
    /// User who made the change.
    pub who: String,
    /// Kind of change, such as `user-added`.
    pub what: String,
    /// What was changed: a user, a job, a node.
    pub target: String,
    /// Anything else, as the caller encodes it.
    pub detail: String,
}

/// Which entries to return.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only entries with a smaller number than this.
    pub before: Option<u64>,
    /// Only changes by this user.
    pub who: Option<String>,
    /// Only changes of this kind, or to this target.
    pub what: Option<String>,
}

/// The audit log.
#[derive(Debug)]
pub struct AuditLog {
    connection: Mutex<Connection>,
    path: PathBuf,
    /// Number of entries that are kept, if the log is in memory.
    limit: Option<u64>,
}

impl AuditLog {
    /// Opens the log, and creates it if the file does not exist or is empty.
    ///
    /// # Errors
    /// If the file is damaged, of another program or of a newer release, or the disk fails.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        let (connection, _) = schema::open_private(path, &FORMAT)?;
        Ok(Self {
            connection: Mutex::new(connection),
            path: path.to_owned(),
            limit: None,
        })
    }

    /// Creates a log in memory, which keeps the newest 10,000 entries.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn in_memory() -> Result<Self, HistoryError> {
        let path = PathBuf::from("audit log in memory");
        let connection = Connection::open_in_memory().at(&path)?;
        connection.execute_batch(FORMAT.tables).at(&path)?;
        Ok(Self {
            connection: Mutex::new(connection),
            path,
            limit: Some(MAX_IN_MEMORY),
        })
    }

    /// Adds entries: all of them, or none on an error. Entries with a number that exists are skipped.
    ///
    /// # Errors
    /// If the disk is full or fails.
    pub fn append(&self, rows: &[AuditRow]) -> Result<(), HistoryError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut append = || -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            for row in rows {
                let seq = (row.seq > 0).then_some(row.seq);
                transaction
                    .prepare_cached(
                        "INSERT OR IGNORE INTO audit(seq, at, who, what, target, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    )?
                    .execute(params![seq, row.at, row.who, row.what, row.target, row.detail])?;
            }
            if let Some(limit) = self.limit {
                transaction
                    .prepare_cached("DELETE FROM audit WHERE seq <= (SELECT max(seq) FROM audit) - ?1")?
                    .execute([limit])?;
            }
            transaction.commit()
        };
        append().at(&self.path)
    }

    /// Returns entries, newest first.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn read(&self, query: &AuditQuery, limit: usize) -> Result<Vec<AuditRow>, HistoryError> {
        let mut conditions = vec!["true"];
        let mut values: Vec<&dyn ToSql> = Vec::new();
        if let Some(before) = &query.before {
            conditions.push("seq < ?");
            values.push(before);
        }
        if let Some(who) = &query.who {
            conditions.push("who = ?");
            values.push(who);
        }
        if let Some(what) = &query.what {
            conditions.push("(what = ? OR target = ?)");
            values.extend([what as &dyn ToSql, what]);
        }
        values.push(&limit);
        let text = format!(
            "SELECT seq, at, who, what, target, detail FROM audit WHERE {} ORDER BY seq DESC LIMIT ?",
            conditions.join(" AND ")
        );
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || -> rusqlite::Result<Vec<AuditRow>> {
            let mut statement = connection.prepare_cached(&text)?;
            let rows = statement.query_map(params_from_iter(values.iter()), |row| {
                Ok(AuditRow {
                    seq: row.get(0)?,
                    at: row.get(1)?,
                    who: row.get(2)?,
                    what: row.get(3)?,
                    target: row.get(4)?,
                    detail: row.get(5)?,
                })
            })?;
            rows.collect()
        };
        read().at(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(who: &str, what: &str, target: &str) -> AuditRow {
        AuditRow {
            seq: 0,
            at: 7,
            who: who.to_owned(),
            what: what.to_owned(),
            target: target.to_owned(),
            detail: "{}".to_owned(),
        }
    }

    fn numbers(log: &AuditLog, query: &AuditQuery, limit: usize) -> Vec<u64> {
        let rows = log.read(query, limit).unwrap();
        rows.iter().map(|row| row.seq).collect()
    }

    #[test]
    fn entries_survive_a_restart_and_are_found_by_user_kind_and_target() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.db");
        let log = AuditLog::open(&path).unwrap();
        log.append(&[row("ann", "user-added", "bob"), row("bob", "sign-in", "bob")])
            .unwrap();
        drop(log);
        let log = AuditLog::open(&path).unwrap();
        log.append(&[row("ann", "user-removed", "bob")]).unwrap();
        let query = |who: Option<&str>, what: Option<&str>, before| AuditQuery {
            before,
            who: who.map(str::to_owned),
            what: what.map(str::to_owned),
        };
        assert_eq!(numbers(&log, &AuditQuery::default(), 10), [3, 2, 1]);
        assert_eq!(numbers(&log, &query(Some("ann"), None, None), 10), [3, 1]);
        assert_eq!(numbers(&log, &query(None, Some("bob"), Some(3)), 10), [2, 1]);
        assert_eq!(numbers(&log, &query(None, Some("sign-in"), None), 10), [2]);
        assert_eq!(numbers(&log, &AuditQuery::default(), 2), [3, 2]);
        // An import that is repeated adds nothing.
        let again = AuditRow {
            seq: 2,
            ..row("eve", "x", "y")
        };
        log.append(&[again]).unwrap();
        assert_eq!(numbers(&log, &query(Some("eve"), None, None), 10), [0_u64; 0]);
    }

    #[test]
    fn a_log_in_memory_keeps_the_newest_entries() {
        let log = AuditLog::in_memory().unwrap();
        let rows = vec![row("ann", "sign-in", "ann"); 6_000];
        log.append(&rows).unwrap();
        log.append(&rows).unwrap();
        let kept = numbers(&log, &AuditQuery::default(), 20_000);
        assert_eq!(
            (kept.len(), kept[0], kept[kept.len() - 1]),
            (10_000, 12_000, 2_001)
        );
    }

    #[test]
    fn a_history_database_is_not_taken_for_an_audit_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        drop(crate::open(&path).unwrap());
        let error = AuditLog::open(&path).unwrap_err().to_string();
        assert!(error.contains("a database of another program"), "{error}");
    }
}
