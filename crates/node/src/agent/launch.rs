//! Starting a task, and hearing of its end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::UnboundedSender;

use crate::agent::state::{Ending, TaskEvent};
use crate::error::{At, NodeError};
use crate::files;
use crate::process;
use crate::store::generations::Generations;
use crate::task::cgroup::{self, Cgroups};
use crate::task::folder::TaskFolder;
use crate::task::log;
use crate::task::record::{Exit, Key, Spec};

/// So much of the log goes with the news of an end.
const LAST_WORDS: usize = 4096;

/// An adopted shim is looked after this often.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Everything that is needed to start a task.
pub(super) struct Launch {
    pub(super) folder: TaskFolder,
    pub(super) spec: Spec,
    pub(super) hostfile: String,
    pub(super) cgroups: Option<Cgroups>,
    pub(super) generations: Arc<Mutex<Generations>>,
}

type Events = UnboundedSender<(Key, TaskEvent)>;

/// Starts a task and stays with it to its end.
pub(super) async fn launch(launch: Launch, events: Events) {
    let key = launch.spec.key;
    let folder = launch.folder.clone();
    let shim = launch.spec.shim.clone();
    let prepared = blocking(move || prepare(launch)).await;
    let started = prepared.and_then(|lock| spawn(&folder, &shim, lock));
    match started {
        Ok(mut child) => {
            let out = child.stdout.take();
            if let Some(out) = out {
                let mut lines = BufReader::new(out).lines();
                let mut told = 0;
                // Without the first line it ended before it began, and the folder says why.
                while let Ok(Some(line)) = lines.next_line().await {
                    match line.as_str() {
                        "started" => drop(events.send((key, TaskEvent::Started))),
                        _ => tell_instances(key, &folder, &mut told, &events),
                    }
                }
                tell_instances(key, &folder, &mut told, &events);
            }
            let _ = child.wait().await;
        }
        Err(why) => {
            let exit = Exit::lost(format!("cannot be started: {why}"));
            // If this cannot be written either, the next agent finds a task without an end, and says that.
            let _ = folder.write_exit(&exit);
            let ending = Ending {
                exit,
                checkpoint_step: 0,
                last_words: String::new(),
            };
            let _ = events.send((key, TaskEvent::Ended(Box::new(ending))));
            return;
        }
    }
    tell_end(key, folder, events).await;
}

/// Stays with a task that another agent started.
pub(super) async fn adopt(key: Key, folder: TaskFolder, mut is_started: bool, events: Events) {
    let mut told = 0;
    while folder.is_held() {
        tell_instances(key, &folder, &mut told, &events);
        if !is_started && matches!(folder.running(), Ok(Some(_))) {
            is_started = true;
            let _ = events.send((key, TaskEvent::Started));
        }
        tokio::time::sleep(LOOK_AFTER).await;
    }
    tell_instances(key, &folder, &mut told, &events);
    tell_end(key, folder, events).await;
}

/// Tells of instances that have ended since the last look.
fn tell_instances(key: Key, folder: &TaskFolder, told: &mut usize, events: &Events) {
    for end in folder.ends().into_iter().skip(*told) {
        *told += 1;
        let _ = events.send((key, TaskEvent::InstanceEnded(end)));
    }
}

async fn tell_end(key: Key, folder: TaskFolder, events: Events) {
    let ending = blocking(move || Ok(settle(&folder))).await;
    let ending = ending.unwrap_or_else(|why| Ending {
        exit: Exit::lost(why.to_string()),
        checkpoint_step: 0,
        last_words: String::new(),
    });
    let _ = events.send((key, TaskEvent::Ended(Box::new(ending))));
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NodeError> + Send + 'static,
) -> Result<T, NodeError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(NodeError::Unreachable(format!("interrupted: {e}"))))
}

/// Writes everything down, the generation last but for the lock: a start that is not in the file was not made.
fn prepare(mut launch: Launch) -> Result<File, NodeError> {
    let folder = &launch.folder;
    let spec = &mut launch.spec;
    files::make_dir(folder.path())?;
    let reports = folder.reports();
    files::make_dir(&reports)?;
    if let Some(account) = &spec.account {
        chown(&reports, Some(account.uid), Some(account.gid)).at(&reports)?;
    }
    if spec.workdir == folder.work() {
        files::make_dir(&spec.workdir)?;
        if let Some(account) = &spec.account {
            chown(&spec.workdir, Some(account.uid), Some(account.gid)).at(&spec.workdir)?;
        }
    }
    files::write_public(&folder.hostfile(), launch.hostfile.as_bytes())?;
    if let Some(groups) = &launch.cgroups {
        match groups.make(spec.key, &spec.cpus, spec.cpu_milli, spec.memory_mib) {
            Ok(group) => spec.cgroup = Some(group),
            Err(why) => tracing::warn!(task = %spec.key, "no cgroup, bound to CPUs: {why}"),
        }
    }
    folder.write_spec(spec)?;
    folder.reserve()?;
    match launch.generations.lock() {
        Ok(mut generations) => generations.advance(spec.key)?,
        Err(_) => return Err(NodeError::Unreachable("the agent is going down".to_owned())),
    }
    let lock = folder.try_lock()?;
    lock.ok_or_else(|| files::damaged(folder.path(), "another process holds it"))
}

/// The shim inherits the lock as its standard input: from this call on it is held as long as the shim lives, whatever
/// becomes of us.
fn spawn(folder: &TaskFolder, shim: &[PathBuf], lock: File) -> Result<Child, NodeError> {
    let Some((program, first)) = shim.split_first() else {
        return Err(NodeError::Setting {
            field: "shim",
            why: "no program to start it with".to_owned(),
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

/// How a task ended whose shim is gone.
pub(super) fn settle(folder: &TaskFolder) -> Ending {
    let exit = match folder.exit() {
        Ok(Some(exit)) => exit,
        other => {
            end_leftovers(folder);
            let exit = Exit::lost(match other {
                Err(e) => format!("how it ended is not known: {e}"),
                Ok(_) if matches!(folder.running(), Ok(None)) => {
                    "it was never started: the node went down first".to_owned()
                }
                Ok(_) => "the process that held it is gone: it was killed, or the node went down".to_owned(),
            });
            if let Err(e) = folder.write_exit(&exit) {
                tracing::error!("{e}");
            }
            exit
        }
    };
    Ending {
        exit,
        checkpoint_step: folder.checkpoint_step(),
        last_words: log::tail(folder.path(), LAST_WORDS),
    }
}

/// Ends processes that nobody holds any more.
fn end_leftovers(folder: &TaskFolder) {
    let group = folder.spec().ok().flatten().and_then(|spec| spec.cgroup);
    if let Some(group) = group {
        cgroup::end(&group);
    }
    let begun = Instant::now();
    loop {
        let left = process::leftovers(folder.path());
        if left.is_empty() || begun.elapsed() > Duration::from_secs(10) {
            return;
        }
        for pid in left {
            process::signal(pid.cast_signed(), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
