//! Processes of the machine, read from `/proc`.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) parent: u32,
    pub(crate) start_ticks: u64,
}

/// Reads the status of a process; `None` if it does not exist.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses a line of `stat`. The program name may contain blanks and brackets, so fields are counted from the last bracket.
fn parse(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
    })
}

/// Returns all processes of the machine.
fn all() -> Vec<u32> {
    numbers("/proc")
}

/// Returns the entries of a folder whose names are numbers.
fn numbers(folder: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// Returns the threads of a process.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// Returns the running processes that a process started, directly or indirectly.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    let processes: Vec<(u32, u32)> = all()
        .into_iter()
        .filter_map(|pid| Some((pid, stat(pid)?.parent)))
        .collect();
    let mut found = vec![of];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(
            processes
                .iter()
                .filter(|(_, p)| *p == parent)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found.split_off(1)
}

/// Returns the running processes of a task whose shim is gone: those with its folder in their environment.
pub(crate) fn leftovers(task: &Path) -> Vec<u32> {
    let mark = format!("DOVETAIL_TASK_DIR={}", task.display());
    let belongs = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|word| word == mark.as_bytes())
    };
    all().into_iter().filter(belongs).collect()
}

/// Sends a signal to a process, or to its process group if the number is negative. A process that has ended is ignored.
///
/// The numbers from -1 to 1 stand for the caller's group, all processes and init, and are ignored as well.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if !(-1..=1).contains(&pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_the_last_bracket() {
        let line = "42 (a) b) R (x) S 7 42 41 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 9876 0 0";
        let found = parse(line).unwrap();
        assert_eq!((found.parent, found.start_ticks), (7, 9876));
        for line in ["", "42 (x", "42 (x) S", "42 (x) S a b c d"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_child_is_a_descendant_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let me = std::process::id();
        assert!(descendants(me).contains(&child.id()));
        assert_eq!(stat(child.id()).unwrap().parent, me);
        signal(i32::try_from(child.id()).unwrap(), Signal::SIGKILL);
        child.wait().unwrap();
        assert_eq!(stat(child.id()), None);
    }

    #[test]
    fn processes_are_found_by_the_folder_of_their_task() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("sleep");
        let mut child = command
            .arg("600")
            .env("DOVETAIL_TASK_DIR", dir.path())
            .spawn()
            .unwrap();
        let found = loop {
            // Between fork and exec the child has the environment of its parent.
            let found = leftovers(dir.path());
            if !found.is_empty() {
                break found;
            }
        };
        assert_eq!(found, [child.id()]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(leftovers(dir.path()).is_empty());
    }
}
