//! Why a shim cannot start a task or one of its processes.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::error::AgentError;

/// Why a shim cannot start a task or one of its processes.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShimError {
    #[error(transparent)]
    File(#[from] AgentError),
    #[error("{}: missing spec.json", .0.display())]
    NoSpec(PathBuf),
    #[error("no process {} in spec.json", .0.display())]
    UnknownProcess(OsString),
    #[error("missing command")]
    NoCommand,
    #[error("missing program of the shim")]
    NoShim,
    #[error("cannot adopt orphaned processes: {0}")]
    Subreaper(rustix::io::Errno),
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    #[error("cannot create a pipe for the log: {0}")]
    Pipe(io::Error),
    #[error("cannot start {}: {source}", program.display())]
    Spawn { program: PathBuf, source: io::Error },
    #[error("cannot bind to CPUs {cpus:?}: {source}")]
    Affinity { cpus: Vec<u32>, source: nix::Error },
    #[error("invalid user name {0:?}")]
    InvalidUser(String),
    #[error("cannot run as user `{user}`: {source}")]
    User { user: String, source: nix::Error },
    #[error("cannot enter {}: {source}", workdir.display())]
    Workdir { workdir: PathBuf, source: io::Error },
    #[error("cannot run `{program}`: {source}")]
    Exec { program: String, source: io::Error },
}

impl ShimError {
    /// Returns the exit code of a process that was not started. As in a shell, 127 means that the program was not found,
    /// 126 that it cannot be run.
    pub(super) fn exit_code(&self) -> i32 {
        match self {
            Self::Exec { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            _ => 126,
        }
    }
}
