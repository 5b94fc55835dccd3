//! Starts a shim: its own session, the processes of the task, and the thread that writes their log.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, wait};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::process;
use crate::shim::error::ShimError;
use crate::shim::monitor::{ShimEvent, TaskMonitor};
use crate::task::folder::TaskFolder;
use crate::task::log::LogWriter;
use crate::task::record::{ShimRecord, TaskSpec};

/// Maximum length of a tagged line. A pipe transfers up to 4096 bytes in one piece.
const MAX_LINE_BYTES: u64 = 4000;

/// Starts the processes of a task.
pub(super) fn start(folder: &TaskFolder) -> Result<TaskMonitor, ShimError> {
    let spec = folder.spec()?;
    let spec = spec.ok_or_else(|| ShimError::NoSpec(folder.path().to_owned()))?;
    // Fails in a shim that a person started in a shell, which is a group leader already.
    let _ = nix::unistd::setsid();
    // Processes that the task leaves behind become children of the shim, which kills them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(ShimError::Subreaper)?;
    let (sender, events) = mpsc::channel();
    handle_signals(sender.clone())?;
    let (pids, log) = spawn_all(folder, &spec)?;
    if !pids.is_empty() {
        reap(sender);
    }
    let pid = std::process::id();
    let record = ShimRecord {
        pid,
        start_ticks: process::stat(pid).map_or(0, |s| s.start_ticks),
        processes: pids.clone(),
    };
    if let Err(e) = folder.write_shim(&record) {
        for child in process::descendants(pid) {
            process::signal(child.cast_signed(), Signal::SIGKILL);
        }
        return Err(e.into());
    }
    // The agent waits for this line. An agent that was restarted reads the file instead.
    let mut out = std::io::stdout();
    let _ = out.write_all(b"started\n").and_then(|()| out.flush());
    Ok(TaskMonitor::new(folder.clone(), spec, pids, log, events))
}

/// Turns signals into events. SIGUSR1 announces a new `stop.json`.
fn handle_signals(events: Sender<ShimEvent>) -> Result<(), ShimError> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1]).map_err(ShimError::Signals)?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let event = match signal {
                SIGTERM | SIGINT => ShimEvent::Terminate,
                // The shim does not depend on a terminal.
                SIGHUP => continue,
                _ => ShimEvent::StopRequested,
            };
            if events.send(event).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Starts all processes. Returns their IDs and the thread that writes the log.
fn spawn_all(folder: &TaskFolder, spec: &TaskSpec) -> Result<(Vec<u32>, JoinHandle<()>), ShimError> {
    let (reader, log) = std::io::pipe().map_err(ShimError::Pipe)?;
    let mut pids = Vec::new();
    for (index, process) in spec.processes.iter().enumerate() {
        let spawned = match process.tag.as_str() {
            "" => log.try_clone().map_err(ShimError::Pipe),
            tag => log
                .try_clone()
                .and_then(|log| tagged(tag, log))
                .map_err(ShimError::Pipe),
        };
        match spawned.and_then(|output| spawn(folder.path(), spec, index, output)) {
            Ok(pid) => pids.push(pid),
            Err(e) => {
                for pid in pids {
                    process::signal(-pid.cast_signed(), Signal::SIGKILL);
                }
                return Err(e);
            }
        }
    }
    drop(log);
    Ok((pids, write_log(folder.path(), spec, reader)))
}

/// Starts one process in its own process group.
fn spawn(folder: &Path, spec: &TaskSpec, index: usize, output: PipeWriter) -> Result<u32, ShimError> {
    let (program, first) = spec.shim.split_first().ok_or(ShimError::NoShim)?;
    let errors = output.try_clone().map_err(ShimError::Pipe)?;
    let spawned = Command::new(program)
        .args(first)
        .args([folder.as_os_str(), index.to_string().as_ref()])
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .spawn();
    let child = spawned.map_err(|source| ShimError::Spawn {
        program: program.clone(),
        source,
    })?;
    Ok(child.id())
}

/// Writes the log in a thread until all processes have closed their output.
fn write_log(folder: &Path, spec: &TaskSpec, mut reader: PipeReader) -> JoinHandle<()> {
    let mut log = LogWriter::open(folder, spec.log_segment_bytes, spec.log_keep_bytes);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => log.write(&buffer[..count]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        log.sync();
    })
}

/// Returns a pipe whose lines are written to the log with a tag in front.
fn tagged(tag: &str, mut log: PipeWriter) -> std::io::Result<PipeWriter> {
    let (reader, writer) = std::io::pipe()?;
    let tag = format!("[{tag}] ");
    std::thread::spawn(move || {
        let mut lines = BufReader::new(reader);
        let mut line = tag.clone().into_bytes();
        loop {
            // A long line is cut, so that it appears in time and memory is limited.
            let read = lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            match read {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            // A line is written at once, so that lines of other instances do not interrupt it.
            if log.write_all(&line).is_err() {
                return;
            }
            line.truncate(tag.len());
        }
    });
    Ok(writer)
}

/// Waits for all children, including adopted ones. The last event is that there are none left.
fn reap(events: Sender<ShimEvent>) {
    std::thread::spawn(move || {
        loop {
            let event = match wait() {
                Ok(WaitStatus::Exited(pid, code)) => ShimEvent::Exited {
                    pid: pid.as_raw().cast_unsigned(),
                    code,
                    signal: 0,
                },
                Ok(WaitStatus::Signaled(pid, signal, _)) => ShimEvent::Exited {
                    pid: pid.as_raw().cast_unsigned(),
                    code: 0,
                    signal: signal as i32,
                },
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(_) => ShimEvent::NoneLeft,
            };
            if events.send(event).is_err() || event == ShimEvent::NoneLeft {
                return;
            }
        }
    });
}
