//! Processes of the machine, as `/proc` shows them.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What `/proc/PID/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) parent: u32,
    pub(crate) start_ticks: u64,
}

/// The facts of a process; `None` if there is no such process.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of a program may have blanks and brackets; all else comes after the last bracket.
fn parse(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        parent: words.get(1)?.parse().ok()?,
        start_ticks: words.get(19)?.parse().ok()?,
    })
}

/// All processes there are.
fn all() -> Vec<u32> {
    numbers("/proc")
}

fn numbers(folder: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// Everything that a process started and that still lives, near or far.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    let everybody: Vec<(u32, u32)> = all()
        .into_iter()
        .filter_map(|pid| Some((pid, stat(pid)?.parent)))
        .collect();
    let mut found = vec![of];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(
            everybody
                .iter()
                .filter(|(_, p)| *p == parent)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found.split_off(1)
}

/// Processes of a task whose shim is gone: those that have its folder in their environment.
pub(crate) fn leftovers(task: &Path) -> Vec<u32> {
    let mark = format!("DOVETAIL_TASK_DIR={}", task.display());
    let belongs = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|word| word == mark.as_bytes())
    };
    all().into_iter().filter(belongs).collect()
}

/// Sends a signal to a process, or to its group if the number is negative. One that is gone needs none. The numbers that
/// stand for ourselves, for everybody and for the first process of the machine are none of our tasks.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if !(-1..=1).contains(&pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_its_last_bracket() {
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
    fn what_carries_the_mark_of_a_task_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("sleep");
        let mut child = command
            .arg("600")
            .env("DOVETAIL_TASK_DIR", dir.path())
            .spawn()
            .unwrap();
        let found = loop {
            // Between fork and exec the environment is still ours.
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
