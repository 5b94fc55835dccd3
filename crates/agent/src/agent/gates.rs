//! Stage gates between trainers and the pure state machine that decides who may begin a stage.

use dovetail_model::stages::{InterleavingTerms, Ordering, Stages};
use dovetail_proto::v1;
use tokio::time::Instant;

use crate::agent::task::{Phase, Task};
use crate::gates::{GateEvent, GateReport, GateTask, Micros, StageGates};
use crate::trainer_socket::TrainerMessage;

/// The gates of the node, with the clock that they use.
pub(super) struct NodeGates {
    pub(super) gates: StageGates,
    /// The tasks that they know.
    pub(super) tasks: Vec<GateTask>,
    pub(super) begin: Instant,
}

impl Default for NodeGates {
    fn default() -> Self {
        Self {
            gates: StageGates::default(),
            tasks: Vec::new(),
            begin: Instant::now(),
        }
    }
}

impl NodeGates {
    pub(super) fn now(&self) -> Micros {
        Micros::try_from(self.begin.elapsed().as_micros()).unwrap_or(Micros::MAX)
    }
}

/// Returns what a message says about a gate, with its step.
pub(super) fn gate_event(message: &TrainerMessage) -> Option<(u64, GateEvent)> {
    match message {
        TrainerMessage::Enter { stage, step } => Some((*step, GateEvent::Entered((*stage).into()))),
        TrainerMessage::Leave { stage, step } => Some((*step, GateEvent::Left((*stage).into()))),
        TrainerMessage::Pass { step } => Some((*step, GateEvent::Passed)),
        TrainerMessage::Hello { .. }
        | TrainerMessage::Progress { .. }
        | TrainerMessage::StepReached { .. }
        | TrainerMessage::Finished { .. } => None,
    }
}

/// Returns a task as gates see it; none unless it runs and is not stopping.
pub(super) fn gate_task(task: &Task) -> Option<GateTask> {
    if task.phase != Phase::Running || task.stop.is_some() {
        return None;
    }
    let spec = task.spec.as_ref().filter(|spec| !spec.slots.is_empty())?;
    let trainers = task
        .ranks
        .iter()
        .filter(|(_, r)| r.understands_gates && r.commands.is_some());
    Some(GateTask {
        id: task.id,
        slots: spec.slots.clone(),
        terms: spec.interleaving,
        trainers: trainers.map(|(rank, r)| (*rank, r.connection)).collect(),
    })
}

/// Returns the terms in a command; none if it does not have three or four stages.
pub(super) fn terms(message: &v1::Interleaving) -> Option<InterleavingTerms> {
    let times = message.stage_us.as_slice();
    let mut times_us = [0; 4];
    if !(3..=4).contains(&times.len()) {
        return None;
    }
    times_us[..times.len()].copy_from_slice(times);
    Some(InterleavingTerms {
        stages: Stages {
            times_us,
            four: times.len() == 4,
            iteration_us: message.iteration_us,
        },
        ordering: match message.worst_order {
            true => Ordering::Worst,
            false => Ordering::Best,
        },
    })
}

impl From<GateReport> for v1::StageGates {
    fn from(report: GateReport) -> Self {
        Self {
            planned_period_us: report.planned_us,
            measured_period_us: report.measured_us,
            partners: report.partners,
        }
    }
}
