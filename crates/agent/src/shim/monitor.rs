//! Watches a running task: stops it when it is due, and records how it ended.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::clock::boot_ms;
use crate::process;
use crate::store::lease;
use crate::task::folder::TaskFolder;
use crate::task::record::{InstanceExit, STOPPED_CODE, StopRequest, TaskExit, TaskSpec};

/// An event of a running shim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ShimEvent {
    /// A child has ended.
    Exited { pid: u32, code: i32, signal: i32 },
    /// There is no child left.
    NoneLeft,
    /// There may be a new `stop.json`.
    StopRequested,
    /// SIGTERM or SIGINT, which the agent does not send: the machine is shutting down.
    Terminate,
}

/// Longest time between two looks at `stop.json` and the lease, in case a signal was lost.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long the shim waits for processes that the kernel cannot kill.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);

/// A running task.
pub(super) struct TaskMonitor {
    folder: TaskFolder,
    spec: TaskSpec,
    /// All processes, in the order of the spec. Each is the leader of its group.
    pids: Vec<u32>,
    /// Those of them that run.
    running: BTreeSet<u32>,
    log: JoinHandle<()>,
    events: Receiver<ShimEvent>,
    lease_until_ms: u64,
    stop: Option<StopRequest>,
    /// When to send SIGKILL after a failure or SIGTERM to the shim.
    own_kill_at_ms: Option<u64>,
    is_terminated: bool,
    is_killed: bool,
    exit: TaskExit,
    has_failed: bool,
}

impl TaskMonitor {
    pub(super) fn new(
        folder: TaskFolder,
        spec: TaskSpec,
        pids: Vec<u32>,
        log: JoinHandle<()>,
        events: Receiver<ShimEvent>,
    ) -> Self {
        Self {
            lease_until_ms: spec.lease_until_ms,
            folder,
            spec,
            running: pids.iter().copied().collect(),
            pids,
            log,
            events,
            stop: None,
            own_kill_at_ms: None,
            is_terminated: false,
            is_killed: false,
            exit: TaskExit::default(),
            has_failed: false,
        }
    }

    /// Watches the task until it has ended.
    pub(super) fn run(&mut self) -> TaskExit {
        self.read_requests();
        while self.is_running() {
            self.send_due_signals();
            match self.events.recv_timeout(self.time_to_next_deadline()) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => self.read_requests(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.clean_up();
        std::mem::take(&mut self.exit)
    }

    /// Returns whether the task has not ended. A task without processes on this node lasts until it is stopped.
    fn is_running(&self) -> bool {
        match self.pids.is_empty() {
            true => !(self.is_terminated || self.is_killed),
            false => !self.running.is_empty(),
        }
    }

    fn handle(&mut self, event: ShimEvent) {
        match event {
            ShimEvent::Exited { pid, code, signal } => self.process_exited(pid, code, signal),
            ShimEvent::NoneLeft => self.running.clear(),
            ShimEvent::StopRequested => self.read_requests(),
            ShimEvent::Terminate => {
                if self.exit.platform_error.is_empty() && self.stop.is_none() {
                    self.exit.platform_error = "the node is shutting down".to_owned();
                }
                self.stop_with_grace();
            }
        }
    }

    fn process_exited(&mut self, pid: u32, code: i32, signal: i32) {
        if !self.running.remove(&pid) {
            return;
        }
        if !self.spec.instances.is_empty() {
            self.record_instance(pid, code, signal);
        }
        if (code, signal) == (0, 0) || self.has_failed {
            return;
        }
        self.exit.code = code;
        self.exit.signal = signal;
        self.read_requests();
        // A trainer that stopped as requested has not failed, and the other ranks stop by themselves.
        if code == STOPPED_CODE && self.stop.is_some() {
            return;
        }
        self.has_failed = true;
        if !self.running.is_empty() && self.spec.instances.is_empty() {
            // The other ranks would wait for the failed one.
            self.stop_with_grace();
        }
    }

    /// Records how an instance ended and notifies the agent.
    fn record_instance(&mut self, pid: u32, code: i32, signal: i32) {
        let Some(process) = self.pids.iter().position(|p| *p == pid) else {
            return;
        };
        let exit = InstanceExit {
            process,
            code,
            signal,
        };
        if let Err(e) = self.folder.add_instance_exit(&exit) {
            // The server would never learn of it, and the job would run forever.
            self.exit.platform_error = format!("cannot record the end of an instance: {e}");
            self.stop_with_grace();
        }
        let mut out = std::io::stdout();
        let _ = out.write_all(b"ended\n").and_then(|()| out.flush());
    }

    /// Sends SIGTERM now and SIGKILL after the grace period.
    fn stop_with_grace(&mut self) {
        self.terminate();
        self.own_kill_at_ms.get_or_insert(boot_ms() + self.spec.grace_ms);
    }

    /// Reads the stop request and the lease that the agent has written.
    fn read_requests(&mut self) {
        // A file that cannot be read is tried again at the next check.
        if let Ok(Some(stop)) = self.folder.stop() {
            self.stop = Some(stop);
        }
        if let Some(until_ms) = lease::read(&self.spec.lease_file) {
            self.lease_until_ms = self.lease_until_ms.max(until_ms);
        }
    }

    fn send_due_signals(&mut self) {
        let now = boot_ms();
        if now >= self.lease_until_ms {
            self.read_requests();
            if now >= self.lease_until_ms && !self.is_killed {
                self.exit.platform_error =
                    "killed by the node: its lease expired without contact to the server".to_owned();
                self.kill();
            }
        }
        if let Some(stop) = self.stop.clone() {
            if now >= stop.kill_at_ms && !self.is_killed {
                self.exit.was_signalled = true;
                self.kill();
            }
            if stop.terminate_at_ms.is_some_and(|at| now >= at) && !self.is_terminated {
                self.exit.was_signalled = true;
                self.terminate();
            }
        }
        if self.own_kill_at_ms.is_some_and(|at| now >= at) && !self.is_killed {
            self.kill();
        }
    }

    /// Returns the time until the next deadline, at most the check interval.
    fn time_to_next_deadline(&self) -> Duration {
        let stop = self.stop.as_ref();
        let deadlines = [
            Some(self.lease_until_ms),
            stop.filter(|_| !self.is_killed).map(|s| s.kill_at_ms),
            stop.filter(|_| !self.is_terminated)
                .and_then(|s| s.terminate_at_ms),
            self.own_kill_at_ms.filter(|_| !self.is_killed),
        ];
        let now = boot_ms();
        let next = deadlines.into_iter().flatten().filter(|at| *at > now).min();
        next.map_or(CHECK_INTERVAL, |at| {
            Duration::from_millis(at - now).min(CHECK_INTERVAL)
        })
    }

    fn terminate(&mut self) {
        if !self.is_terminated {
            self.is_terminated = true;
            for pid in &self.running {
                process::signal(-pid.cast_signed(), Signal::SIGTERM);
            }
        }
    }

    fn kill(&mut self) {
        self.is_terminated = true;
        self.is_killed = true;
        for pid in &self.running {
            process::signal(-pid.cast_signed(), Signal::SIGKILL);
        }
        self.kill_descendants();
    }

    fn kill_descendants(&self) {
        if let Some(group) = &self.spec.cgroup {
            group.kill();
        }
        for pid in process::descendants(std::process::id()) {
            process::signal(pid.cast_signed(), Signal::SIGKILL);
        }
    }

    /// Removes containers. They outlive the program that started them if it is killed.
    fn remove_containers(&self) {
        for container in self.spec.processes.iter().filter_map(|p| p.container.as_ref()) {
            let _ = std::process::Command::new(&container.runtime)
                .args(["rm", "--force", &container.name])
                .stdin(std::process::Stdio::null())
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .status();
        }
    }

    /// Kills what the task left behind, and waits until its log is complete.
    fn clean_up(&mut self) {
        let begun = Instant::now();
        while !self.pids.is_empty() && begun.elapsed() < CLEANUP_TIMEOUT {
            match self.events.recv_timeout(Duration::from_millis(5)) {
                Ok(ShimEvent::NoneLeft) | Err(RecvTimeoutError::Disconnected) => break,
                _ => self.kill_descendants(),
            }
        }
        while !self.log.is_finished() && begun.elapsed() < CLEANUP_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.remove_containers();
        if let Some(group) = &self.spec.cgroup {
            self.exit.out_of_memory = group.ran_out_of_memory();
            group.remove();
        }
    }
}
