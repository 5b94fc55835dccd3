//! How a shim begins: a session of its own, its processes, their log.

use std::io::{BufRead, BufReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, wait};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::process;
use crate::shim::over::{Fact, Held};
use crate::task::folder::TaskFolder;
use crate::task::log::LogWriter;
use crate::task::record::{Running, Spec};

/// The longest line that is kept whole: pipes pass on as much in one piece.
const LONGEST_LINE: u64 = 4000;

/// Starts the processes of a task.
pub(super) fn start(folder: &TaskFolder) -> Result<Held, String> {
    let spec = folder.spec().map_err(|e| e.to_string())?;
    let spec = spec.ok_or_else(|| format!("{}: no spec.json", folder.path().display()))?;
    // A shim that a person started is a leader already, and stays in its session.
    let _ = nix::unistd::setsid();
    // What the task's processes leave behind becomes ours to end.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| format!("cannot take in orphans: {e}"))?;
    let (facts, heard) = mpsc::channel();
    listen(facts.clone())?;
    let (pids, log) = spawn_all(folder, &spec)?;
    if !pids.is_empty() {
        reap(facts);
    }
    let me = std::process::id();
    let running = Running {
        pid: me,
        start_ticks: process::stat(me).map_or(0, |s| s.start_ticks),
        processes: pids.clone(),
    };
    if let Err(why) = folder.write_running(&running) {
        for pid in process::descendants(me) {
            process::signal(pid.cast_signed(), Signal::SIGKILL);
        }
        return Err(why.to_string());
    }
    // The agent waits for this line. If it is gone, it reads the file later.
    let mut out = std::io::stdout();
    let _ = out.write_all(b"started\n").and_then(|()| out.flush());
    Ok(Held::new(folder.clone(), spec, pids, log, heard))
}

/// Turns signals into facts. SIGUSR1 means: look at `stop.json`.
fn listen(facts: Sender<Fact>) -> Result<(), String> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1]).map_err(|e| format!("cannot take signals: {e}"))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let fact = match signal {
                SIGTERM | SIGINT => Fact::Terminate,
                // The end of a terminal is nothing to us.
                SIGHUP => continue,
                _ => Fact::Look,
            };
            if facts.send(fact).is_err() {
                return;
            }
        }
    });
    Ok(())
}

type Started = (Vec<u32>, Option<JoinHandle<()>>);

fn spawn_all(folder: &TaskFolder, spec: &Spec) -> Result<Started, String> {
    let (program, first) = spec
        .shim
        .split_first()
        .ok_or("no program to start processes with")?;
    let no_pipe = |e: std::io::Error| format!("no pipe for the log: {e}");
    let (mut reader, shared) = std::io::pipe().map_err(no_pipe)?;
    let mut pids = Vec::new();
    for (index, process) in spec.processes.iter().enumerate() {
        let writer = match process.tag.as_str() {
            "" => shared.try_clone().map_err(no_pipe)?,
            tag => tagged(tag, shared.try_clone().map_err(no_pipe)?).map_err(no_pipe)?,
        };
        let output = || writer.try_clone().map(Stdio::from);
        let spawned = output()
            .and_then(|out| Ok((out, output()?)))
            .and_then(|(out, err)| {
                Command::new(program)
                    .args(first)
                    .args([folder.path().as_os_str(), index.to_string().as_ref()])
                    .stdin(Stdio::null())
                    .stdout(out)
                    .stderr(err)
                    .process_group(0)
                    .spawn()
            });
        match spawned {
            Ok(child) => pids.push(child.id()),
            Err(e) => {
                for pid in pids {
                    process::signal(-pid.cast_signed(), Signal::SIGKILL);
                }
                return Err(format!("cannot start {}: {e}", program.display()));
            }
        }
    }
    drop(shared);
    let path: PathBuf = folder.path().to_owned();
    let (segment, keep) = (spec.log_segment_bytes, spec.log_keep_bytes);
    let log = std::thread::spawn(move || {
        let mut log = LogWriter::open(&path, segment, keep);
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
    });
    Ok((pids, Some(log)))
}

/// A pipe whose lines go into the log with the name of their instance before them.
fn tagged(tag: &str, mut log: PipeWriter) -> std::io::Result<PipeWriter> {
    let (reader, writer) = std::io::pipe()?;
    let tag = format!("[{tag}] ");
    std::thread::spawn(move || {
        let mut lines = BufReader::new(reader);
        let mut line = tag.clone().into_bytes();
        loop {
            // A line without an end is cut, so that it is seen and does not fill the memory.
            let read = lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
            match read {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            // One write for each line: those of others do not come between.
            if log.write_all(&line).is_err() {
                return;
            }
            line.truncate(tag.len());
        }
    });
    Ok(writer)
}

/// Waits for every child, our own and those taken in. The last fact is that there is none left.
fn reap(facts: Sender<Fact>) {
    std::thread::spawn(move || {
        loop {
            let fact = match wait() {
                Ok(WaitStatus::Exited(pid, code)) => Fact::Ended(pid.as_raw().cast_unsigned(), code, 0),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    Fact::Ended(pid.as_raw().cast_unsigned(), 0, signal as i32)
                }
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(_) => Fact::NobodyLeft,
            };
            if facts.send(fact).is_err() || fact == Fact::NobodyLeft {
                return;
            }
        }
    });
}
