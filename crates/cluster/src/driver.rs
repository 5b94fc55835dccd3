//! The driver thread, which owns the cluster state. Facts of all pending requests become durable with one write to the
//! journal; only then are the requests answered and commands sent to agents. If the write fails, the state is restored
//! from the journal and all these requests are refused.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dovetail_engine::{Capabilities, Clock};
use dovetail_journal::{Journal, JournalError, Recovered, Repair};
use dovetail_model::{NodeId, Time};

use crate::fact::{Entry, Fact, PolicyText, Record};
use crate::handle::Handle;
use crate::state::{ClusterState, PolicyTextError, RuntimeCommand, SnapshotError};

/// Receives commands for agents and news about the driver.
pub trait Backend: Send + 'static {
    /// Sends commands to agents. An agent that is not connected gets them when it reconnects.
    fn dispatch(&mut self, commands: Vec<(NodeId, RuntimeCommand)>);

    /// Events up to this number are durable.
    fn events_recorded(&mut self, last: u64);

    /// The journal cannot be written, with the error, or can be written again.
    fn journal_unavailable(&mut self, _error: Option<&str>) {}
}

/// Configuration of a driver.
#[derive(Debug, Clone)]
pub struct DriverConfig {
    /// Folder of the journal.
    pub dir: PathBuf,
    /// Policy of a new journal; an existing one has its own.
    pub policy: PolicyText,
    /// Clock of a new journal; an existing one has its own.
    pub clock: Clock,
    /// Number of records after which a snapshot is taken.
    pub snapshot_every: u64,
    /// What the runtime can do.
    pub runtime: Capabilities,
}

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
}

/// Whether the facts of a request were recorded.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// They are durable.
    Durable,
    /// They were not recorded and have no effect, with the reason.
    NotRecorded(String),
}

/// A request to the driver.
pub(crate) trait Request: Send {
    /// Executes the request. Returns the function that answers it, once it is known whether its facts are durable.
    fn run(self: Box<Self>, transaction: &mut Transaction<'_>) -> Box<dyn FnOnce(Outcome) + Send>;
    /// Answers that the request is not executed because the journal cannot be written.
    fn refuse(self: Box<Self>, reason: &str);
    /// Returns whether the driver ends after this request.
    fn is_shutdown(&self) -> bool;
}

impl std::fmt::Debug for dyn Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}

/// Access to the state for one request, which records facts.
#[derive(Debug)]
pub struct Transaction<'a> {
    pub(crate) state: &'a mut ClusterState,
    now: Time,
    /// Encoded records for the journal; `None` for a driver without one.
    records: Option<&'a mut Vec<Vec<u8>>>,
}

impl Transaction<'_> {
    /// Returns the current state.
    pub fn state(&self) -> &ClusterState {
        self.state
    }

    /// Records a fact and applies it.
    pub fn record(&mut self, fact: Fact) {
        // What was decided when the engine was attached comes before the fact.
        let mut entries: Vec<Entry> = self.take_decisions();
        self.state.apply(self.now, &fact);
        entries.push(Entry::Fact(fact));
        entries.extend(self.take_decisions());
        if let Some(records) = &mut self.records {
            records.extend(entries.into_iter().map(|entry| encode(self.now, entry)));
        }
    }

    fn take_decisions(&mut self) -> Vec<Entry> {
        let decisions = self.state.take_decisions().into_iter();
        decisions.map(Entry::Decision).collect()
    }
}

/// Returns a record as it is written to the journal.
fn encode(at: Time, entry: Entry) -> Vec<u8> {
    serde_json::to_vec(&Record { at, entry }).expect("facts and decisions are plain data")
}

/// Number of pending requests; more of them block the sender.
const INBOX: usize = 65_536;
/// Largest number of requests that become durable together.
const BATCH: usize = 4_096;
/// Time between two attempts to write a journal that is not available.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time the driver sleeps.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// A time in which the journal cannot be written.
#[derive(Debug)]
struct Outage {
    reason: String,
    /// Space that the failed write needed.
    bytes: usize,
    next_check: Instant,
}

/// The driver of a live cluster.
#[derive(Debug)]
pub struct Driver {
    state: Arc<RwLock<ClusterState>>,
    /// The journal and its configuration; `None` where the state is kept elsewhere, such as in Kubernetes.
    journal: Option<(Journal, DriverConfig)>,
    inbox: Receiver<Box<dyn Request>>,
    since_snapshot: u64,
    outage: Option<Outage>,
}

impl Driver {
    /// Opens the journal and restores the state.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn open(config: &DriverConfig) -> Result<(Self, Handle, Recovery), DriverError> {
        let (mut journal, recovered) = Journal::open(&config.dir)?;
        let is_new = recovered.snapshot.is_none() && recovered.records.is_empty();
        let Replayed { state, is_old } = replay(config, &recovered)?;
        if is_new {
            let began = Fact::Began {
                policy: config.policy.clone(),
                clock: config.clock,
                release: env!("CARGO_PKG_VERSION").to_owned(),
            };
            journal.append(&encode(now(), Entry::Fact(began)))?;
            journal.commit()?;
        }
        if is_old {
            // Its records have no decisions. From here on they do.
            journal.snapshot(&state.save().map_err(DriverError::Save)?)?;
        }
        let recovery = Recovery {
            records: recovered.records.len() as u64,
            snapshot: recovered.snapshot.is_some(),
            repairs: recovered.repairs,
            policy: state.policy().clone(),
            clock: state.engine().clock(),
        };
        let (mut driver, handle) = Self::new(state, Some((journal, config.clone())));
        driver.since_snapshot = if is_old { 0 } else { recovery.records };
        Ok((driver, handle, recovery))
    }

    /// Creates a driver without a journal, whose state is lost when it ends.
    ///
    /// # Errors
    /// If the policy cannot be built.
    pub fn without_journal(
        policy: PolicyText,
        clock: Clock,
        runtime: Capabilities,
    ) -> Result<(Self, Handle), DriverError> {
        Ok(Self::new(ClusterState::new(policy, clock)?.on(runtime)?, None))
    }

    fn new(state: ClusterState, journal: Option<(Journal, DriverConfig)>) -> (Self, Handle) {
        let (sender, inbox): (SyncSender<Box<dyn Request>>, _) = sync_channel(INBOX);
        let state = Arc::new(RwLock::new(state));
        let handle = Handle::new(sender, Arc::clone(&state));
        let driver = Self {
            state,
            journal,
            inbox,
            since_snapshot: 0,
            outage: None,
        };
        (driver, handle)
    }

    /// Runs the driver in a new thread until [`Handle::shut_down`], or until all handles are dropped.
    pub fn spawn(self, backend: impl Backend) -> JoinHandle<()> {
        std::thread::spawn(move || self.run(backend))
    }

    /// Runs the driver until [`Handle::shut_down`], or until all handles are dropped.
    pub fn run(mut self, mut backend: impl Backend) {
        let mut last_event = 0;
        // The engine may be new: it has not decided anything, nor asked to be woken.
        self.process(Vec::new(), vec![Fact::Woke], &mut last_event, &mut backend);
        loop {
            let mut batch = Vec::new();
            match self.inbox.recv_timeout(self.until_due()) {
                Ok(request) => batch.push(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            batch.extend(self.inbox.try_iter().take(BATCH));
            let is_shutdown = batch.iter().any(|request| request.is_shutdown());
            if let Some(reason) = self.check_outage(&mut backend) {
                batch.into_iter().for_each(|request| request.refuse(&reason));
            } else {
                self.process(batch, Vec::new(), &mut last_event, &mut backend);
            }
            let is_snapshot_due = match &self.journal {
                Some((_, config)) => self.since_snapshot >= config.snapshot_every.max(1),
                None => false,
            };
            if self.outage.is_none() && (is_shutdown || is_snapshot_due) {
                self.snapshot(&mut backend);
            }
            if is_shutdown {
                break;
            }
        }
    }

    /// Executes a batch of requests, records these facts and everything that is due, and answers the requests.
    fn process(
        &mut self,
        batch: Vec<Box<dyn Request>>,
        facts: Vec<Fact>,
        last_event: &mut u64,
        backend: &mut impl Backend,
    ) {
        let mut records = Vec::new();
        let (answers, commands, events) = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            let now = now().max(state.now());
            let mut transaction = Transaction {
                state: &mut state,
                now,
                records: self.journal.is_some().then_some(&mut records),
            };
            let run = |request: Box<dyn Request>| request.run(&mut transaction);
            let answers: Vec<_> = batch.into_iter().map(run).collect();
            for fact in facts.into_iter().chain(transaction.state.due(now)) {
                transaction.record(fact);
            }
            (answers, state.take_commands(), state.last_event())
        };
        if let Err(error) = self.write(&records) {
            let reason = error.to_string();
            self.begin_outage(&reason, &records, backend);
            for answer in answers {
                answer(Outcome::NotRecorded(reason.clone()));
            }
            return;
        }
        answers.into_iter().for_each(|answer| answer(Outcome::Durable));
        if !commands.is_empty() {
            backend.dispatch(commands);
        }
        if events != *last_event {
            *last_event = events;
            backend.events_recorded(events);
        }
        self.since_snapshot += records.len() as u64;
    }

    /// Returns the time until something is due.
    fn until_due(&self) -> Duration {
        if let Some(outage) = &self.outage {
            return outage.next_check.saturating_duration_since(Instant::now());
        }
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = state.wake_at() else {
            return MAX_SLEEP;
        };
        let left = at.since(now());
        Duration::from_micros(left.0.max(0).unsigned_abs()).min(MAX_SLEEP)
    }

    /// Makes records durable: all of them, or none.
    fn write(&mut self, records: &[Vec<u8>]) -> Result<(), JournalError> {
        let Some((journal, _)) = &mut self.journal else {
            return Ok(());
        };
        for record in records {
            if let Err(error) = journal.append(record) {
                journal.discard()?;
                return Err(error);
            }
        }
        journal.commit()
    }

    /// Restores the state without the records that could not be written, and refuses requests from now on.
    fn begin_outage(&mut self, reason: &str, records: &[Vec<u8>], backend: &mut impl Backend) {
        backend.journal_unavailable(Some(reason));
        // Until the records are gone from the disk, the requests must not be answered: a restart could still find them.
        while let Err(error) = self.roll_back() {
            backend.journal_unavailable(Some(&format!("{reason}; cannot roll back: {error}")));
            std::thread::sleep(RETRY_INTERVAL);
        }
        self.outage = Some(Outage {
            reason: reason.to_owned(),
            bytes: records.iter().map(Vec::len).sum(),
            next_check: Instant::now() + RETRY_INTERVAL,
        });
    }

    /// Removes uncommitted records from the disk, and restores the state from the journal.
    fn roll_back(&mut self) -> Result<(), DriverError> {
        let Some((journal, config)) = &mut self.journal else {
            return Ok(());
        };
        journal.discard()?;
        let restored = replay(config, &journal.read()?)?.state;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let discarded = std::mem::replace(&mut *state, restored);
        state.adopt_older_events(discarded);
        Ok(())
    }

    /// Ends an outage if the journal can be written again. Returns the reason of one that continues.
    fn check_outage(&mut self, backend: &mut impl Backend) -> Option<String> {
        let outage = self.outage.as_mut()?;
        let (journal, _) = self.journal.as_mut()?;
        if Instant::now() < outage.next_check {
            return Some(outage.reason.clone());
        }
        match journal.check_writable(outage.bytes) {
            Ok(()) => {
                self.outage = None;
                backend.journal_unavailable(None);
                None
            }
            Err(error) => {
                outage.reason = error.to_string();
                outage.next_check = Instant::now() + RETRY_INTERVAL;
                Some(outage.reason.clone())
            }
        }
    }

    fn snapshot(&mut self, backend: &mut impl Backend) {
        let Some((journal, _)) = &mut self.journal else {
            return;
        };
        let saved = self.state.read().unwrap_or_else(PoisonError::into_inner).save();
        let written = match saved {
            Ok(bytes) => journal.snapshot(&bytes).map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        // Without a snapshot only the next start takes longer.
        if let Err(error) = written {
            backend.journal_unavailable(Some(&format!("cannot write a snapshot: {error}")));
        }
        self.since_snapshot = 0;
    }
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

/// Returns the time in microseconds since 1970.
fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
