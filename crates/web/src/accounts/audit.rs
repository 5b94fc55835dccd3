//! The audit log, which records who changed what.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use dovetail_history::{AuditLog, AuditRow, HistoryError};
use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::auth::User;
use crate::{Api, Problem, now};

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditEntry {
    /// Number of the entry, counting up.
    pub seq: u64,
    /// Time of the change, in microseconds since 1970.
    #[schemars(with = "i64")]
    pub at: Time,
    /// User that made the change.
    pub who: String,
    /// Kind of change, such as `user-added`.
    pub what: String,
    /// What was changed: a user, a job, a node.
    pub target: String,
    /// State before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// State after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// Why the audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The database cannot be opened.
    #[error(transparent)]
    Database(#[from] HistoryError),
    /// The file of an earlier release cannot be read or moved.
    #[error("{}: {source}", path.display())]
    Import {
        /// The file.
        path: PathBuf,
        /// The system error.
        source: std::io::Error,
    },
}

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    log: Arc<AuditLog>,
    is_in_memory: bool,
}

/// The states before and after a change, as they are stored.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Detail {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<Value>,
}

impl From<AuditEntry> for AuditRow {
    fn from(entry: AuditEntry) -> Self {
        let (before, after) = (entry.before, entry.after);
        Self {
            seq: entry.seq,
            at: entry.at.0,
            who: entry.who,
            what: entry.what,
            target: entry.target,
            detail: serde_json::to_string(&Detail { before, after }).unwrap_or_default(),
        }
    }
}

impl From<AuditRow> for AuditEntry {
    fn from(row: AuditRow) -> Self {
        let detail: Detail = serde_json::from_str(&row.detail).unwrap_or_default();
        Self {
            seq: row.seq,
            at: Time(row.at),
            who: row.who,
            what: row.what,
            target: row.target,
            before: detail.before,
            after: detail.after,
        }
    }
}

impl Audit {
    /// Opens the log `audit.db` in this folder, and creates it if it is missing. Entries of `audit.jsonl`, the file of earlier
    /// releases, are imported, and that file is renamed.
    ///
    /// # Errors
    /// When one of the files cannot be opened or read.
    pub fn open(folder: &Path) -> Result<Self, AuditError> {
        let log = AuditLog::open(&folder.join("audit.db"))?;
        let old = folder.join("audit.jsonl");
        if old.exists() {
            import(&log, &old)?;
        }
        Ok(Self {
            log: Arc::new(log),
            is_in_memory: false,
        })
    }

    /// Creates a log that is kept in memory; entries are also written to the log of the server.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn in_memory() -> Result<Self, AuditError> {
        Ok(Self {
            log: Arc::new(AuditLog::in_memory()?),
            is_in_memory: true,
        })
    }

    /// Records a change.
    pub(crate) fn record(
        &self,
        who: &str,
        what: &str,
        target: &str,
        before: Option<Value>,
        after: Option<Value>,
    ) {
        let entry = AuditEntry {
            seq: 0,
            at: now(),
            who: who.to_owned(),
            what: what.to_owned(),
            target: target.to_owned(),
            before,
            after,
        };
        if self.is_in_memory {
            tracing::info!(who, what, target, "audit");
        }
        if let Err(error) = self.log.append(&[entry.into()]) {
            tracing::error!(%error, who, what, target, "cannot write the audit log");
        }
    }
}

/// Imports the file of an earlier release, without half-written lines, and renames it. Entries keep their numbers, so an
/// import that was interrupted can be repeated.
fn import(log: &AuditLog, path: &Path) -> Result<(), AuditError> {
    let failed = |source| AuditError::Import {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let mut rows: Vec<AuditRow> = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        let entry = serde_json::from_slice::<AuditEntry>(&line.map_err(failed)?);
        rows.extend(entry.ok().map(AuditRow::from));
    }
    log.append(&rows)?;
    fs::rename(path, path.with_extension("jsonl.imported")).map_err(failed)
}

/// Which entries to return.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuditQuery {
    /// Only entries with a smaller number than this.
    before: Option<u64>,
    /// Maximum number of entries; 100 if not given.
    limit: Option<usize>,
    /// Only changes by this user.
    who: Option<String>,
    /// Only changes of this kind, or to this target.
    what: Option<String>,
}

/// A page of the audit log, newest entry first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AuditPage {
    entries: Vec<AuditEntry>,
    /// The value of `before` for the next page; none on the last one.
    next: Option<u64>,
}

pub(crate) async fn show(
    State(api): State<Api>,
    user: User,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Json<AuditPage>, Problem> {
    user.require_admin()?;
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    let limit = query.limit.unwrap_or(100).clamp(1, 1_000);
    let wanted = dovetail_history::AuditQuery {
        before: query.before,
        who: query.who,
        what: query.what,
    };
    let log = Arc::clone(&api.audit.log);
    let read = tokio::task::spawn_blocking(move || log.read(&wanted, limit + 1));
    let rows = read.await.map_err(|e| Problem::unavailable(e.to_string()))?;
    let mut rows = rows.map_err(|e| Problem::unavailable(e.to_string()))?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().map(|row| row.seq).filter(|_| has_more);
    let entries = rows.into_iter().map(AuditEntry::from).collect();
    Ok(Json(AuditPage { entries, next }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_an_earlier_release_are_imported_once() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("audit.jsonl");
        let line =
            r#"{"seq":1,"at":5,"who":"ann","what":"user-added","target":"bob","after":{"admin":false}}"#;
        fs::write(&old, format!("{line}\n{{\"seq\": 2, \"at")).unwrap();
        let audit = Audit::open(dir.path()).unwrap();
        audit.record("ann", "user-removed", "bob", None, None);
        drop(audit);
        // As after a crash before the file was renamed.
        fs::rename(dir.path().join("audit.jsonl.imported"), &old).unwrap();
        let again = Audit::open(dir.path()).unwrap();
        let rows = again
            .log
            .read(&dovetail_history::AuditQuery::default(), 10)
            .unwrap();
        let all: Vec<AuditEntry> = rows.into_iter().map(AuditEntry::from).collect();
        let kinds: Vec<(u64, &str)> = all.iter().map(|e| (e.seq, e.what.as_str())).collect();
        assert_eq!(kinds, [(2, "user-removed"), (1, "user-added")]);
        assert_eq!(all[1].after, Some(serde_json::json!({"admin": false})));
        assert!(!old.exists());
    }
}
