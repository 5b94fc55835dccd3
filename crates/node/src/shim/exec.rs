//! What a process of a task does before it becomes the user's program.

use std::ffi::{CString, OsStr};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Gid, Pid, Uid, initgroups, setgid, setuid};

use crate::task::cgroup;
use crate::task::folder::TaskFolder;
use crate::task::record::{Account, Spec};

/// As a shell says it: found but not to be run, and not found.
const CANNOT_RUN: i32 = 126;
const NOT_FOUND: i32 = 127;

/// Becomes one process of a task; returns only if that is not possible. What is wrong is in the task's log.
pub(super) fn become_process(folder: &TaskFolder, index: &OsStr) -> i32 {
    let (code, why) = attempt(folder, index);
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "dovetail: {why}");
    code
}

fn attempt(folder: &TaskFolder, index: &OsStr) -> (i32, String) {
    let spec = match folder.spec() {
        Ok(Some(spec)) => spec,
        Ok(None) => return (CANNOT_RUN, format!("{}: no spec.json", folder.path().display())),
        Err(e) => return (CANNOT_RUN, e.to_string()),
    };
    let index: Option<usize> = index.to_str().and_then(|i| i.parse().ok());
    let Some(process) = index.and_then(|i| spec.processes.get(i)) else {
        return (CANNOT_RUN, "no such process in spec.json".to_owned());
    };
    let Some((program, args)) = process.command.split_first() else {
        return (CANNOT_RUN, "no command".to_owned());
    };
    if let Err(why) = confine(&spec).and_then(|()| switch_user(spec.account.as_ref())) {
        return (CANNOT_RUN, why);
    }
    // After the change of user: the folder may be one that only he can enter.
    if let Err(e) = std::env::set_current_dir(&spec.workdir) {
        return (
            CANNOT_RUN,
            format!("cannot enter {}: {e}", spec.workdir.display()),
        );
    }
    if !process.first_words.is_empty() {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "dovetail: {}", process.first_words);
    }
    let mut command = Command::new(program);
    command.args(args);
    for (name, _) in std::env::vars_os() {
        // The agent's own settings, its join token among them, are not the task's.
        if name.as_encoded_bytes().starts_with(b"DOVETAIL_") {
            command.env_remove(name);
        }
    }
    if let Some(account) = &spec.account {
        command.env("HOME", &account.home);
        command.env("USER", &account.name).env("LOGNAME", &account.name);
    }
    let e = command.envs(&process.env).exec();
    let code = if e.kind() == std::io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_RUN
    };
    (code, format!("cannot run `{program}`: {e}"))
}

/// Into the cgroup if there is one, else onto its CPUs.
fn confine(spec: &Spec) -> Result<(), String> {
    if let Some(group) = &spec.cgroup {
        return cgroup::enter(group);
    }
    if spec.cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for cpu in &spec.cpus {
        set.set(*cpu as usize).map_err(|e| format!("CPU {cpu}: {e}"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(|e| format!("cannot bind to CPUs {:?}: {e}", spec.cpus))
}

fn switch_user(account: Option<&Account>) -> Result<(), String> {
    let Some(account) = account else { return Ok(()) };
    let wrong = |e: nix::Error| format!("cannot run as {}: {e}", account.name);
    let name = CString::new(account.name.as_str()).map_err(|_| "a user's name has a zero".to_owned())?;
    let gid = Gid::from_raw(account.gid);
    initgroups(&name, gid).map_err(wrong)?;
    setgid(gid).map_err(wrong)?;
    setuid(Uid::from_raw(account.uid)).map_err(wrong)
}
