//! Who changed what: a file of JSON lines that only grows.

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

/// One change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Change {
    /// Counts up.
    pub seq: u64,
    /// When, in microseconds since 1970.
    #[schemars(with = "i64")]
    pub at: Time,
    /// Who.
    pub who: String,
    /// What, in a word.
    pub what: String,
    /// To what.
    pub target: String,
    /// How it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// How it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct AuditError {
    path: PathBuf,
    source: std::io::Error,
}

#[derive(Debug)]
struct Open {
    file: Option<File>,
    changes: Vec<Change>,
}

/// All changes so far.
#[derive(Debug)]
pub struct Audit {
    open: Mutex<Open>,
}

impl Audit {
    /// The changes in this file; none if it is not there. A line that was half written is left alone.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let failed = |source| AuditError {
            path: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        let options = options.create(true).append(true).read(true).mode(0o600);
        let mut file = options.open(path).map_err(failed)?;
        let mut changes = Vec::new();
        let mut ends_well = true;
        for line in BufReader::new(&file).split(b'\n') {
            let line = line.map_err(failed)?;
            let change = serde_json::from_slice(&line);
            ends_well = change.is_ok();
            changes.extend(change);
        }
        if !ends_well {
            file.write_all(b"\n").map_err(failed)?;
        }
        Ok(Self {
            open: Mutex::new(Open {
                file: Some(file),
                changes,
            }),
        })
    }

    /// Changes that are only logged, and remembered as long as this runs.
    pub fn in_memory() -> Self {
        let (file, changes) = (None, Vec::new());
        Self {
            open: Mutex::new(Open { file, changes }),
        }
    }

    /// Writes a change down.
    pub(crate) fn note(
        &self,
        who: &str,
        what: &str,
        target: &str,
        before: Option<Value>,
        after: Option<Value>,
    ) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let change = Change {
            seq: open.changes.last().map_or(0, |c| c.seq) + 1,
            at: now(),
            who: who.to_owned(),
            what: what.to_owned(),
            target: target.to_owned(),
            before,
            after,
        };
        let mut line = serde_json::to_vec(&change).unwrap_or_default();
        line.push(b'\n');
        match &mut open.file {
            Some(file) => {
                if let Err(error) = file.write_all(&line).and_then(|()| file.sync_data()) {
                    tracing::error!(%error, who, what, target, "a change could not be written down");
                }
            }
            None => tracing::info!(who, what, target, "a change"),
        }
        open.changes.push(change);
    }
}

/// Which changes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Wanted {
    /// Older than this number.
    before: Option<u64>,
    /// So many at most; 100 if not given.
    limit: Option<usize>,
    /// By this user.
    who: Option<String>,
    /// Of this kind, or to this target.
    what: Option<String>,
}

/// Changes, newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AuditPage {
    entries: Vec<Change>,
    /// Ask with `before` this for older ones; none if there are none.
    next: Option<u64>,
}

pub(crate) async fn show(
    State(api): State<Api>,
    user: User,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<AuditPage>, Problem> {
    user.must_be_admin()?;
    let Query(wanted) = wanted.map_err(|e| Problem::invalid(e.body_text()))?;
    let limit = wanted.limit.unwrap_or(100).clamp(1, 1_000);
    let open = api.audit.open.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |c: &&Change| {
        wanted.before.is_none_or(|seq| c.seq < seq)
            && wanted.who.as_ref().is_none_or(|who| c.who == *who)
            && wanted
                .what
                .as_ref()
                .is_none_or(|what| c.what == *what || c.target == *what)
    };
    let mut found = open.changes.iter().rev().filter(fits);
    let entries: Vec<Change> = found.by_ref().take(limit).cloned().collect();
    let next = found.next().and_then(|_| entries.last().map(|c| c.seq));
    Ok(Json(AuditPage { entries, next }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_there_after_a_restart_and_a_torn_line_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let audit = Audit::open(&path).unwrap();
        audit.note(
            "ann",
            "user-added",
            "bob",
            None,
            Some(serde_json::json!({"admin": false})),
        );
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"seq\": 2, \"at").unwrap();
        let audit = Audit::open(&path).unwrap();
        audit.note("ann", "user-removed", "bob", None, None);
        let again = Audit::open(&path).unwrap();
        let open = again.open.lock().unwrap();
        let all: Vec<(u64, &str)> = open.changes.iter().map(|c| (c.seq, c.what.as_str())).collect();
        assert_eq!(all, [(1, "user-added"), (2, "user-removed")]);
    }
}
