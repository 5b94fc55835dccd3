//! The audit log: a file of JSON lines that records who changed what.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
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

/// The file of the audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct AuditError {
    path: PathBuf,
    source: std::io::Error,
}

#[derive(Debug)]
struct Log {
    file: Option<File>,
    entries: Vec<AuditEntry>,
}

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    log: Mutex<Log>,
}

impl Audit {
    /// Opens the log in this file, which is created if it is missing. Half-written lines are skipped.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let failed = |source| AuditError {
            path: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        let options = options.create(true).append(true).read(true).mode(0o600);
        let mut file = options.open(path).map_err(failed)?;
        let mut entries = Vec::new();
        let mut ends_with_entry = true;
        for line in BufReader::new(&file).split(b'\n') {
            let line = line.map_err(failed)?;
            let entry = serde_json::from_slice(&line);
            ends_with_entry = entry.is_ok();
            entries.extend(entry);
        }
        if !ends_with_entry {
            file.write_all(b"\n").map_err(failed)?;
        }
        Ok(Self {
            log: Mutex::new(Log {
                file: Some(file),
                entries,
            }),
        })
    }

    /// Creates a log that is kept in memory; entries are also written to the log of the server.
    pub fn in_memory() -> Self {
        let (file, entries) = (None, Vec::new());
        Self {
            log: Mutex::new(Log { file, entries }),
        }
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
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = AuditEntry {
            seq: log.entries.last().map_or(0, |e| e.seq) + 1,
            at: now(),
            who: who.to_owned(),
            what: what.to_owned(),
            target: target.to_owned(),
            before,
            after,
        };
        let mut line = serde_json::to_vec(&entry).unwrap_or_default();
        line.push(b'\n');
        match &mut log.file {
            Some(file) => {
                if let Err(error) = file.write_all(&line).and_then(|()| file.sync_data()) {
                    tracing::error!(%error, who, what, target, "cannot write the audit log");
                }
            }
            None => tracing::info!(who, what, target, "audit"),
        }
        log.entries.push(entry);
    }
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
    let log = api.audit.log.lock().unwrap_or_else(PoisonError::into_inner);
    let matches = |entry: &&AuditEntry| {
        query.before.is_none_or(|seq| entry.seq < seq)
            && query.who.as_ref().is_none_or(|who| entry.who == *who)
            && query
                .what
                .as_ref()
                .is_none_or(|what| entry.what == *what || entry.target == *what)
    };
    let mut found = log.entries.iter().rev().filter(matches);
    let entries: Vec<AuditEntry> = found.by_ref().take(limit).cloned().collect();
    let next = found.next().and_then(|_| entries.last().map(|e| e.seq));
    Ok(Json(AuditPage { entries, next }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_a_restart_and_a_torn_line_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let audit = Audit::open(&path).unwrap();
        audit.record(
            "ann",
            "user-added",
            "bob",
            None,
            Some(serde_json::json!({"admin": false})),
        );
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"seq\": 2, \"at").unwrap();
        let audit = Audit::open(&path).unwrap();
        audit.record("ann", "user-removed", "bob", None, None);
        let again = Audit::open(&path).unwrap();
        let log = again.log.lock().unwrap();
        let all: Vec<(u64, &str)> = log.entries.iter().map(|e| (e.seq, e.what.as_str())).collect();
        assert_eq!(all, [(1, "user-added"), (2, "user-removed")]);
    }
}
