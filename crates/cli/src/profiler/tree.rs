//! A command and everything it started.

use std::process::Child;
use std::time::{Duration, Instant};

/// How long a command may take to end when asked.
const GRACE: Duration = Duration::from_secs(2);

/// The process, its children, theirs, and so on.
fn family(root: u32) -> Vec<u32> {
    let mut family = vec![root];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        next += 1;
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            family.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    family
}

/// The most memory that these processes had, all together, in GB.
pub(super) fn memory_gb(root: u32) -> f64 {
    let peak_kb = |pid: u32| -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let all: f64 = family(root).into_iter().filter_map(peak_kb).sum();
    all / (1024.0 * 1024.0)
}

/// Asks all of them to end, and ends those that do not.
pub(super) fn end(child: &mut Child) {
    let members = family(child.id());
    signal(&members, Signal::Ask);
    let asked = Instant::now();
    while asked.elapsed() < GRACE {
        if !matches!(child.try_wait(), Ok(None)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Whoever has not gone now is made to; a number that was given to another process since has other parents.
    let left: Vec<u32> = family(child.id());
    signal(&left, Signal::Force);
    let _ = child.kill();
    let _ = child.wait();
}

enum Signal {
    Ask,
    Force,
}

#[cfg(target_os = "linux")]
fn signal(pids: &[u32], signal: Signal) {
    use rustix::process::{Pid, Signal as Number, kill_process};
    let number = match signal {
        Signal::Ask => Number::TERM,
        Signal::Force => Number::KILL,
    };
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid as i32)) {
        // It may have ended by itself meanwhile.
        let _ = kill_process(pid, number);
    }
}

#[cfg(not(target_os = "linux"))]
fn signal(_: &[u32], _: Signal) {}
