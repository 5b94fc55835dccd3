//! How a shim watches over a task: it ends it when it has to, and says how it ended.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::clock::boot_ms;
use crate::process;
use crate::store::lease;
use crate::task::cgroup;
use crate::task::folder::TaskFolder;
use crate::task::record::{Exit, InstanceExit, STOPPED_CODE, Spec, Stop};

/// What a shim hears of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fact {
    /// A child ended: its number, its code, its signal.
    Ended(u32, i32, i32),
    /// There is no child left.
    NobodyLeft,
    /// `stop.json` is new.
    Look,
    /// Somebody other than the agent wants an end: the machine goes down.
    Terminate,
}

/// Signals that were lost, and the lease, are looked after this often.
const TICK: Duration = Duration::from_secs(1);

/// A task that was started.
pub(super) struct Held {
    folder: TaskFolder,
    spec: Spec,
    /// Leaders of their groups; those that live.
    pids: BTreeSet<u32>,
    /// All of them, in the order of the spec.
    order: Vec<u32>,
    started_any: bool,
    log: Option<JoinHandle<()>>,
    heard: Receiver<Fact>,
    lease_until_ms: u64,
    stop: Option<Stop>,
    /// When to be harder, after a failure or a signal of our own.
    own_kill_at_ms: Option<u64>,
    is_terminated: bool,
    is_killed: bool,
    exit: Exit,
    has_failed: bool,
}

impl Held {
    pub(super) fn new(
        folder: TaskFolder,
        spec: Spec,
        pids: Vec<u32>,
        log: Option<JoinHandle<()>>,
        heard: Receiver<Fact>,
    ) -> Self {
        Self {
            lease_until_ms: spec.lease_until_ms,
            folder,
            spec,
            started_any: !pids.is_empty(),
            pids: pids.iter().copied().collect(),
            order: pids,
            log,
            heard,
            stop: None,
            own_kill_at_ms: None,
            is_terminated: false,
            is_killed: false,
            exit: Exit::default(),
            has_failed: false,
        }
    }

    /// Until all is over.
    pub(super) fn watch_over(&mut self) -> Exit {
        self.look();
        while self.goes_on() {
            self.act();
            match self.heard.recv_timeout(self.patience()) {
                Ok(fact) => self.hear(fact),
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.clear_up();
        std::mem::take(&mut self.exit)
    }

    /// A task without processes here lasts until it is told to stop.
    fn goes_on(&self) -> bool {
        if self.started_any {
            return !self.pids.is_empty();
        }
        !(self.is_terminated || self.is_killed)
    }

    fn hear(&mut self, fact: Fact) {
        match fact {
            Fact::Ended(pid, code, signal) => self.ended(pid, code, signal),
            Fact::NobodyLeft => self.pids.clear(),
            Fact::Look => self.look(),
            Fact::Terminate => {
                if self.exit.platform_error.is_empty() && self.stop.is_none() {
                    self.exit.platform_error = "the node goes down".to_owned();
                }
                self.end_softly();
            }
        }
    }

    fn ended(&mut self, pid: u32, code: i32, signal: i32) {
        if !self.pids.remove(&pid) {
            return;
        }
        if !self.spec.instances.is_empty() {
            self.tell_instance(pid, code, signal);
        }
        if (code, signal) == (0, 0) || self.has_failed {
            return;
        }
        self.exit.code = code;
        self.exit.signal = signal;
        self.look();
        // A trainer that stopped as it was told has not failed, and the others of its gang stop by themselves.
        if code == STOPPED_CODE && self.stop.is_some() {
            return;
        }
        self.has_failed = true;
        if !self.pids.is_empty() && self.spec.instances.is_empty() {
            // They would wait for it in vain.
            self.end_softly();
        }
    }

    /// Writes down how an instance ended, and tells the agent that there is something to read.
    fn tell_instance(&mut self, pid: u32, code: i32, signal: i32) {
        let Some(process) = self.order.iter().position(|p| *p == pid) else {
            return;
        };
        let end = InstanceExit {
            process,
            code,
            signal,
        };
        if let Err(why) = self.folder.add_end(&end) {
            // Nobody would hear of it, and the job would wait for ever.
            self.exit.platform_error = format!("how an instance ended cannot be kept: {why}");
            self.end_softly();
        }
        let mut out = std::io::stdout();
        let _ = out.write_all(b"ended\n").and_then(|()| out.flush());
    }

    /// SIGTERM now, SIGKILL after the grace.
    fn end_softly(&mut self) {
        self.terminate();
        self.own_kill_at_ms.get_or_insert(boot_ms() + self.spec.grace_ms);
    }

    /// Reads what the agent has written.
    fn look(&mut self) {
        // What cannot be read was not written by the agent; the next look may find better.
        if let Ok(Some(stop)) = self.folder.stop() {
            self.stop = Some(stop);
        }
        if let Some(until) = lease::read(&self.spec.lease_file) {
            self.lease_until_ms = self.lease_until_ms.max(until);
        }
    }

    /// Does what is due.
    fn act(&mut self) {
        let now = boot_ms();
        if now >= self.lease_until_ms {
            self.look();
            if now >= self.lease_until_ms && !self.is_killed {
                self.exit.platform_error =
                    "ended by the node: there was no word from the scheduler until its lease was over"
                        .to_owned();
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

    /// How long to wait for a fact before something is due.
    fn patience(&self) -> Duration {
        let stop = self.stop.as_ref();
        let due = [
            Some(self.lease_until_ms),
            stop.filter(|_| !self.is_killed).map(|s| s.kill_at_ms),
            stop.filter(|_| !self.is_terminated)
                .and_then(|s| s.terminate_at_ms),
            self.own_kill_at_ms.filter(|_| !self.is_killed),
        ];
        let now = boot_ms();
        let next = due.into_iter().flatten().filter(|at| *at > now).min();
        next.map_or(TICK, |at| Duration::from_millis(at - now).min(TICK))
    }

    fn terminate(&mut self) {
        if !self.is_terminated {
            self.is_terminated = true;
            for pid in &self.pids {
                process::signal(-pid.cast_signed(), Signal::SIGTERM);
            }
        }
    }

    fn kill(&mut self) {
        self.is_terminated = true;
        self.is_killed = true;
        for pid in &self.pids {
            process::signal(-pid.cast_signed(), Signal::SIGKILL);
        }
        self.kill_descendants();
    }

    fn kill_descendants(&self) {
        if let Some(group) = &self.spec.cgroup {
            let _ = std::fs::write(group.join("cgroup.kill"), "1");
        }
        for pid in process::descendants(std::process::id()) {
            process::signal(pid.cast_signed(), Signal::SIGKILL);
        }
    }

    /// A container lives on when the program that started it was killed.
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

    /// Ends what the task left behind, and waits until its log is whole.
    fn clear_up(&mut self) {
        let begun = Instant::now();
        // The reaper says when nobody is left. A process that the kernel cannot end must not hold up the news.
        while self.started_any && begun.elapsed() < Duration::from_secs(30) {
            match self.heard.recv_timeout(Duration::from_millis(5)) {
                Ok(Fact::NobodyLeft) | Err(RecvTimeoutError::Disconnected) => break,
                _ => self.kill_descendants(),
            }
        }
        while let Some(log) = &self.log {
            if log.is_finished() || begun.elapsed() > Duration::from_secs(30) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.remove_containers();
        if let Some(group) = &self.spec.cgroup {
            self.exit.out_of_memory = cgroup::ran_out_of_memory(group);
            cgroup::end(group);
        }
    }
}
