//! Stopping a task: its trainers agree on a last step if they are connected, otherwise it receives signals. The shim
//! enforces the deadlines.

use dovetail_proto::v1::agent_message::Body;
use dovetail_proto::v1::{Progress, StepReached};
use nix::sys::signal::Signal;
use std::time::Instant;

use crate::agent::progress::StepReport;
use crate::agent::server::ServerLink;
use crate::agent::task::{Phase, Rank, Task};
use crate::clock::boot_ms;
use crate::gates::GateReport;
use crate::process;
use crate::task::record::StopRequest;
use crate::trainer_socket::{TrainerCommand, TrainerMessage};

impl Task {
    /// Stops the task, with a grace period to make a checkpoint.
    pub(crate) fn request_stop(&mut self, reason: &str, server: &ServerLink) {
        let now = boot_ms();
        let grace_ms = self.spec.as_ref().map_or(0, |s| s.grace_ms);
        // Trainers that do not agree in time receive the signal as well, while there is time left to act on it. After a
        // restart of the agent they need a moment to reconnect.
        let has_trainers = self.ranks.values().any(|r| r.commands.is_some()) || self.folder.has_trainers();
        let patience_ms = if has_trainers { grace_ms / 2 } else { 0 };
        self.stop = Some(StopRequest {
            reason: reason.to_owned(),
            terminate_at_ms: Some(now + patience_ms),
            kill_at_ms: now + grace_ms,
            after_step: None,
        });
        tracing::info!(task = %self.id, reason, has_trainers, "stopping task");
        self.forward_stop();
        let finished: Vec<(u32, u64)> = self
            .ranks
            .iter()
            .filter(|(_, r)| r.is_finished && r.commands.is_none())
            .map(|(rank, r)| (*rank, r.step))
            .collect();
        for (rank, step) in finished {
            self.step_reached(rank, step, server);
        }
    }

    /// Kills the task without a grace period.
    pub(crate) fn request_kill(&mut self, reason: &str) {
        let now = boot_ms();
        self.stop = Some(StopRequest {
            reason: reason.to_owned(),
            terminate_at_ms: Some(now),
            kill_at_ms: now,
            after_step: None,
        });
        tracing::info!(task = %self.id, reason, "killing task");
        self.forward_stop();
    }

    /// Forwards a stop request to the shim and the trainers, once the task runs.
    pub(crate) fn forward_stop(&self) {
        if let (Some(stop), Phase::Running) = (&self.stop, &self.phase) {
            let command = match stop.after_step {
                None => TrainerCommand::Stop {
                    reason: stop.reason.clone(),
                },
                Some(step) => TrainerCommand::StopAfterStep { step },
            };
            self.send_to_trainers(&command);
            self.signal_shim(stop);
        }
    }

    /// Lets all trainers stop after this step.
    pub(crate) fn stop_after_step(&mut self, step: u64) {
        let Some(stop) = self.stop.as_mut().filter(|s| s.after_step.is_none()) else {
            return;
        };
        stop.after_step = Some(step);
        // The trainers exit by themselves; only the final deadline remains.
        stop.terminate_at_ms = None;
        tracing::info!(task = %self.id, step, "trainers stop after the same step");
        self.forward_stop();
    }

    /// Writes the stop request for the shim and wakes it. The file makes it survive a restart of the agent.
    fn signal_shim(&self, stop: &StopRequest) {
        if let Err(e) = self.folder.write_stop(stop) {
            tracing::error!(task = %self.id, "{e}");
        }
        let Ok(Some(shim)) = self.folder.shim() else {
            return;
        };
        // The process ID may belong to another process by now.
        let is_shim = process::stat(shim.pid).is_some_and(|s| s.start_ticks == shim.start_ticks);
        if is_shim && self.folder.has_shim() {
            process::signal(shim.pid.cast_signed(), Signal::SIGUSR1);
        }
    }

    /// Adds a trainer that has connected.
    pub(crate) fn trainer_connected(&mut self, rank: u32, world_size: u32, trainer: Rank) {
        self.world_size = world_size;
        let step = self.ranks.remove(&rank).map_or(0, |r| r.step);
        self.ranks.insert(rank, Rank { step, ..trainer });
        if !self.folder.has_trainers()
            && let Err(e) = self.folder.write_has_trainers()
        {
            tracing::warn!(task = %self.id, "{e}");
        }
        self.forward_stop();
    }

    /// Handles a message of a trainer; `gates` says how its stage gates are doing.
    pub(crate) fn trainer_message(
        &mut self,
        rank: u32,
        message: &TrainerMessage,
        gates: Option<GateReport>,
        server: &ServerLink,
    ) {
        let has_roles = self.spec.as_ref().is_some_and(|spec| !spec.instances.is_empty());
        // The first rank reports for the whole gang; with roles, the first one on each node.
        let reports = (rank == 0 || has_roles) && self.ranks.keys().next() == Some(&rank);
        let Some(trainer) = self.ranks.get_mut(&rank) else {
            return;
        };
        match message {
            TrainerMessage::Hello { .. }
            | TrainerMessage::Enter { .. }
            | TrainerMessage::Leave { .. }
            | TrainerMessage::Pass { .. } => {}
            TrainerMessage::Progress {
                step,
                total,
                step_us,
                data_us,
                gpu_us,
                net_us,
                gate_us,
                checkpoint,
            } => {
                trainer.step = *step;
                let report = StepReport {
                    step: *step,
                    total: *total,
                    step_us: *step_us,
                    checkpoint: *checkpoint,
                };
                if reports && self.progress.admit(Instant::now(), report) {
                    server.send_unnumbered(Body::Progress(Progress {
                        task: Some(self.id.into()),
                        step: *step,
                        total_steps: *total,
                        step_time_us: *step_us,
                        data_time_us: *data_us,
                        gpu_time_us: *gpu_us,
                        network_time_us: *net_us,
                        gate_time_us: *gate_us,
                        gates: gates.map(Into::into),
                        checkpoint_step: *checkpoint,
                    }));
                }
            }
            TrainerMessage::StepReached { step } => self.step_reached(rank, *step, server),
            TrainerMessage::Finished { step } => {
                trainer.step = *step;
                trainer.is_finished = true;
            }
        }
    }

    /// Handles the end of a trainer's connection. A trainer that has finished all steps counts as being at its last one, so
    /// that the others need not wait for it.
    pub(crate) fn trainer_disconnected(&mut self, rank: u32, connection: u64, server: &ServerLink) {
        let is_stopping = self.stop.is_some();
        let trainer = self.ranks.get_mut(&rank);
        let Some(trainer) = trainer.filter(|r| r.connection == connection) else {
            return;
        };
        trainer.commands = None;
        if trainer.is_finished && is_stopping && trainer.reached.is_none() {
            let step = trainer.step;
            self.step_reached(rank, step, server);
        }
    }

    /// Records and forwards the last step that a rank has begun. A task on one node agrees without the server.
    fn step_reached(&mut self, rank: u32, step: u64, server: &ServerLink) {
        if let Some(trainer) = self.ranks.get_mut(&rank) {
            trainer.reached = Some(step);
        }
        server.send_unnumbered(Body::StepReached(StepReached {
            task: Some(self.id.into()),
            rank,
            step,
            world_size: self.world_size,
        }));
        let is_single_node = self.spec.as_ref().is_some_and(|s| s.nodes == 1);
        let reached: Vec<u64> = self.ranks.values().filter_map(|r| r.reached).collect();
        let is_complete = reached.len() >= self.world_size as usize;
        if let Some(step) = reached.into_iter().max()
            && is_single_node
            && is_complete
        {
            self.stop_after_step(step);
        }
    }
}
