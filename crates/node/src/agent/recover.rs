//! What an agent finds in its folder when it starts.

use std::time::Duration;

use crate::agent::launch;
use crate::agent::state::{Agent, Phase, Task, TaskEvent};
use crate::error::{At, NodeError};
use crate::task::folder::TaskFolder;
use crate::task::record::Key;

impl Agent {
    /// Takes up the tasks that another agent left: those that run are watched, those that ended are told. What cannot
    /// be read is reported, and the task is told as lost.
    pub(super) fn recover(&mut self) -> Result<(), NodeError> {
        let folder = self.config.folder.join("tasks");
        for entry in std::fs::read_dir(&folder).at(&folder)? {
            let entry = entry.at(&folder)?;
            let name = entry.file_name();
            match name.to_str().and_then(Key::of_folder) {
                Some(key) => self.take_up(key),
                None => tracing::warn!("{}: not a task; left alone", entry.path().display()),
            }
        }
        Ok(())
    }

    fn take_up(&mut self, key: Key) {
        let folder = TaskFolder::of(&self.config.folder, key);
        let mut spec = report(folder.spec()).flatten();
        if let Some(spec) = &mut spec {
            spec.processes.clear();
        }
        if folder.is_told() {
            // Its log can still be read.
            let phase = Phase::Ended(Box::default());
            self.tasks.insert(key, Task::new(folder, spec, phase));
            return;
        }
        let running = report(folder.running()).flatten();
        let phase = if running.is_some() {
            Phase::Running
        } else {
            Phase::Starting
        };
        let mut task = Task::new(folder.clone(), spec, phase);
        task.stop = report(folder.stop()).flatten();
        if let Some(spec) = &task.spec {
            self.cpus.mark(&spec.cpus);
        }
        if running.is_some() {
            task.started_fact = Some(self.next_number());
        }
        self.tasks.insert(key, task);
        // A shim that has written the end has nothing more to say.
        if folder.is_held() && !folder.is_over() {
            tracing::info!(task = %key, "runs, and is taken up again");
            tokio::spawn(launch::adopt(key, folder, running.is_some(), self.events.clone()));
        } else {
            for end in folder.ends() {
                self.of_task(key, TaskEvent::InstanceEnded(end));
            }
            let ending = launch::settle(&folder);
            tracing::info!(task = %key, "ended while there was no agent");
            self.of_task(key, TaskEvent::Ended(Box::new(ending)));
        }
    }

    /// Deletes what is left of tasks that ended long ago, and of more if they take too much room.
    pub(super) fn delete_old(&mut self) {
        let over = |task: &Task| !task.is_live() && task.ended_fact.is_none();
        let ended = self.tasks.iter().filter(|(_, task)| over(task));
        let mut ended: Vec<(Duration, Key, u64)> = ended
            .map(|(key, task)| (task.folder.age(), *key, task.folder.bytes()))
            .collect();
        ended.sort_unstable();
        let mut kept = 0;
        for (age, key, bytes) in ended {
            kept += bytes;
            if age > self.config.keep_ended || kept > self.config.keep_ended_bytes {
                self.delete(key);
            }
        }
    }

    fn delete(&mut self, key: Key) {
        // Once the folder is gone, the file alone knows that this generation was here.
        let advanced = self.generations.lock().map_or(Ok(()), |mut g| g.advance(key));
        if report(advanced).is_some()
            && let Some(task) = self.tasks.remove(&key)
        {
            report(task.folder.delete());
        }
    }
}

/// The value, or a line in the agent's log.
fn report<T>(result: Result<T, NodeError>) -> Option<T> {
    result.map_err(|e| tracing::error!("{e}")).ok()
}
