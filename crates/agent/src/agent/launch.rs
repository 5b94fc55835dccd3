//! Starting a task and watching it until it ends.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::UnboundedSender;

use crate::agent::task::{TaskEvent, TaskOutcome};
use crate::error::{AgentError, IoResultExt};
use crate::files;
use crate::process;
use crate::store::attempts::StartedAttempts;
use crate::task::cgroup::Cgroups;
use crate::task::folder::TaskFolder;
use crate::task::log;
use crate::task::record::{Account, TaskExit, TaskId, TaskSpec};

/// Length of the log's end that is reported with the end of a task.
const LOG_TAIL_BYTES: usize = 4096;

/// Interval at which an adopted shim is checked.
const ADOPTED_INTERVAL: Duration = Duration::from_millis(100);

/// Everything that is needed to start a task.
pub(super) struct LaunchPlan {
    pub(super) folder: TaskFolder,
    pub(super) spec: TaskSpec,
    pub(super) hostfile: String,
    pub(super) cgroups: Option<Cgroups>,
    pub(super) attempts: Arc<Mutex<StartedAttempts>>,
}

type Events = UnboundedSender<(TaskId, TaskEvent)>;

/// Starts a task and watches it until it ends.
pub(super) async fn launch(plan: LaunchPlan, events: Events) {
    let id = plan.spec.id;
    let folder = plan.folder.clone();
    let shim = plan.spec.shim.clone();
    let prepared = blocking(move || prepare(plan)).await;
    let started = prepared.and_then(|lock| spawn(&folder, &shim, lock));
    match started {
        Ok(child) => {
            watch(id, child, &folder, &events).await;
            send_end(id, folder, events).await;
        }
        Err(e) => {
            let outcome = TaskOutcome::lost(format!("cannot start the task: {e}"));
            // If this fails as well, the next agent finds a task without an end and reports that.
            let _ = folder.write_exit(&outcome.exit);
            let _ = events.send((id, TaskEvent::Ended(Box::new(outcome))));
        }
    }
}

/// Reads what a shim prints until it ends. A shim that fails to start the task prints nothing.
async fn watch(id: TaskId, mut child: Child, folder: &TaskFolder, events: &Events) {
    if let Some(output) = child.stdout.take() {
        let mut lines = BufReader::new(output).lines();
        let mut sent = 0;
        while let Ok(Some(line)) = lines.next_line().await {
            match line.as_str() {
                "started" => drop(events.send((id, TaskEvent::Started))),
                _ => send_instance_exits(id, folder, &mut sent, events),
            }
        }
        send_instance_exits(id, folder, &mut sent, events);
    }
    let _ = child.wait().await;
}

/// Watches a task that an earlier agent started until it ends.
pub(super) async fn adopt(id: TaskId, folder: TaskFolder, mut is_started: bool, events: Events) {
    let mut sent = 0;
    while folder.has_shim() {
        send_instance_exits(id, &folder, &mut sent, &events);
        if !is_started && matches!(folder.shim(), Ok(Some(_))) {
            is_started = true;
            let _ = events.send((id, TaskEvent::Started));
        }
        tokio::time::sleep(ADOPTED_INTERVAL).await;
    }
    send_instance_exits(id, &folder, &mut sent, &events);
    send_end(id, folder, events).await;
}

/// Sends the exits of instances after the first `sent` ones.
fn send_instance_exits(id: TaskId, folder: &TaskFolder, sent: &mut usize, events: &Events) {
    for exit in folder.instance_exits().into_iter().skip(*sent) {
        *sent += 1;
        let _ = events.send((id, TaskEvent::InstanceEnded(exit)));
    }
}

async fn send_end(id: TaskId, folder: TaskFolder, events: Events) {
    let outcome = blocking(move || Ok(settle(&folder))).await;
    let outcome = outcome.unwrap_or_else(|e| TaskOutcome::lost(e.to_string()));
    let _ = events.send((id, TaskEvent::Ended(Box::new(outcome))));
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AgentError> + Send + 'static,
) -> Result<T, AgentError> {
    tokio::task::spawn_blocking(work).await?
}

/// Writes the files of a task and returns the lock for its shim. The attempt is recorded after all other files, because an
/// attempt that is not recorded was not started.
fn prepare(mut plan: LaunchPlan) -> Result<File, AgentError> {
    let folder = &plan.folder;
    let spec = &mut plan.spec;
    files::make_dir(folder.path())?;
    make_dir_for(&folder.reports(), spec.account.as_ref())?;
    if spec.workdir == folder.work() {
        make_dir_for(&spec.workdir, spec.account.as_ref())?;
    }
    files::write_public(&folder.hostfile(), plan.hostfile.as_bytes())?;
    if let Some(groups) = &plan.cgroups {
        match groups.create(spec.id, &spec.cpus, spec.cpu_milli, spec.memory_mib) {
            Ok(group) => spec.cgroup = Some(group),
            Err(e) => tracing::warn!(task = %spec.id, "cannot create a cgroup, binding to CPUs instead: {e}"),
        }
    }
    folder.write_spec(spec)?;
    folder.reserve()?;
    match plan.attempts.lock() {
        Ok(mut attempts) => attempts.advance(spec.id)?,
        Err(_) => return Err(AgentError::ShuttingDown),
    }
    let lock = folder.try_lock()?;
    lock.ok_or_else(|| files::damaged(folder.path(), "another process holds the lock"))
}

/// Creates a folder that the task's user may write to.
fn make_dir_for(path: &Path, account: Option<&Account>) -> Result<(), AgentError> {
    files::make_dir(path)?;
    match account {
        Some(account) => chown(path, Some(account.uid), Some(account.gid)).at(path),
        None => Ok(()),
    }
}

/// Starts a shim. It inherits the lock as its standard input, so the lock is held until the shim ends, even if the agent
/// is killed.
fn spawn(folder: &TaskFolder, shim: &[PathBuf], lock: File) -> Result<Child, AgentError> {
    let Some((program, first)) = shim.split_first() else {
        return Err(AgentError::Config {
            field: "shim",
            reason: "missing program".to_owned(),
        });
    };
    let log = folder.shim_log();
    let mut options = OpenOptions::new();
    let stderr = options
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&log)
        .at(&log)?;
    Command::new(program)
        .args(first)
        .arg(folder.path())
        .stdin(Stdio::from(lock))
        .stdout(Stdio::piped())
        .stderr(Stdio::from(stderr))
        .spawn()
        .at(program)
}

/// Returns how a task ended whose shim is gone, and kills what is left of a task without a recorded end.
pub(super) fn settle(folder: &TaskFolder) -> TaskOutcome {
    let exit = match folder.exit() {
        Ok(Some(exit)) => exit,
        other => {
            kill_leftovers(folder);
            let exit = TaskExit::lost(match other {
                Err(e) => format!("cannot read how the task ended: {e}"),
                Ok(_) if matches!(folder.shim(), Ok(None)) => {
                    "the node went down before the task was started".to_owned()
                }
                Ok(_) => "the shim of the task was killed, or the node went down".to_owned(),
            });
            if let Err(e) = folder.write_exit(&exit) {
                tracing::error!("{e}");
            }
            exit
        }
    };
    TaskOutcome {
        exit,
        checkpoint_step: folder.checkpoint_step(),
        log_tail: log::tail(folder.path(), LOG_TAIL_BYTES),
    }
}

/// Kills processes of a task that has no shim any more.
fn kill_leftovers(folder: &TaskFolder) {
    let group = folder.spec().ok().flatten().and_then(|spec| spec.cgroup);
    if let Some(group) = &group {
        group.kill();
    }
    let begun = Instant::now();
    loop {
        let left = process::leftovers(folder.path());
        if left.is_empty() || begun.elapsed() > Duration::from_secs(10) {
            break;
        }
        for pid in left {
            process::signal(pid.cast_signed(), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    if let Some(group) = group {
        group.remove();
    }
}
