//! The driver thread, which owns the cluster state. Facts of all pending requests become durable with one write to the
//! journal; only then are the requests answered and commands sent to agents. If the write fails, the state is restored
//! from the journal and all these requests are refused.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dovetail_engine::{Capabilities, Clock, Runtime};
use dovetail_history::Readers;
use dovetail_journal::{Journal, JournalError};
use dovetail_model::Time;
use tokio::sync::watch;

use crate::archiver::{Archiver, EndedJobLimits, OpenArchive};
use crate::fact::{Entry, Fact, PolicyText, Record};
use crate::handle::{Handle, Refusal, Watches};
use crate::recovery::{DriverError, Recovery, Replayed, replay};
use crate::runtime::NodeCommand;
use crate::state::ClusterState;

/// Configuration of a driver.
#[derive(Debug, Clone)]
pub struct DriverConfig {
    /// Folder of the journal.
    pub dir: PathBuf,
    /// Policy of a new journal; an existing one has its own.
    pub policy: PolicyText,
    /// Clock of a new journal; an existing one has its own.
    pub clock: Clock,
    /// Number of records after which a snapshot is taken; more if the state has many jobs.
    pub snapshot_every: u64,
    /// What the runtime can do.
    pub runtime: Capabilities,
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
    /// Number of ended jobs that the history may not have while jobs are submitted.
    max_unwritten: usize,
    /// Encoded records for the journal; `None` for a driver without one.
    records: Option<&'a mut Vec<Vec<u8>>>,
}

impl Transaction<'_> {
    /// Returns the current state.
    pub fn state(&self) -> &ClusterState {
        self.state
    }

    /// Checks that the history is not too far behind for further jobs.
    pub(crate) fn check_history(&self) -> Result<(), Refusal> {
        let (jobs, limit) = (self.state.unwritten_count(), self.max_unwritten);
        match jobs > limit {
            true => Err(Refusal::HistoryBehind { jobs, limit }),
            false => Ok(()),
        }
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
    /// Number of the last durable event.
    last_event: watch::Sender<u64>,
    /// Why the journal cannot be written.
    journal_error: watch::Sender<Option<String>>,
    /// The history database, if there is a journal.
    archive: Option<Archive>,
}

/// The history database of a driver.
#[derive(Debug)]
struct Archive {
    archiver: Archiver,
    limits: EndedJobLimits,
    /// Number of ended jobs in memory at which a snapshot is written without waiting for more records.
    snapshot_at: usize,
}

/// Number of ended jobs in memory, beyond those that stay, at which a snapshot is written without waiting for more records.
const DEPARTURES: usize = 20_000;
/// Number of records after a snapshot for each job in it, before the next one is written.
const RECORDS_PER_JOB: u64 = 2;
/// Longest time for which a shutdown waits for the history database.
const ARCHIVE_PATIENCE: Duration = Duration::from_secs(5);

impl Driver {
    /// Opens the journal and the history database beside it, and restores the state.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn open(config: &DriverConfig) -> Result<(Self, Handle, Recovery), DriverError> {
        Self::open_with(config, EndedJobLimits::default())
    }

    /// Like [`Driver::open`], with the numbers of ended jobs in memory.
    ///
    /// # Errors
    /// If the journal or the history database cannot be read.
    pub fn open_with(
        config: &DriverConfig,
        limits: EndedJobLimits,
    ) -> Result<(Self, Handle, Recovery), DriverError> {
        let (mut journal, recovered) = Journal::open(&config.dir)?;
        let is_new = recovered.snapshot.is_none() && recovered.records.is_empty();
        let Replayed { mut state, is_old } = replay(config, &recovered)?;
        let archive = OpenArchive::open(&config.dir, &mut state)?;
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
            imported: archive.imported,
            removed: archive.removed,
        };
        let readers = archive.readers.clone();
        let (mut driver, handle) = Self::new(state, Some((journal, config.clone())), Some(readers));
        driver.archive = Some(Archive {
            archiver: Archiver::new(archive, Arc::clone(&driver.state)),
            limits,
            snapshot_at: limits.recent + DEPARTURES,
        });
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
        let state = ClusterState::new(policy, clock)?.on(runtime)?;
        Ok(Self::new(state, None, None))
    }

    fn new(
        state: ClusterState,
        journal: Option<(Journal, DriverConfig)>,
        history: Option<Readers>,
    ) -> (Self, Handle) {
        let (sender, inbox): (SyncSender<Box<dyn Request>>, _) = sync_channel(INBOX);
        let state = Arc::new(RwLock::new(state));
        let (last_event, journal_error) = (watch::Sender::new(0), watch::Sender::new(None));
        let watches = Watches {
            last_event: last_event.subscribe(),
            journal_error: journal_error.subscribe(),
        };
        let handle = Handle::new(sender, Arc::clone(&state), history, watches);
        let driver = Self {
            state,
            journal,
            inbox,
            since_snapshot: 0,
            outage: None,
            last_event,
            journal_error,
            archive: None,
        };
        (driver, handle)
    }

    /// Runs the driver in a new thread until [`Handle::shut_down`], or until all handles are dropped.
    pub fn spawn(self, runtime: impl Runtime<Command = NodeCommand> + Send + 'static) -> JoinHandle<()> {
        std::thread::spawn(move || self.run(runtime))
    }

    /// Runs the driver until [`Handle::shut_down`], or until all handles are dropped.
    pub fn run(mut self, mut runtime: impl Runtime<Command = NodeCommand>) {
        if let Some(archive) = &mut self.archive {
            archive.archiver.start();
        }
        // The engine may be new: it has not decided anything, nor asked to be woken.
        self.process(Vec::new(), vec![Fact::Woke], &mut runtime);
        loop {
            let mut batch = Vec::new();
            match self.inbox.recv_timeout(self.until_due()) {
                Ok(request) => batch.push(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            batch.extend(self.inbox.try_iter().take(BATCH));
            let is_shutdown = batch.iter().any(|request| request.is_shutdown());
            if let Some(reason) = self.check_outage() {
                batch.into_iter().for_each(|request| request.refuse(&reason));
            } else {
                self.process(batch, Vec::new(), &mut runtime);
            }
            if is_shutdown && let Some(archive) = &self.archive {
                archive.archiver.wait(ARCHIVE_PATIENCE);
            }
            if self.outage.is_none() && (is_shutdown || self.is_snapshot_due()) {
                self.snapshot();
            }
            if is_shutdown {
                break;
            }
        }
    }

    fn is_snapshot_due(&self) -> bool {
        let Some((_, config)) = &self.journal else {
            return false;
        };
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let departing = state.ended_count().saturating_sub(state.unwritten_count());
        // A snapshot has all jobs, so the more there are, the more records have to come first.
        let least = config
            .snapshot_every
            .max(RECORDS_PER_JOB * state.job_count() as u64);
        self.since_snapshot >= least.max(1)
            || self
                .archive
                .as_ref()
                .is_some_and(|archive| departing >= archive.snapshot_at)
    }

    /// Executes a batch of requests, records these facts and everything that is due, and answers the requests.
    fn process(
        &mut self,
        batch: Vec<Box<dyn Request>>,
        facts: Vec<Fact>,
        runtime: &mut impl Runtime<Command = NodeCommand>,
    ) {
        let mut records = Vec::new();
        let (answers, commands, change, events) = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(archive) = &self.archive {
                archive.archiver.acknowledge(&mut state);
            }
            let now = now().max(state.now());
            let mut transaction = Transaction {
                state: &mut state,
                now,
                max_unwritten: self.archive.as_ref().map_or(usize::MAX, |a| a.limits.unwritten),
                records: self.journal.is_some().then_some(&mut records),
            };
            let run = |request: Box<dyn Request>| request.run(&mut transaction);
            let answers: Vec<_> = batch.into_iter().map(run).collect();
            for fact in facts.into_iter().chain(transaction.state.due(now)) {
                transaction.record(fact);
            }
            let commands = state.take_commands();
            (answers, commands, state.last_change(), state.last_event())
        };
        if let Err(error) = self.write(&records) {
            let reason = error.to_string();
            self.begin_outage(&reason, &records);
            for answer in answers {
                answer(Outcome::NotRecorded(reason.clone()));
            }
            return;
        }
        if let Some(archive) = &self.archive {
            archive.archiver.write_up_to(change, events);
        }
        answers.into_iter().for_each(|answer| answer(Outcome::Durable));
        if !commands.is_empty() {
            runtime.execute(&mut commands.into_iter());
        }
        self.last_event
            .send_if_modified(|last| std::mem::replace(last, events) != events);
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
    fn begin_outage(&mut self, reason: &str, records: &[Vec<u8>]) {
        self.report_journal(Some(reason.to_owned()));
        // Until the records are gone from the disk, the requests must not be answered: a restart could still find them.
        while let Err(error) = self.roll_back() {
            self.report_journal(Some(format!("{reason}; cannot roll back: {error}")));
            std::thread::sleep(RETRY_INTERVAL);
        }
        self.outage = Some(Outage {
            reason: reason.to_owned(),
            bytes: records.iter().map(Vec::len).sum(),
            next_check: Instant::now() + RETRY_INTERVAL,
        });
    }

    /// Makes known that the journal cannot be written, or that it can be written again.
    fn report_journal(&self, error: Option<String>) {
        match &error {
            Some(error) => tracing::error!(error, "cannot write the journal"),
            None => tracing::info!("the journal can be written again"),
        }
        self.journal_error.send_replace(error);
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
        state.replace(discarded);
        if let Some(archive) = &self.archive {
            archive
                .archiver
                .write_up_to(state.last_change(), state.last_event());
        }
        Ok(())
    }

    /// Ends an outage if the journal can be written again. Returns the reason of one that continues.
    fn check_outage(&mut self) -> Option<String> {
        let outage = self.outage.as_mut()?;
        let (journal, _) = self.journal.as_mut()?;
        if Instant::now() < outage.next_check {
            return Some(outage.reason.clone());
        }
        match journal.check_writable(outage.bytes) {
            Ok(()) => {
                self.outage = None;
                self.report_journal(None);
                None
            }
            Err(error) => {
                outage.reason = error.to_string();
                outage.next_check = Instant::now() + RETRY_INTERVAL;
                Some(outage.reason.clone())
            }
        }
    }

    /// Writes a snapshot, without the ended jobs that can leave memory.
    fn snapshot(&mut self) {
        let Some((journal, _)) = &mut self.journal else {
            return;
        };
        let (departed, saved) = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            let departed = match &self.archive {
                Some(archive) => {
                    archive.archiver.acknowledge(&mut state);
                    state.depart(archive.limits.recent)
                }
                None => Vec::new(),
            };
            (departed, state.save())
        };
        let written = match saved {
            Ok(bytes) => journal.snapshot(&bytes).map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let is_written = written.is_ok();
        // Without a snapshot only the next start takes longer.
        if let Err(error) = written {
            state.readmit(departed);
            self.report_journal(Some(format!("cannot write a snapshot: {error}")));
        }
        if let Some(archive) = &mut self.archive {
            let ended = state.ended_count().max(archive.limits.recent);
            // One that failed is not tried again soon.
            let departures = DEPARTURES.max(state.job_count());
            archive.snapshot_at = if is_written { ended } else { 2 * ended } + departures;
        }
        self.since_snapshot = 0;
    }
}

/// Returns the time in microseconds since 1970.
fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
