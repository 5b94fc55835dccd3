//! NVIDIA's Multi-Process Service: whether it runs, and how it is started and stopped.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The daemon, and the program that controls it.
const CONTROL: &str = "nvidia-cuda-mps-control";
/// The program that sets the compute mode of GPUs.
const SMI: &str = "nvidia-smi";
/// Bound on each program, and on the start and the end of the daemon.
const LIMIT: Duration = Duration::from_secs(20);

/// Why MPS was not started or stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MpsError {
    #[error("{program} is not installed on this node, or not in the PATH of its agent")]
    Missing { program: &'static str },
    #[error("cannot run {program}: {source}")]
    Run {
        program: &'static str,
        source: io::Error,
    },
    #[error("{program}: {reason}")]
    Failed { program: &'static str, reason: String },
    #[error("{program}: still running after {} s", LIMIT.as_secs())]
    TooSlow { program: &'static str },
    #[error("the MPS daemon {what} within {} s", LIMIT.as_secs())]
    Daemon { what: &'static str },
}

/// Returns the folder of the control daemon, if it runs.
pub(crate) fn pipe() -> Option<String> {
    let folder = folder();
    is_there(&folder).then(|| folder.display().to_string())
}

fn folder() -> PathBuf {
    std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or_else(|| "/tmp/nvidia-mps".into(), PathBuf::from)
}

fn is_there(folder: &Path) -> bool {
    folder.join("control").exists()
}

/// Starts or stops the daemon, and waits until that is done. Nothing happens if it already runs, or does not run.
///
/// # Errors
/// If a program is missing or fails. After a failed start the GPUs have their default mode again.
pub(crate) fn switch(is_on: bool) -> Result<(), MpsError> {
    let folder = folder();
    match is_on {
        true => start(&folder),
        false => stop(&folder),
    }
}

fn start(folder: &Path) -> Result<(), MpsError> {
    if is_there(folder) && control("get_server_list").is_ok() {
        return Ok(());
    }
    // Only the daemon may use the GPUs: a process that does not go through it fails instead of taking turns with it.
    set_compute_mode("EXCLUSIVE_PROCESS")?;
    let started = run(CONTROL, &["-d"], "").and_then(|()| wait_until(true, folder));
    if started.is_err() {
        let _ = set_compute_mode("DEFAULT");
    }
    started
}

fn stop(folder: &Path) -> Result<(), MpsError> {
    if is_there(folder) {
        control("quit")?;
        wait_until(false, folder)?;
    }
    set_compute_mode("DEFAULT")
}

fn set_compute_mode(mode: &str) -> Result<(), MpsError> {
    run(SMI, &["-c", mode], "")
}

/// Sends a command to the daemon.
fn control(command: &str) -> Result<(), MpsError> {
    run(CONTROL, &[], &format!("{command}\n"))
}

fn wait_until(is_running: bool, folder: &Path) -> Result<(), MpsError> {
    let deadline = Instant::now() + LIMIT;
    while is_there(folder) != is_running {
        if Instant::now() > deadline {
            let what = match is_running {
                true => "did not start",
                false => "did not end",
            };
            return Err(MpsError::Daemon { what });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs a program to its end. Its output goes to a file: the daemon keeps the output of the program that starts it open, so a pipe
/// would not end.
fn run(program: &'static str, args: &[&str], input: &str) -> Result<(), MpsError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => MpsError::Missing { program },
        _ => MpsError::Run { program, source },
    };
    let path = std::env::temp_dir().join(format!("dovetail-mps-{:032x}", rand::random::<u128>()));
    let result = run_into(&path, program, args, input);
    let output = fs::read_to_string(&path).unwrap_or_default();
    let _ = fs::remove_file(&path);
    match result.map_err(failed)? {
        None => Err(MpsError::TooSlow { program }),
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let last = output.lines().rev().find(|line| !line.trim().is_empty());
            let reason = last.map_or_else(|| status.to_string(), |line| line.trim().to_owned());
            Err(MpsError::Failed { program, reason })
        }
    }
}

/// Returns how the program ended; `None` if it was killed because it took too long.
fn run_into(output: &Path, program: &str, args: &[&str], input: &str) -> io::Result<Option<ExitStatus>> {
    let file = File::options().write(true).create_new(true).open(output)?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has ended already does not read it.
        let _ = stdin.write_all(input.as_bytes());
    }
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
