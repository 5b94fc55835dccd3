//! What the scheduler has to know: facts are sent until they are acknowledged, heartbeats keep the lease.

use dovetail_proto::v1::from_agent::What;
use dovetail_proto::v1::{FromAgent, Heartbeat, Hello, InstanceEnded, TaskEnded, TaskStarted};
use tokio::time::{Duration, Instant};

use crate::agent::state::{Agent, Ending, Phase, TaskEvent};
use crate::clock::unix_us;
use crate::link::{self, Sender};
use crate::store::lease;
use crate::task::record::{InstanceExit, Key, STOPPED_CODE};

/// Facts that are not acknowledged are told again after so many heartbeats.
const REPEAT_BEATS: u32 = 10;

impl Agent {
    /// A connection is being opened: say who we are.
    pub(super) fn dialled(&mut self, sender: Sender) {
        self.link.sender = Some(sender);
        self.link.is_welcome = false;
        self.link.beats.clear();
        self.link.next_beat = None;
        self.link.hello_ms = self.now_ms();
        self.gpus = self.gpu_driver.gpus();
        let running = self.tasks.iter().filter(|(_, task)| task.is_live());
        let hello = Hello {
            node: self.config.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            address: self.address.clone(),
            hardware: Some(self.hardware()),
            running: running.map(|(key, _)| (*key).into()).collect(),
            identity: self.identity,
        };
        self.say(link::unnumbered(What::Hello(hello)));
    }

    pub(super) fn down(&mut self, why: &str) {
        if self.link.is_welcome {
            tracing::warn!("disconnected: {why}");
        } else {
            tracing::info!("no connection yet: {why}");
        }
        self.link.sender = None;
        self.link.is_welcome = false;
        self.link.next_beat = None;
        self.stop_reading_logs();
    }

    /// When the next heartbeat is due.
    pub(super) fn next_beat(&self) -> Instant {
        let far = || Instant::now() + Duration::from_secs(3600);
        self.link.next_beat.unwrap_or_else(far)
    }

    pub(super) fn beat(&mut self) {
        if !self.link.is_welcome {
            return;
        }
        let seen = self.gpu_driver.gpus();
        let changed = seen
            .iter()
            .filter(|gpu| !self.gpus.contains(gpu))
            .cloned()
            .collect();
        self.gpus = seen;
        let ticks = self.system.cpu_ticks();
        let (busy, all) = (
            ticks.0.saturating_sub(self.cpu_ticks.0),
            ticks.1.saturating_sub(self.cpu_ticks.1),
        );
        self.cpu_ticks = ticks;
        let beat = Heartbeat {
            gpus: changed,
            gpu_busy: self.gpu_driver.busy(),
            cpu_busy: u32::try_from(busy * 100 / all.max(1)).unwrap_or(100),
            memory_used_mib: self.system.memory_mib().1,
            gpu_memory_used_mib: self.gpu_driver.memory_used(),
        };
        let number = self.next_number();
        self.link.beats.insert(number, self.now_ms());
        self.link.next_beat = Some(Instant::now() + Duration::from_millis(self.link.beat_ms));
        self.say_numbered(number, What::Heartbeat(beat));
        self.link.beats_since_facts += 1;
        if self.link.beats_since_facts > REPEAT_BEATS {
            self.send_facts();
        }
    }

    /// The scheduler has heard of a fact or a heartbeat.
    pub(super) fn acknowledged(&mut self, number: u64) {
        if let Some(sent) = self.link.beats.remove(&number) {
            self.link.beats.retain(|n, _| *n > number);
            self.extend_lease(sent);
            return;
        }
        if self.answers.remove(&number).is_some() {
            return;
        }
        for (key, task) in &mut self.tasks {
            if task.instance_facts.remove(&number).is_some() {
                return;
            }
            if task.started_fact == Some(number) {
                task.started_fact = None;
                return;
            }
            if task.ended_fact == Some(number) {
                task.ended_fact = None;
                if let Err(e) = task.folder.write_told() {
                    tracing::warn!(task = %key, "{e}");
                }
                return;
            }
        }
    }

    /// Tasks may run for the length of a lease since the scheduler was last known to hear us.
    pub(super) fn extend_lease(&mut self, heard_us_ms: u64) {
        let until = match self.link.lease_ms {
            0 => u64::MAX,
            ms => heard_us_ms + ms,
        };
        self.lease_until_ms = until;
        if let Err(e) = lease::write(&self.lease_file, until) {
            tracing::error!("{e}; tasks will end with their lease");
        }
    }

    /// Something happened to a task.
    pub(super) fn of_task(&mut self, key: Key, event: TaskEvent) {
        match event {
            TaskEvent::Started => {
                let number = self.next_number();
                let Some(task) = self.tasks.get_mut(&key) else {
                    return;
                };
                if task.is_live() {
                    task.phase = Phase::Running;
                    task.started_fact = Some(number);
                    let resize = task.resize.take();
                    self.send_started(key);
                    if let Some(order) = resize {
                        self.resize(&order);
                    }
                    self.stop_if_told(key);
                }
            }
            TaskEvent::InstanceEnded(end) => self.instance_ended(key, end),
            TaskEvent::Ended(ending) => self.ended(key, *ending),
        }
    }

    fn instance_ended(&mut self, key: Key, end: InstanceExit) {
        let number = self.next_number();
        let Some(task) = self.tasks.get_mut(&key) else {
            return;
        };
        let named = task
            .spec
            .as_ref()
            .and_then(|spec| spec.instances.get(end.process));
        let Some((role, index)) = named.cloned() else {
            return;
        };
        tracing::info!(task = %key, role, index, exit_code = end.code, signal = end.signal, "an instance ended");
        let fact = InstanceEnded {
            task: Some(key.into()),
            role,
            index,
            exit_code: end.code,
            signal: end.signal,
        };
        task.instance_facts.insert(number, fact.clone());
        self.say_numbered(number, What::InstanceEnded(fact));
    }

    fn ended(&mut self, key: Key, ending: Ending) {
        let number = self.next_number();
        let Some(task) = self.tasks.get_mut(&key) else {
            return;
        };
        let exit = ending.exit;
        let obeyed = exit.was_signalled || exit.code == STOPPED_CODE;
        let fact = TaskEnded {
            task: Some(key.into()),
            exit_code: exit.code,
            signal: exit.signal,
            was_stopped: task.stop.is_some() && obeyed,
            platform_error: exit.platform_error,
            checkpoint_step: ending.checkpoint_step,
            last_words: ending.last_words,
            out_of_memory: exit.out_of_memory,
            refused: false,
        };
        tracing::info!(
            task = %key,
            exit_code = fact.exit_code,
            signal = fact.signal,
            was_stopped = fact.was_stopped,
            platform_error = fact.platform_error,
            "ended"
        );
        task.phase = Phase::Ended(Box::new(fact));
        task.ended_fact = Some(number);
        task.ranks.clear();
        if let Some(spec) = &task.spec {
            self.cpus.give_back(&spec.cpus);
        }
        self.connections.retain(|_, (of, _)| *of != key);
        self.send_ended(key);
    }

    /// Everything that is not acknowledged, in the order of tasks.
    pub(super) fn send_facts(&mut self) {
        self.link.beats_since_facts = 0;
        let keys: Vec<Key> = self.tasks.keys().copied().collect();
        for key in keys {
            self.send_started(key);
            self.send_instances(key);
            self.send_ended(key);
        }
        for (number, answer) in self.answers.clone() {
            self.say_numbered(number, What::Ended(answer));
        }
    }

    /// The scheduler asks for something that has been done: it may have lost what was said about it.
    pub(super) fn repeat_facts(&mut self, key: Key) {
        let (first, second) = (self.next_number(), self.next_number());
        let Some(task) = self.tasks.get_mut(&key) else {
            return;
        };
        match &task.phase {
            Phase::Starting => {}
            Phase::Running => {
                task.started_fact.get_or_insert(first);
            }
            Phase::Ended(fact) if fact.task.is_none() => {
                let why = "it ended here long ago, and that was acknowledged".to_owned();
                self.answer(super::orders::failed(key, why));
                return;
            }
            Phase::Ended(_) => {
                task.ended_fact.get_or_insert(second);
            }
        }
        self.send_started(key);
        self.send_ended(key);
    }

    fn send_started(&self, key: Key) {
        let Some(task) = self.tasks.get(&key) else { return };
        if let Some(number) = task.started_fact {
            let spec = task.spec.as_ref();
            let started = TaskStarted {
                task: Some(key.into()),
                sharing: spec.map(|s| s.sharing.clone()).unwrap_or_default(),
                remarks: spec.map(|s| s.remarks.clone()).unwrap_or_default(),
            };
            self.say_numbered(number, What::Started(started));
        }
    }

    fn send_instances(&self, key: Key) {
        let Some(task) = self.tasks.get(&key) else { return };
        for (number, fact) in &task.instance_facts {
            self.say_numbered(*number, What::InstanceEnded(fact.clone()));
        }
    }

    fn send_ended(&self, key: Key) {
        let Some(task) = self.tasks.get(&key) else { return };
        if let (Some(number), Phase::Ended(fact)) = (task.ended_fact, &task.phase) {
            self.say_numbered(number, What::Ended((**fact).clone()));
        }
    }

    /// Answers an order that nothing is done for.
    pub(super) fn answer(&mut self, answer: TaskEnded) {
        let number = self.next_number();
        self.answers.insert(number, answer.clone());
        self.say_numbered(number, What::Ended(answer));
    }

    fn say_numbered(&self, number: u64, what: What) {
        if self.link.is_welcome {
            let what = Some(what);
            self.say(FromAgent { number, what });
        }
    }

    pub(super) fn say(&self, message: FromAgent) {
        if let Some(sender) = &self.link.sender {
            sender.send(message);
        }
    }

    /// Greater than all before, those of earlier agents in the folder included.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number = unix_us().max(self.last_number + 1);
        self.last_number
    }
}
