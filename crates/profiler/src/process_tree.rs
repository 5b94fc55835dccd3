//! A process and all its descendants.

use std::process::Child;
use std::time::{Duration, Instant};

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// Returns the ids of a process and its descendants.
fn descendants(root: u32) -> Vec<u32> {
    let mut pids = vec![root];
    let mut next = 0;
    while let Some(parent) = pids.get(next).copied() {
        next += 1;
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            pids.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    pids
}

/// Returns the sum of the peak memory of a process and its descendants, in GB.
pub(crate) fn peak_memory_gb(root: u32) -> f64 {
    let peak_kib = |pid: u32| -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let total: f64 = descendants(root).into_iter().filter_map(peak_kib).sum();
    total / (1024.0 * 1024.0)
}

/// Terminates a process and its descendants, and kills those that do not end in time.
pub(crate) fn terminate(child: &mut Child) {
    signal(&descendants(child.id()), Signal::Terminate);
    let asked = Instant::now();
    while asked.elapsed() < GRACE {
        if !matches!(child.try_wait(), Ok(None)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Read again: a process id that was reused in the meantime is no longer a descendant.
    signal(&descendants(child.id()), Signal::Kill);
    let _ = child.kill();
    let _ = child.wait();
}

enum Signal {
    Terminate,
    Kill,
}

#[cfg(target_os = "linux")]
fn signal(pids: &[u32], signal: Signal) {
    use rustix::process::{Pid, Signal as Number, kill_process};
    let number = match signal {
        Signal::Terminate => Number::TERM,
        Signal::Kill => Number::KILL,
    };
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid as i32)) {
        // The process may have ended in the meantime.
        let _ = kill_process(pid, number);
    }
}

#[cfg(not(target_os = "linux"))]
fn signal(_: &[u32], _: Signal) {}
