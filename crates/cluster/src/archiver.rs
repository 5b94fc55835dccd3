//! The thread that writes ended jobs and events to the history database.
//!
//! The driver never waits for it. The state notes what the database does not have; the thread reads that in batches, as far
//! as the journal has it, and commits each batch. A job leaves memory only after its row is committed, with the snapshot
//! that no longer has it. All writes can be repeated: after a crash at any point the next start writes again whatever the
//! snapshot and the records after it do not confirm.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dovetail_history::{EventRow, HistoryError, JobRow, Readers, Writer};

use crate::JobId;
use crate::past::{decode_record, encode_record, job_row};
use crate::recovery::DriverError;
use crate::state::{ArchiveChange, ClusterEvent, ClusterState};

/// Name of the database, in the folder of the journal.
const FILE: &str = "history.db";
/// Largest number of jobs, and of events, that are written with one commit.
const MAX_BATCH: usize = 2_000;
/// Time between two attempts to write a database that cannot be written.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// For how long the thread writes after the driver has ended.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// Time between two looks at whether everything is written.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How many ended jobs are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedJobLimits {
    /// The newest ones that stay: forecasts use the run times of that many.
    pub recent: usize,
    /// Those that the history database does not have yet; when there are more, no job can be submitted.
    pub unwritten: usize,
}

impl Default for EndedJobLimits {
    fn default() -> Self {
        Self {
            recent: 5_000,
            unwritten: 250_000,
        }
    }
}

/// A history database that is open and agrees with the journal.
#[derive(Debug)]
pub(crate) struct OpenArchive {
    writer: Writer,
    pub(crate) readers: Readers,
    /// Number of ended jobs of the journal that a new database gets.
    pub(crate) imported: u64,
    /// Number of jobs that were removed because the journal does not have them as ended.
    pub(crate) removed: u64,
}

impl OpenArchive {
    /// Opens the database in the folder of a journal, and makes it agree with the state that the journal gives.
    pub(crate) fn open(dir: &Path, state: &mut ClusterState) -> Result<Self, DriverError> {
        let path = path_in(dir);
        if state.departed_count() > 0 && !path.exists() {
            let jobs = state.departed_count();
            return Err(DriverError::HistoryMissing { path, jobs });
        }
        let (mut writer, readers, schema) = dovetail_history::open(&path)?;
        let mut unknown = writer.ids_from(state.next_job())?;
        unknown.extend(state.unfinished_jobs().map(|job| job.id));
        let removed = writer.remove(&unknown)?;
        writer.remove_events_from(state.last_event() + 1)?;
        let ended = state.jobs().filter(|job| job.state.has_ended());
        let missing = writer.missing(&ended.map(|job| job.id).collect::<Vec<JobId>>())?;
        state.note_missing(&missing);
        let imported = match schema {
            dovetail_history::Schema::Created => missing.len() as u64,
            dovetail_history::Schema::Existing => 0,
        };
        Ok(Self {
            writer,
            readers,
            imported,
            removed,
        })
    }
}

/// Numbers of changes and events, as the driver and the thread exchange them.
#[derive(Debug, Default)]
struct Progress {
    /// The journal has changes up to this number.
    durable_change: AtomicU64,
    durable_event: AtomicU64,
    /// The database has changes up to this number.
    written_change: AtomicU64,
    written_event: AtomicU64,
}

/// The driver's side of the thread.
#[derive(Debug)]
pub(crate) struct Archiver {
    progress: Arc<Progress>,
    /// Wakes the thread; it ends when this is dropped, after it has written what is durable.
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    idle: Option<Worker>,
}

impl Archiver {
    /// Creates the thread's side for a state whose changes are all durable. [`Archiver::start`] starts it.
    pub(crate) fn new(open: OpenArchive, state: Arc<RwLock<ClusterState>>) -> Self {
        let progress = {
            let state = state.read().unwrap_or_else(PoisonError::into_inner);
            Arc::new(Progress {
                durable_change: AtomicU64::new(state.last_change()),
                durable_event: AtomicU64::new(state.last_event()),
                written_change: AtomicU64::new(0),
                written_event: AtomicU64::new(state.stored_event()),
            })
        };
        let (wake, woken) = sync_channel(1);
        let worker = Worker {
            state,
            writer: open.writer,
            progress: Arc::clone(&progress),
            woken,
        };
        Self {
            progress,
            wake: Some(wake),
            thread: None,
            idle: Some(worker),
        }
    }

    /// Starts the thread.
    pub(crate) fn start(&mut self) {
        if let Some(worker) = self.idle.take() {
            self.thread = Some(std::thread::spawn(move || worker.run()));
        }
    }

    /// Notes that the journal has changes and events up to these numbers, and wakes the thread.
    pub(crate) fn write_up_to(&self, change: u64, event: u64) {
        let earlier = self.progress.durable_change.swap(change, Ordering::AcqRel);
        let earlier_event = self.progress.durable_event.swap(event, Ordering::AcqRel);
        if (earlier, earlier_event) != (change, event)
            && let Some(wake) = &self.wake
        {
            // A thread that is already woken reads the new numbers.
            let _ = wake.try_send(());
        }
    }

    /// Tells the state what the database has.
    pub(crate) fn acknowledge(&self, state: &mut ClusterState) {
        state.acknowledge(
            self.progress.written_change.load(Ordering::Acquire),
            self.progress.written_event.load(Ordering::Acquire),
        );
    }

    /// Waits until the database has everything that is durable, or the time has passed.
    pub(crate) fn wait(&self, longest: Duration) {
        let until = Instant::now() + longest;
        while !self.progress.is_complete() && Instant::now() < until {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Archiver {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // It has panicked, or written what it could; the next start writes the rest.
            let _ = thread.join();
        }
    }
}

impl Progress {
    fn is_complete(&self) -> bool {
        self.written_change.load(Ordering::Acquire) >= self.durable_change.load(Ordering::Acquire)
            && self.written_event.load(Ordering::Acquire) >= self.durable_event.load(Ordering::Acquire)
    }
}

/// The thread.
#[derive(Debug)]
struct Worker {
    state: Arc<RwLock<ClusterState>>,
    writer: Writer,
    progress: Arc<Progress>,
    woken: Receiver<()>,
}

impl Worker {
    fn run(mut self) {
        let mut is_failing = false;
        loop {
            let result = self.write_until(None);
            match &result {
                Err(error) if !is_failing => {
                    tracing::error!(
                        "cannot write the history: {error}; ended jobs stay in memory until it can be written"
                    );
                }
                Ok(()) if is_failing => tracing::info!("the history can be written again"),
                Ok(()) | Err(_) => {}
            }
            is_failing = result.is_err();
            let woken = match is_failing {
                true => self.woken.recv_timeout(RETRY_INTERVAL),
                false => self.woken.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            if woken == Err(RecvTimeoutError::Disconnected) {
                // What is not written by then is in the journal.
                let _ = self.write_until(Some(Instant::now() + LAST_WRITES));
                return;
            }
        }
    }

    /// Writes everything that is durable, one batch after the other, for as long as there is time.
    fn write_until(&mut self, deadline: Option<Instant>) -> Result<(), HistoryError> {
        while !self.progress.is_complete() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            self.write_batch()?;
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<(), HistoryError> {
        let progress = Arc::clone(&self.progress);
        let durable = progress.durable_change.load(Ordering::Acquire);
        let durable_event = progress.durable_event.load(Ordering::Acquire);
        let written = progress.written_change.load(Ordering::Acquire);
        let written_event = progress.written_event.load(Ordering::Acquire);
        let (changes, events) = {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            let events = state.events_after(written_event);
            let durable_events = events.take_while(|event| event.number <= durable_event);
            let events: Vec<ClusterEvent> = durable_events.take(MAX_BATCH).cloned().collect();
            (state.archive_changes(written, durable, MAX_BATCH), events)
        };
        let is_last = changes.len() < MAX_BATCH;
        let last = changes.last().map(|(number, _)| *number).filter(|_| !is_last);
        let last_event = events
            .last()
            .map(|event| event.number)
            .filter(|_| events.len() == MAX_BATCH);
        let rows: Vec<EventRow> = events.iter().map(event_row).collect();
        self.write(changes, &rows)?;
        progress
            .written_change
            .store(last.unwrap_or(durable), Ordering::Release);
        progress
            .written_event
            .store(last_event.unwrap_or(durable_event), Ordering::Release);
        Ok(())
    }

    /// Writes changes in their order. A label needs the record that it changes, so it is written by itself.
    fn write(&mut self, changes: Vec<(u64, ArchiveChange)>, events: &[EventRow]) -> Result<(), HistoryError> {
        let mut rows: Vec<JobRow> = Vec::new();
        for (_, change) in changes {
            match change {
                ArchiveChange::Job(job) => rows.push(job_row(&job)),
                ArchiveChange::Label { job, key, value } => {
                    self.writer.write(&std::mem::take(&mut rows), &[])?;
                    let record = self.writer.record(job)?;
                    let Some(Ok(mut record)) = record.map(|bytes| decode_record(&bytes)) else {
                        tracing::error!("cannot set a label of job {job}: its record cannot be read");
                        continue;
                    };
                    record.set_label(&key, value.as_deref());
                    rows.push(job_row(&record));
                }
            }
        }
        self.writer.write(&rows, events)
    }
}

fn event_row(event: &ClusterEvent) -> EventRow {
    EventRow {
        number: event.number,
        job: event.job,
        body: encode_record(event),
    }
}

/// Returns whether a file belongs to a history database: the database, its log and its index.
pub(crate) fn is_database_file(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(FILE)
}

/// Returns the path of the history database of a journal.
pub(crate) fn path_in(dir: &Path) -> PathBuf {
    dir.join(FILE)
}
