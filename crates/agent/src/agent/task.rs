//! A task as the agent knows it, and the facts about it that the server has not acknowledged yet.

use std::collections::BTreeMap;

use crate::agent::progress::ProgressFilter;
use dovetail_proto::v1::agent_message::Body;
use dovetail_proto::v1::{InstanceEnded, ResizeTask, TaskEnded, TaskStarted};
use tokio::sync::mpsc::UnboundedSender;

use crate::agent::server::ServerLink;
use crate::task::folder::TaskFolder;
use crate::task::record::{InstanceExit, STOPPED_CODE, StopRequest, TaskExit, TaskId, TaskSpec};
use crate::trainer_socket::TrainerCommand;

/// A change in the life of a task.
#[derive(Debug)]
pub(crate) enum TaskEvent {
    /// All its processes have been started.
    Started,
    /// An instance of a role has ended.
    InstanceEnded(InstanceExit),
    /// The task has ended.
    Ended(Box<TaskOutcome>),
}

/// How a task ended, with what its folder contains.
#[derive(Debug)]
pub(crate) struct TaskOutcome {
    pub(crate) exit: TaskExit,
    pub(crate) checkpoint_step: u64,
    pub(crate) log_tail: String,
}

impl TaskOutcome {
    /// Returns the outcome of a task that could not be started or was lost.
    pub(crate) fn lost(reason: impl Into<String>) -> Self {
        Self {
            exit: TaskExit::lost(reason),
            checkpoint_step: 0,
            log_tail: String::new(),
        }
    }
}

/// A task.
pub(crate) struct Task {
    pub(crate) id: TaskId,
    pub(crate) folder: TaskFolder,
    /// `None` if the file cannot be read. The processes are left out; they are in the file.
    pub(crate) spec: Option<TaskSpec>,
    pub(crate) phase: Phase,
    pub(crate) stop: Option<StopRequest>,
    /// A command that arrived before the task ran.
    pub(crate) resize: Option<ResizeTask>,
    /// Sequence numbers of facts that have not been acknowledged.
    pub(crate) started_fact: Option<u64>,
    pub(crate) ended_fact: Option<u64>,
    pub(crate) instance_facts: BTreeMap<u64, InstanceEnded>,
    /// Trainers by rank.
    pub(crate) ranks: BTreeMap<u32, Rank>,
    /// Number of ranks of the gang, as the trainers report it.
    pub(crate) world_size: u32,
    /// Which progress reports are forwarded.
    pub(crate) progress: ProgressFilter,
}

/// Phase of a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    Starting,
    Running,
    /// The fact is empty if the end was acknowledged before the agent started.
    Ended(Box<TaskEnded>),
}

/// A trainer of a task.
pub(crate) struct Rank {
    pub(crate) connection: u64,
    /// `None` while it is not connected.
    pub(crate) commands: Option<UnboundedSender<TrainerCommand>>,
    /// Whether it can wait at stage gates.
    pub(crate) understands_gates: bool,
    /// Last step that it has done.
    pub(crate) step: u64,
    /// Last step that it has begun, reported when the task is to stop.
    pub(crate) reached: Option<u64>,
    pub(crate) is_finished: bool,
}

impl Task {
    pub(crate) fn new(id: TaskId, folder: TaskFolder, spec: Option<TaskSpec>, phase: Phase) -> Self {
        let without_processes = |spec| TaskSpec {
            processes: Vec::new(),
            ..spec
        };
        Self {
            id,
            folder,
            spec: spec.map(without_processes),
            phase,
            stop: None,
            resize: None,
            started_fact: None,
            ended_fact: None,
            instance_facts: BTreeMap::new(),
            ranks: BTreeMap::new(),
            world_size: 0,
            progress: ProgressFilter::default(),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Sends a command to all trainers that are connected.
    pub(crate) fn send_to_trainers(&self, command: &TrainerCommand) {
        for commands in self.ranks.values().filter_map(|r| r.commands.as_ref()) {
            // The end of a connection is reported by the socket.
            let _ = commands.send(command.clone());
        }
    }

    /// Records and sends that the task runs.
    pub(crate) fn started(&mut self, server: &mut ServerLink) {
        self.phase = Phase::Running;
        self.started_fact = Some(server.next_sequence());
        self.send_started(server);
    }

    /// Records and sends that an instance of a role has ended.
    pub(crate) fn instance_ended(&mut self, exit: InstanceExit, server: &mut ServerLink) {
        let instance = self.spec.as_ref().and_then(|s| s.instances.get(exit.process));
        let Some((role, index)) = instance.cloned() else {
            return;
        };
        tracing::info!(task = %self.id, role, index, exit_code = exit.code, signal = exit.signal, "instance ended");
        let fact = InstanceEnded {
            task: Some(self.id.into()),
            role,
            index,
            exit_code: exit.code,
            signal: exit.signal,
        };
        let sequence = server.next_sequence();
        self.instance_facts.insert(sequence, fact.clone());
        server.send_numbered(sequence, Body::InstanceEnded(fact));
    }

    /// Records and sends that the task has ended.
    pub(crate) fn ended(&mut self, outcome: TaskOutcome, server: &mut ServerLink) {
        let exit = outcome.exit;
        let obeyed = exit.was_signalled || exit.code == STOPPED_CODE;
        let fact = TaskEnded {
            task: Some(self.id.into()),
            exit_code: exit.code,
            signal: exit.signal,
            was_stopped: self.stop.is_some() && obeyed,
            platform_error: exit.platform_error,
            checkpoint_step: outcome.checkpoint_step,
            log_tail: outcome.log_tail,
            out_of_memory: exit.out_of_memory,
            refused: false,
        };
        tracing::info!(
            task = %self.id,
            exit_code = fact.exit_code,
            signal = fact.signal,
            was_stopped = fact.was_stopped,
            platform_error = fact.platform_error,
            "task ended"
        );
        self.phase = Phase::Ended(Box::new(fact));
        self.ended_fact = Some(server.next_sequence());
        self.ranks.clear();
        self.send_ended(server);
    }

    /// Resends all facts that have not been acknowledged.
    pub(crate) fn resend_facts(&self, server: &ServerLink) {
        self.send_started(server);
        for (sequence, fact) in &self.instance_facts {
            server.send_numbered(*sequence, Body::InstanceEnded(fact.clone()));
        }
        self.send_ended(server);
    }

    /// Sends the phase of the task again, because the server asks for what has already happened.
    pub(crate) fn repeat_phase(&mut self, server: &mut ServerLink) {
        match &self.phase {
            Phase::Starting => {}
            Phase::Running => {
                self.started_fact.get_or_insert_with(|| server.next_sequence());
            }
            Phase::Ended(fact) if fact.task.is_none() => {
                let reason = "the task ended on this node earlier, and its end was acknowledged";
                server.answer(not_started(self.id, reason.to_owned()));
                return;
            }
            Phase::Ended(_) => {
                self.ended_fact.get_or_insert_with(|| server.next_sequence());
            }
        }
        self.send_started(server);
        self.send_ended(server);
    }

    /// Removes an acknowledged fact. Returns whether it was one of this task.
    pub(crate) fn acknowledge(&mut self, sequence: u64) -> bool {
        if self.instance_facts.remove(&sequence).is_some() {
            return true;
        }
        if self.started_fact == Some(sequence) {
            self.started_fact = None;
            return true;
        }
        if self.ended_fact == Some(sequence) {
            self.ended_fact = None;
            if let Err(e) = self.folder.write_acknowledged() {
                tracing::warn!(task = %self.id, "{e}");
            }
            return true;
        }
        false
    }

    fn send_started(&self, server: &ServerLink) {
        if let Some(sequence) = self.started_fact {
            let spec = self.spec.as_ref();
            let started = TaskStarted {
                task: Some(self.id.into()),
                sharing: spec.map(|s| s.sharing.clone()).unwrap_or_default(),
                remarks: spec.map(|s| s.remarks.clone()).unwrap_or_default(),
            };
            server.send_numbered(sequence, Body::TaskStarted(started));
        }
    }

    fn send_ended(&self, server: &ServerLink) {
        if let (Some(sequence), Phase::Ended(fact)) = (self.ended_fact, &self.phase) {
            server.send_numbered(sequence, Body::TaskEnded((**fact).clone()));
        }
    }
}

/// Returns the end of a task that was not started.
pub(crate) fn not_started(id: TaskId, reason: String) -> TaskEnded {
    TaskEnded {
        task: Some(id.into()),
        platform_error: reason,
        ..Default::default()
    }
}
