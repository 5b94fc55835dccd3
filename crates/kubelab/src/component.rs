//! Processes of the control plane.

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::LabError;

/// A component of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// Stores all objects.
    Etcd,
    /// Serves the Kubernetes API.
    ApiServer,
    /// Runs controllers: creates the pods of jobs, deletes dependent objects, and so on.
    ControllerManager,
    /// The upstream scheduler.
    Scheduler,
}

impl Component {
    /// All components, in the order in which they start.
    pub const ALL: [Self; 4] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
    ];

    /// Returns the name of the component in the binary and of its log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Longest time for a component to end after `SIGTERM`; then it is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A component with its command line, so that it can be started again.
#[derive(Debug)]
pub(crate) struct ComponentProcess {
    component: Component,
    command: Vec<String>,
    log: PathBuf,
    folder: PathBuf,
    child: Option<Child>,
    /// CPU time of earlier launches.
    cpu_before: Duration,
}

impl ComponentProcess {
    pub(crate) fn new(component: Component, binary: &Path, folder: &Path, args: Vec<String>) -> Self {
        let mut command = vec![binary.display().to_string(), component.name().to_owned()];
        command.extend(args);
        Self {
            component,
            command,
            log: folder.join(format!("{component}.log")),
            folder: folder.to_owned(),
            child: None,
            cpu_before: Duration::ZERO,
        }
    }

    /// Starts the process without waiting until it is ready.
    pub(crate) fn launch(&mut self) -> Result<(), LabError> {
        assert!(self.child.is_none(), "{} is already running", self.component);
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(LabError::file(&self.log))?;
        let _ = writeln!(log, "$ {}", self.command.join(" "));
        let other = log.try_clone().map_err(LabError::file(&self.log))?;
        // The component ends when its standard input does, that is when this process has ended for any reason.
        let child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .env("KUBELAB_FOLDER", &self.folder)
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(other)
            .stderr(log)
            .spawn()
            .map_err(LabError::file(Path::new(&self.command[0])))?;
        self.child = Some(child);
        Ok(())
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns the exit status if the process has ended.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    /// Ends the process with `SIGTERM` and waits for it; kills it after a minute.
    pub(crate) fn stop(&mut self) {
        self.end(Signal::TERM);
    }

    /// Kills the process, like a crash.
    pub(crate) fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    fn end(&mut self, signal: Signal) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let _ = kill_process(Pid::from_child(&child), signal);
        let deadline = Instant::now() + ENDS_WITHIN;
        let mut used = Duration::ZERO;
        loop {
            used = used.max(cpu_of(child.id()));
            if !matches!(child.try_wait(), Ok(None)) {
                break;
            }
            if Instant::now() > deadline {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.cpu_before += used;
    }

    /// Returns the CPU time of all launches.
    pub(crate) fn cpu(&self) -> Duration {
        self.cpu_before + self.id().map(cpu_of).unwrap_or_default()
    }

    /// Returns the last lines of the log.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(25).collect();
        lines.into_iter().rev().map(|l| format!("{l}\n")).collect()
    }

    pub(crate) fn error(&self, reason: impl Into<String>) -> LabError {
        LabError::Component {
            component: self.component,
            reason: reason.into(),
            log: self.log_tail(),
        }
    }
}

impl Drop for ComponentProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Unit of the CPU times in `/proc`, the same for all kernel configurations.
const TICK: Duration = Duration::from_millis(10);

/// Returns the CPU time that a process has used in user and kernel mode; zero if the process does not exist.
pub fn cpu_of(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    ticks(&stat).map_or(Duration::ZERO, |ticks| TICK * ticks)
}

fn ticks(stat: &str) -> Option<u32> {
    // The second field is the program's name in brackets, which may contain brackets and spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let user: u32 = fields.get(11)?.parse().ok()?;
    let kernel: u32 = fields.get(12)?.parse().ok()?;
    Some(user + kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_the_sum_of_user_and_kernel_time() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 9 0 1";
        assert_eq!(ticks(stat), Some(175));
        assert_eq!(ticks(""), None);
        assert!(ticks(&fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }
}
