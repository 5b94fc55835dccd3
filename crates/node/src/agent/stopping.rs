//! Stopping a task: by agreement with its trainers where they talk to us, else by signals. The shim keeps the time.

use dovetail_proto::v1::from_agent::What;
use dovetail_proto::v1::{AtStep, Progress, StopTask, TaskEnded};
use nix::sys::signal::Signal;
use tokio::time::{Duration, Instant};

use crate::agent::state::{Agent, Phase, Rank, Task};
use crate::link;
use crate::process;
use crate::task::record::{Key, Stop};
use crate::trainers::{FromTrainer, ToTrainer, TrainerEvent};

/// Progress of a task is passed on this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

impl Agent {
    /// The scheduler wants a task to stop.
    pub(super) fn stop(&mut self, order: &StopTask) {
        let key: Key = order.task.unwrap_or_default().into();
        let Some(task) = self.tasks.get(&key) else {
            self.stop_unknown(key);
            return;
        };
        if !task.is_live() {
            self.repeat_facts(key);
        } else if order.kill {
            self.kill(key, &order.reason);
        } else if task.stop.is_none() {
            self.stop_softly(key, &order.reason);
        } else {
            // The deadlines stay; the first order may not have reached everybody.
            self.stop_if_told(key);
        }
    }

    /// It is not here. Should the order to start it still be on its way, it must not be followed.
    fn stop_unknown(&mut self, key: Key) {
        let fenced = self.generations.lock().map_or(Ok(()), |mut g| g.advance(key));
        if let Err(e) = fenced {
            // Not answered: the order is repeated, and by then there may be room on the disk.
            tracing::error!("{e}");
            return;
        }
        self.answer(TaskEnded {
            task: Some(key.into()),
            was_stopped: true,
            ..Default::default()
        });
    }

    fn stop_softly(&mut self, key: Key, reason: &str) {
        let now = self.now_ms();
        let Some(task) = self.tasks.get_mut(&key) else {
            return;
        };
        let grace = task.spec.as_ref().map_or(0, |s| s.grace_ms);
        // Trainers that do not agree in time get the signal as well, while there is time left to act on it.
        // After a restart of the agent they take a moment to come back.
        let has_trainers = task.ranks.values().any(|r| r.replies.is_some()) || task.folder.has_trainers();
        let patience = if has_trainers { grace / 2 } else { 0 };
        task.stop = Some(Stop {
            reason: reason.to_owned(),
            terminate_at_ms: Some(now + patience),
            kill_at_ms: now + grace,
            after_step: None,
        });
        tracing::info!(task = %key, reason, has_trainers, "stops");
        let through = task
            .ranks
            .iter()
            .filter(|(_, r)| r.is_finished && r.replies.is_none());
        let through: Vec<(u32, u64)> = through.map(|(number, r)| (*number, r.step)).collect();
        self.stop_if_told(key);
        for (number, step) in through {
            self.at_step(key, number, step);
        }
    }

    /// Ends a task at once.
    pub(super) fn kill(&mut self, key: Key, reason: &str) {
        let now = self.now_ms();
        let Some(task) = self.tasks.get_mut(&key) else {
            return;
        };
        task.stop = Some(Stop {
            reason: reason.to_owned(),
            terminate_at_ms: Some(now),
            kill_at_ms: now,
            after_step: None,
        });
        tracing::info!(task = %key, reason, "is killed");
        self.stop_if_told(key);
    }

    /// Passes on that a task is to stop: to its shim and to its trainers.
    pub(super) fn stop_if_told(&mut self, key: Key) {
        let Some(task) = self.tasks.get(&key) else { return };
        if let (Some(stop), Phase::Running) = (&task.stop, &task.phase) {
            let word = match stop.after_step {
                None => ToTrainer::Stop {
                    reason: stop.reason.clone(),
                },
                Some(step) => ToTrainer::StopAt { step },
            };
            task.tell_trainers(&word);
            wake_shim(key, task, stop);
        }
    }

    /// All ranks stop after this step.
    pub(super) fn stop_at(&mut self, key: Key, step: u64) {
        let Some(task) = self.tasks.get_mut(&key) else {
            return;
        };
        let Some(stop) = task.stop.as_mut().filter(|s| s.after_step.is_none()) else {
            return;
        };
        stop.after_step = Some(step);
        // They need no signal now; the last deadline stays.
        stop.terminate_at_ms = None;
        tracing::info!(task = %key, step, "its trainers stop after the same step");
        self.stop_if_told(key);
    }

    /// A trainer said something.
    pub(super) fn of_trainer(&mut self, event: TrainerEvent) {
        match event {
            TrainerEvent::Arrived {
                connection,
                secret,
                rank,
                world,
                replies,
            } => {
                let of =
                    |task: &Task| task.is_live() && task.spec.as_ref().is_some_and(|s| s.secret == secret);
                let Some((key, task)) = self.tasks.iter_mut().find(|(_, task)| of(task)) else {
                    // Forgetting the connection closes it.
                    return;
                };
                let key = *key;
                task.world = world;
                let known = task.ranks.remove(&rank);
                let arrived = Rank {
                    connection,
                    replies: Some(replies),
                    step: known.as_ref().map_or(0, |r| r.step),
                    at_step: None,
                    is_finished: false,
                };
                task.ranks.insert(rank, arrived);
                if !task.folder.has_trainers()
                    && let Err(e) = task.folder.write_has_trainers()
                {
                    tracing::warn!(task = %key, "{e}");
                }
                self.connections.insert(connection, (key, rank));
                self.stop_if_told(key);
            }
            TrainerEvent::Said { connection, what } => self.trainer_said(connection, &what),
            TrainerEvent::Left { connection } => self.trainer_left(connection),
        }
    }

    fn trainer_said(&mut self, connection: u64, what: &FromTrainer) {
        let Some((key, number)) = self.connections.get(&connection).copied() else {
            return;
        };
        let Some(task) = self.tasks.get_mut(&key) else {
            return;
        };
        let is_first = task.ranks.keys().next() == Some(&number);
        let Some(rank) = task.ranks.get_mut(&number) else {
            return;
        };
        match what {
            FromTrainer::Hello { .. } => {}
            FromTrainer::Progress {
                step,
                total,
                step_us,
                checkpoint,
            } => {
                rank.step = *step;
                let is_due = task.last_progress.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY);
                // One rank speaks for all of them.
                if is_first && (is_due || step == total) {
                    task.last_progress = Some(Instant::now());
                    let progress = Progress {
                        task: Some(key.into()),
                        step: *step,
                        total_steps: *total,
                        step_time_us: *step_us,
                        checkpoint_step: *checkpoint,
                    };
                    self.say_if_welcome(What::Progress(progress));
                }
            }
            FromTrainer::AtStep { step } => self.at_step(key, number, *step),
            FromTrainer::Finished { step } => {
                rank.step = *step;
                rank.is_finished = true;
            }
        }
    }

    /// A rank that has done all its steps counts as being at the last one: the others need not wait for it.
    fn trainer_left(&mut self, connection: u64) {
        let Some((key, number)) = self.connections.remove(&connection) else {
            return;
        };
        let Some(task) = self.tasks.get_mut(&key) else {
            return;
        };
        let is_stopping = task.stop.is_some();
        let Some(rank) = task.ranks.get_mut(&number).filter(|r| r.connection == connection) else {
            return;
        };
        rank.replies = None;
        if rank.is_finished && is_stopping && rank.at_step.is_none() {
            let step = rank.step;
            self.at_step(key, number, step);
        }
    }

    /// Tells the scheduler where a rank is. If all ranks are here, there is nobody else to agree with.
    fn at_step(&mut self, key: Key, rank: u32, step: u64) {
        let Some(task) = self.tasks.get_mut(&key) else {
            return;
        };
        if let Some(known) = task.ranks.get_mut(&rank) {
            known.at_step = Some(step);
        }
        let at = AtStep {
            task: Some(key.into()),
            rank,
            step,
            world: task.world,
        };
        let is_alone = task.spec.as_ref().is_some_and(|s| s.nodes == 1);
        let known: Vec<u64> = task.ranks.values().filter_map(|r| r.at_step).collect();
        let agreed = known.iter().max().copied();
        let all_are_known = known.len() >= task.world as usize;
        self.say_if_welcome(What::AtStep(at));
        if let Some(step) = agreed.filter(|_| is_alone && all_are_known) {
            self.stop_at(key, step);
        }
    }

    fn say_if_welcome(&self, what: What) {
        if self.link.is_welcome {
            self.say(link::unnumbered(what));
        }
    }
}

/// Writes the order for the shim and wakes it. Without the file it would not know of the order after a restart.
fn wake_shim(key: Key, task: &Task, stop: &Stop) {
    if let Err(e) = task.folder.write_stop(stop) {
        tracing::error!(task = %key, "{e}");
    }
    let Ok(Some(running)) = task.folder.running() else {
        return;
    };
    let is_it = process::stat(running.pid).is_some_and(|s| s.start_ticks == running.start_ticks);
    // The number may be another process by now.
    if is_it && task.folder.is_held() {
        process::signal(running.pid.cast_signed(), Signal::SIGUSR1);
    }
}
