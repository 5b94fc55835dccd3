//! One process of the control plane.

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
pub enum Part {
    /// Where all objects are.
    Etcd,
    /// What everybody speaks to.
    ApiServer,
    /// Jobs make pods, owners take what they own with them, and so on.
    ControllerManager,
    /// The upstream scheduler.
    Scheduler,
}

impl Part {
    /// All of them, in the order they are started in.
    pub const ALL: [Self; 4] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
    ];

    /// What the binary calls it; its log has this name too.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How long a component may take to end by itself.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A component with what it takes to start it again.
#[derive(Debug)]
pub(crate) struct Component {
    part: Part,
    command: Vec<String>,
    log: PathBuf,
    folder: PathBuf,
    child: Option<Child>,
    /// What launches before this one have used.
    cpu_before: Duration,
}

impl Component {
    pub(crate) fn new(part: Part, binary: &Path, folder: &Path, args: Vec<String>) -> Self {
        let mut command = vec![binary.display().to_string(), part.name().to_owned()];
        command.extend(args);
        Self {
            part,
            command,
            log: folder.join(format!("{part}.log")),
            folder: folder.to_owned(),
            child: None,
            cpu_before: Duration::ZERO,
        }
    }

    /// Starts the process; that it is ready is for others to see.
    pub(crate) fn launch(&mut self) -> Result<(), LabError> {
        assert!(self.child.is_none(), "{} runs already", self.part);
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(LabError::file(&self.log))?;
        let _ = writeln!(log, "$ {}", self.command.join(" "));
        let other = log.try_clone().map_err(LabError::file(&self.log))?;
        // It ends when its input does, which is when this process is gone, however that comes about. What the system
        // offers for that is tied to the thread that starts it, and the thread of a test ends long before the others.
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

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    /// Asks it to end and waits for that; what does not end in a minute is killed.
    pub(crate) fn stop(&mut self) {
        self.end(Signal::TERM);
    }

    /// Ends it at once, as a crash would.
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

    /// CPU time of all its launches.
    pub(crate) fn cpu(&self) -> Duration {
        self.cpu_before + self.id().map(cpu_of).unwrap_or_default()
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(25).collect();
        lines.into_iter().rev().map(|l| format!("{l}\n")).collect()
    }

    pub(crate) fn error(&self, why: impl Into<String>) -> LabError {
        LabError::Part {
            part: self.part,
            why: why.into(),
            log: self.tail(),
        }
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Linux counts in hundredths of a second for every program, whatever the kernel does inside.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of a process so far: in user mode and in the kernel; zero if it is gone.
pub fn cpu_of(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    ticks(&stat).map_or(Duration::ZERO, |ticks| TICK * ticks)
}

fn ticks(stat: &str) -> Option<u32> {
    // The second field is a name in brackets that can hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let user: u32 = fields.get(11)?.parse().ok()?;
    let kernel: u32 = fields.get(12)?.parse().ok()?;
    Some(user + kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_that_of_user_and_kernel() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 9 0 1";
        assert_eq!(ticks(stat), Some(175));
        assert_eq!(ticks(""), None);
        assert!(ticks(&fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }
}
