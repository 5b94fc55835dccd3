//! The shim: a process that owns one task and outlives the agent. It uses no network.

mod error;
mod exec;
mod monitor;
mod start;

use std::ffi::OsString;
use std::path::Path;

use crate::task::folder::TaskFolder;
use crate::task::record::TaskExit;

/// Runs as a shim and returns the exit code.
///
/// The arguments are those after [`AgentConfig::shim`](crate::AgentConfig::shim): the folder of a task, and for one of its
/// processes also the index of that process.
pub fn shim(args: &[OsString]) -> i32 {
    match args {
        [folder] => run_task(&TaskFolder::at(Path::new(folder))),
        [folder, index] => exec::run_process(&TaskFolder::at(Path::new(folder)), index),
        _ => 2,
    }
}

fn run_task(folder: &TaskFolder) -> i32 {
    let exit = match start::start(folder) {
        Ok(mut monitor) => monitor.run(),
        Err(e) => TaskExit::lost(e.to_string()),
    };
    // Without the file, the agent finds that the shim is gone and reports the task as lost.
    match folder.write_exit(&exit) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}
