//! The process that holds a task. There is one for each; it has no network and few lines, and it outlives the agent.

mod exec;
mod over;
mod start;

use std::ffi::OsString;
use std::path::Path;

use crate::task::folder::TaskFolder;
use crate::task::record::Exit;

/// What a program does that was started as a shim, with the arguments behind those of
/// [`AgentConfig::shim`](crate::AgentConfig::shim): the folder of a task, and for one of its processes its number
/// there. Returns the exit code.
pub fn shim(args: &[OsString]) -> i32 {
    match args {
        [folder] => hold(&TaskFolder::at(Path::new(folder))),
        [folder, index] => exec::become_process(&TaskFolder::at(Path::new(folder)), index),
        _ => 2,
    }
}

fn hold(folder: &TaskFolder) -> i32 {
    let exit = match start::start(folder) {
        Ok(mut task) => task.watch_over(),
        Err(why) => Exit::lost(why),
    };
    // Without the file the agent finds that the shim is gone, and says so.
    match folder.write_exit(&exit) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}
