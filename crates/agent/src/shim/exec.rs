//! Prepares a process of a task and replaces it by the user's program.

use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Gid, Pid, Uid, initgroups, setgid, setuid};

use crate::shim::error::ShimError;
use crate::task::folder::TaskFolder;
use crate::task::record::{Account, TaskSpec};

/// Becomes one process of a task. Returns only if that fails, after writing the error to the task's log.
pub(super) fn run_process(folder: &TaskFolder, index: &OsStr) -> i32 {
    let Err(error) = exec(folder, index);
    let _ = writeln!(std::io::stderr(), "dovetail: {error}");
    error.exit_code()
}

fn exec(folder: &TaskFolder, index: &OsStr) -> Result<Infallible, ShimError> {
    let spec = folder.spec()?;
    let spec = spec.ok_or_else(|| ShimError::NoSpec(folder.path().to_owned()))?;
    let number: Option<usize> = index.to_str().and_then(|i| i.parse().ok());
    let process = number.and_then(|i| spec.processes.get(i));
    let process = process.ok_or_else(|| ShimError::UnknownProcess(index.to_owned()))?;
    let (program, args) = process.command.split_first().ok_or(ShimError::NoCommand)?;
    confine(&spec)?;
    switch_user(spec.account.as_ref())?;
    // After the change of user, because only that user may be able to enter the folder.
    std::env::set_current_dir(&spec.workdir).map_err(|source| ShimError::Workdir {
        workdir: spec.workdir.clone(),
        source,
    })?;
    if !process.log_note.is_empty() {
        let _ = writeln!(std::io::stderr(), "dovetail: {}", process.log_note);
    }
    let mut command = Command::new(program);
    command.args(args);
    for (name, _) in std::env::vars_os() {
        // The agent's own settings, such as its join token, must not reach the task.
        if name.as_encoded_bytes().starts_with(b"DOVETAIL_") {
            command.env_remove(name);
        }
    }
    if let Some(account) = &spec.account {
        command.env("HOME", &account.home);
        command.env("USER", &account.name).env("LOGNAME", &account.name);
    }
    let source = command.envs(&process.env).exec();
    Err(ShimError::Exec {
        program: program.clone(),
        source,
    })
}

/// Enters the cgroup of the task, and binds to its CPUs where that does not.
fn confine(spec: &TaskSpec) -> Result<(), ShimError> {
    if let Some(group) = &spec.cgroup {
        group.enter()?;
    }
    if spec.cpus.is_empty() || spec.cgroup.as_ref().is_some_and(|group| !group.needs_affinity()) {
        return Ok(());
    }
    let failed = |source| ShimError::Affinity {
        cpus: spec.cpus.clone(),
        source,
    };
    let mut set = CpuSet::new();
    for cpu in &spec.cpus {
        set.set(*cpu as usize).map_err(failed)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(failed)
}

fn switch_user(account: Option<&Account>) -> Result<(), ShimError> {
    let Some(account) = account else { return Ok(()) };
    let failed = |source| ShimError::User {
        user: account.name.clone(),
        source,
    };
    let name = CString::new(account.name.as_str());
    let name = name.map_err(|_| ShimError::InvalidUser(account.name.clone()))?;
    let gid = Gid::from_raw(account.gid);
    initgroups(&name, gid).map_err(failed)?;
    setgid(gid).map_err(failed)?;
    setuid(Uid::from_raw(account.uid)).map_err(failed)
}
