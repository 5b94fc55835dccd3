//! What a driver restores when it starts: the state, from a snapshot and the records after it.

use std::path::PathBuf;

use dovetail_engine::Clock;
use dovetail_history::HistoryError;
use dovetail_journal::{JournalError, Recovered, Repair};

use crate::driver::DriverConfig;
use crate::fact::{Entry, Fact, PolicyText, Record};
use crate::state::{ClusterState, PolicyTextError, SnapshotError};

/// Why a driver cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The journal cannot be opened or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A record of the journal cannot be read.
    #[error("record {seq} of the journal: {source}")]
    Record {
        /// Number of the record.
        seq: u64,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The snapshot of the journal cannot be read.
    #[error("the snapshot at record {seq}: {source}")]
    Snapshot {
        /// Last record that the snapshot includes.
        seq: u64,
        /// What is wrong with it.
        source: SnapshotError,
    },
    /// The history database cannot be opened.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The history database does not exist, although jobs are only there.
    #[error("{}: missing, but {jobs} ended jobs are only in it; restore it from a backup of the folder, or create an empty \
             file of that name to start without them", path.display())]
    HistoryMissing {
        /// The file.
        path: PathBuf,
        /// Number of jobs that left the memory of the server.
        jobs: u64,
    },
    /// The state cannot be saved.
    #[error("cannot save the state: {0}")]
    Save(serde_json::Error),
    /// The policy cannot be built.
    #[error("policy: {0}")]
    Policy(#[from] PolicyTextError),
    /// A folder cannot be read.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system error.
        source: std::io::Error,
    },
}

/// What a driver restored when it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Number of records that were applied after the snapshot, if there was one.
    pub records: u64,
    /// Whether there was a snapshot.
    pub snapshot: bool,
    /// Repairs of the journal.
    pub repairs: Vec<Repair>,
    /// The policy that is in force.
    pub policy: PolicyText,
    /// The clock that is in force.
    pub clock: Clock,
    /// Number of ended jobs of the journal that a new history database gets.
    pub imported: u64,
    /// Number of jobs that were removed from the history database, because the journal does not have them as ended: it was
    /// restored from an older copy.
    pub removed: u64,
}

/// A state that was restored from a journal.
pub(crate) struct Replayed {
    pub(crate) state: ClusterState,
    /// Whether the journal is of a release that did not record decisions, so that they were taken again.
    pub(crate) is_old: bool,
}

/// Restores the state from a snapshot, if there is one, and the records after it. Decisions are applied as they were
/// recorded; the policy and the clock of `config` count for a new journal only.
pub(crate) fn replay(config: &DriverConfig, recovered: &Recovered) -> Result<Replayed, DriverError> {
    let mut records = recovered.records.iter().map(|(seq, bytes)| {
        let record: Result<Record, _> = serde_json::from_slice(bytes);
        record.map_err(|source| DriverError::Record { seq: *seq, source })
    });
    let first = records.next().transpose()?;
    let mut state = match (&recovered.snapshot, first.as_ref().map(|record| &record.entry)) {
        (Some((seq, bytes)), _) => ClusterState::load_detached(bytes)
            .map_err(|source| DriverError::Snapshot { seq: *seq, source })?,
        (None, Some(Entry::Fact(Fact::Began { policy, clock, .. }))) => {
            ClusterState::replaying(policy.clone(), *clock)?
        }
        (None, _) => ClusterState::new(config.policy.clone(), config.clock)?,
    };
    state.start_archive();
    let is_old = state.is_attached() && (first.is_some() || recovered.snapshot.is_some());
    state.set_recomputing(is_old);
    for record in first.into_iter().map(Ok).chain(records) {
        let record = record?;
        match &record.entry {
            Entry::Fact(fact) => state.apply(record.at, fact),
            Entry::Decision(decision) => state.apply_recorded(record.at, decision),
        }
        // Agents ask for their commands when they reconnect.
        state.take_commands();
        state.take_decisions();
    }
    state.set_recomputing(false);
    if !state.is_attached() {
        state.attach_engine()?;
    }
    let state = state.on(config.runtime)?;
    Ok(Replayed { state, is_old })
}
