//! All tasks of the node: those that run, and ended ones whose logs are kept.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::agent::launch;
use crate::agent::server::ServerLink;
use crate::agent::task::{Phase, Rank, Task, TaskEvent};
use crate::config::AgentConfig;
use crate::error::{AgentError, IoResultExt};
use crate::gates::StageGates;
use crate::store::attempts::StartedAttempts;
use crate::task::cpus::CpuAllocator;
use crate::task::folder::TaskFolder;
use crate::task::record::TaskId;
use crate::trainer_socket::TrainerEvent;

/// The tasks of the node.
pub(crate) struct TaskTable {
    folder: PathBuf,
    tasks: BTreeMap<TaskId, Task>,
    /// Task and rank of each connected trainer.
    connections: BTreeMap<u64, (TaskId, u32)>,
    pub(crate) attempts: Arc<Mutex<StartedAttempts>>,
    pub(crate) events: UnboundedSender<(TaskId, TaskEvent)>,
}

impl TaskTable {
    /// Creates an empty table for the agent's folder.
    pub(crate) fn open(
        folder: PathBuf,
        events: UnboundedSender<(TaskId, TaskEvent)>,
    ) -> Result<Self, AgentError> {
        Ok(Self {
            attempts: Arc::new(Mutex::new(StartedAttempts::open(&folder)?)),
            folder,
            tasks: BTreeMap::new(),
            connections: BTreeMap::new(),
            events,
        })
    }

    pub(crate) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(&id)
    }

    pub(crate) fn insert(&mut self, task: Task) {
        self.tasks.insert(task.id, task);
    }

    /// Returns the tasks that have not ended.
    pub(crate) fn active(&mut self) -> impl Iterator<Item = &mut Task> {
        self.tasks.values_mut().filter(|task| !task.has_ended())
    }

    /// Returns the task and the rank of a connected trainer.
    pub(crate) fn trainer(&self, connection: u64) -> Option<(TaskId, u32)> {
        self.connections.get(&connection).copied()
    }

    /// Returns the folder of a task.
    pub(crate) fn folder_of(&self, id: TaskId) -> TaskFolder {
        TaskFolder::of(&self.folder, id)
    }

    /// Returns the last attempt known of a job.
    pub(crate) fn last_attempt(&self, job: u64) -> Option<u64> {
        let stored = self.attempts.lock().map_or(None, |attempts| attempts.last(job));
        let tasks = self.tasks.keys().filter(|id| id.job == job);
        stored.max(tasks.map(|id| id.attempt).max())
    }

    /// Records that an attempt must not be started any more.
    pub(crate) fn forbid(&self, id: TaskId) -> Result<(), AgentError> {
        self.attempts
            .lock()
            .map_or(Ok(()), |mut attempts| attempts.advance(id))
    }

    /// Forgets the trainers of a task.
    pub(crate) fn disconnect_trainers(&mut self, id: TaskId) {
        self.connections.retain(|_, (task, _)| *task != id);
    }

    /// Resends all facts that have not been acknowledged, task by task.
    pub(crate) fn resend_facts(&self, server: &ServerLink) {
        for task in self.tasks.values() {
            task.resend_facts(server);
        }
    }

    /// Removes an acknowledged fact.
    pub(crate) fn acknowledge(&mut self, sequence: u64) {
        let _ = self.tasks.values_mut().any(|task| task.acknowledge(sequence));
    }

    /// Handles an event of the trainers' socket.
    pub(crate) fn trainer_event(&mut self, event: TrainerEvent, gates: &StageGates, server: &ServerLink) {
        match event {
            TrainerEvent::Connected {
                connection,
                secret,
                rank,
                world_size,
                understands_gates,
                commands,
            } => {
                let belongs = |task: &&mut Task| task.spec.as_ref().is_some_and(|s| s.secret == secret);
                let joined = self.active().find(belongs).map(|task| {
                    let trainer = Rank {
                        connection,
                        commands: Some(commands),
                        understands_gates,
                        step: 0,
                        reached: None,
                        is_finished: false,
                    };
                    task.trainer_connected(rank, world_size, trainer);
                    task.id
                });
                // Otherwise `commands` is dropped, which closes the connection.
                if let Some(id) = joined {
                    self.connections.insert(connection, (id, rank));
                }
            }
            TrainerEvent::Received { connection, message } => {
                if let Some((id, rank)) = self.connections.get(&connection).copied()
                    && let Some(task) = self.tasks.get_mut(&id)
                {
                    let report = gates.report(id);
                    task.trainer_message(rank, &message, report, server);
                }
            }
            TrainerEvent::Disconnected { connection } => {
                if let Some((id, rank)) = self.connections.remove(&connection)
                    && let Some(task) = self.tasks.get_mut(&id)
                {
                    task.trainer_disconnected(rank, connection, server);
                }
            }
        }
    }

    /// Adopts the tasks that an earlier agent left in the folder: running tasks are watched again, ended ones are reported.
    /// A task whose files cannot be read is reported as lost.
    pub(crate) fn recover(
        &mut self,
        cpus: &mut CpuAllocator,
        server: &mut ServerLink,
    ) -> Result<(), AgentError> {
        let folder = self.folder.join("tasks");
        for entry in std::fs::read_dir(&folder).at(&folder)? {
            let entry = entry.at(&folder)?;
            let name = entry.file_name();
            match name.to_str().and_then(TaskId::from_folder_name) {
                Some(id) => self.recover_task(id, cpus, server),
                None => tracing::warn!("{}: ignored: not the folder of a task", entry.path().display()),
            }
        }
        Ok(())
    }

    fn recover_task(&mut self, id: TaskId, cpus: &mut CpuAllocator, server: &mut ServerLink) {
        let folder = self.folder_of(id);
        let spec = logged(folder.spec()).flatten();
        if folder.is_acknowledged() {
            // Its log can still be read.
            let phase = Phase::Ended(Box::default());
            self.insert(Task::new(id, folder, spec, phase));
            return;
        }
        let is_running = logged(folder.shim()).flatten().is_some();
        let phase = match is_running {
            true => Phase::Running,
            false => Phase::Starting,
        };
        let mut task = Task::new(id, folder.clone(), spec, phase);
        task.stop = logged(folder.stop()).flatten();
        let assigned = task.spec.as_ref().map(|s| s.cpus.clone()).unwrap_or_default();
        cpus.assign(&assigned);
        if is_running {
            task.started_fact = Some(server.next_sequence());
        }
        // A shim that has recorded the end has no further events.
        if folder.has_shim() && !folder.has_ended() {
            tracing::info!(task = %id, "adopted a running task");
            tokio::spawn(launch::adopt(id, folder, is_running, self.events.clone()));
        } else {
            tracing::info!(task = %id, "the task ended while no agent ran");
            for exit in folder.instance_exits() {
                task.instance_ended(exit, server);
            }
            task.ended(launch::settle(&folder), server);
            cpus.release(&assigned);
        }
        self.insert(task);
    }

    /// Deletes the folders of tasks that ended long ago, and of further ones if they take too much space.
    pub(crate) fn delete_old(&mut self, config: &AgentConfig) {
        let ended = self
            .tasks
            .values()
            .filter(|t| t.has_ended() && t.ended_fact.is_none());
        let mut ended: Vec<(Duration, TaskId, u64)> = ended
            .map(|task| (task.folder.age(), task.id, task.folder.bytes()))
            .collect();
        ended.sort_unstable();
        let mut kept = 0;
        for (age, id, bytes) in ended {
            kept += bytes;
            if age > config.keep_ended || kept > config.keep_ended_bytes {
                self.delete(id);
            }
        }
    }

    fn delete(&mut self, id: TaskId) {
        // Without the folder, only this record shows that the attempt was on this node.
        if logged(self.forbid(id)).is_some()
            && let Some(task) = self.tasks.remove(&id)
        {
            logged(task.folder.delete());
        }
    }
}

/// Returns the value, or logs the error.
fn logged<T>(result: Result<T, AgentError>) -> Option<T> {
    result.map_err(|e| tracing::error!("{e}")).ok()
}
