//! The truth about each job, which the engine never sees.

use std::collections::BTreeMap;

use crate::sharing::SlotId;
use dovetail_engine::Knowledge;
use dovetail_model::{
    Allocation, AttemptKey, GpuTypeId, IdVec, JobKey, JobSpec, ModelId, Rate, Stages, Time, Work,
};
use dovetail_workload::stages::StageColumns;
use dovetail_workload::{TraceJob, Workload};

use crate::predictor::TracePredictor;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The phase of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    Starting,
    Running,
    Done,
}

/// The truth about one job.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    pub(crate) left: Work,
    pub(crate) phase: Phase,
    pub(crate) attempt: AttemptKey,
    pub(crate) rate: Rate,
    /// Its speed with exclusive use of its GPUs.
    pub(crate) alone: Rate,
    /// The share of that speed it keeps next to other jobs.
    pub(crate) kept: Rate,
    /// Number of times its completion was scheduled; only the last one counts.
    pub(crate) epoch: u32,
    /// Since when it makes progress at `rate`.
    pub(crate) since: Time,
    pub(crate) launched: Time,
    pub(crate) width: u32,
    pub(crate) held: Time,
    /// GPUs × microseconds it has held.
    pub(crate) gpu_time: i128,
    pub(crate) first_start: Option<Time>,
    pub(crate) finish: Option<Time>,
    pub(crate) preemptions: u32,
    pub(crate) rejected: bool,
    /// Integral of active jobs at submission; then the mean over the job's lifetime.
    pub(crate) contention: f64,
    /// The GPUs it runs on, while it may share them.
    pub(crate) slot: Option<SlotId>,
    /// Its allocation, while the GPU timeline is recorded.
    pub(crate) place: Option<Box<Allocation>>,
}

impl Truth {
    pub(crate) fn new(work: Work, contention: f64) -> Self {
        Self {
            left: work,
            phase: Phase::Idle,
            attempt: AttemptKey(0),
            rate: Rate::FULL,
            alone: Rate::FULL,
            kept: Rate::FULL,
            epoch: 0,
            since: Time::ZERO,
            launched: Time::ZERO,
            width: 0,
            held: Time::ZERO,
            gpu_time: 0,
            first_start: None,
            finish: None,
            preemptions: 0,
            rejected: false,
            contention,
            slot: None,
            place: None,
        }
    }

    /// Returns the total time it has been without GPUs since its submission.
    pub(crate) fn waited(&self, now: Time, submit: Time) -> Time {
        now.since(submit).since(self.held)
    }

    /// Counts the progress up to `now`. If the job was lost, only whole checkpoint intervals count.
    pub(crate) fn stop(&mut self, now: Time, lost_since_checkpoint: Option<Time>) {
        if self.phase == Phase::Running {
            let ran = now.since(self.since);
            let kept = match lost_since_checkpoint {
                Some(interval) if interval > Time::ZERO => Time(ran.0 / interval.0 * interval.0),
                _ => ran,
            };
            self.left = self.left.minus(self.rate.work_in(kept));
        }
        let span = now.since(self.launched);
        self.held += span;
        self.gpu_time += i128::from(span.0) * i128::from(self.width);
        self.phase = Phase::Idle;
    }
}

/// Converts trace jobs to specs for the engine, with as much of the truth as the run's knowledge allows.
#[derive(Debug)]
pub(crate) struct KnowledgeFilter {
    knowledge: Knowledge,
    error: f64,
    generator: ChaCha8Rng,
    gpu_types: Vec<GpuTypeId>,
    stages: Option<StageColumns>,
    gpu_memory: IdVec<ModelId, u64>,
    stages_of_model: BTreeMap<(ModelId, u32), Stages>,
    predictor: Option<Box<TracePredictor>>,
    /// Whether the trace states run times.
    has_estimates: bool,
    /// What a restart costs, if it costs anything.
    restart_cost: Option<Time>,
}

impl KnowledgeFilter {
    pub(crate) fn new(knowledge: Knowledge, config: &crate::SimConfig, workload: &Workload) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(config.seed);
        generator.set_stream(3);
        let find = |name: &String| {
            let known = config.cluster.gpu_types.iter().find(|(_, n)| *n == name);
            // A GPU type that the cluster does not have: no node will match it.
            known.map_or(GpuTypeId(u32::MAX), |(id, _)| id)
        };
        let gpu_types = workload.names.gpu_types.values().map(find).collect();
        Self {
            knowledge,
            error: config.estimate_error,
            generator,
            gpu_types,
            stages: StageColumns::find(workload),
            gpu_memory: config.gpu_memory.clone(),
            stages_of_model: config.stages.clone(),
            predictor: (knowledge == Knowledge::Predicted).then(|| Box::new(TracePredictor::new(workload))),
            restart_cost: (config.restart_cost > Time::ZERO).then_some(config.restart_cost),
            has_estimates: workload.jobs.iter().any(|job| job.expected_us.is_some()),
        }
    }

    /// Returns the stages of a job's iterations, where the trace has them.
    pub(crate) fn stages(&self, job: &TraceJob) -> Option<Stages> {
        let stated = self.stages.as_ref().and_then(|s| s.stages(job));
        stated.or_else(|| self.stages_of_model.get(&(job.model?, job.gpus)).copied())
    }

    /// Learns from a job that has ended, if run times are predicted.
    pub(crate) fn learn(&mut self, job: &TraceJob) {
        if let Some(predictor) = &mut self.predictor {
            predictor.learn(job);
        }
    }

    pub(crate) fn spec(&mut self, id: JobKey, job: &TraceJob) -> JobSpec {
        let expected = match self.knowledge {
            Knowledge::None => None,
            Knowledge::Oracle => Some(job.work),
            Knowledge::Predicted => {
                let predictor = self.predictor.as_ref();
                let predicted = || predictor.and_then(|predictor| predictor.predict(job));
                job.expected().or_else(predicted)
            }
            Knowledge::Estimate if self.has_estimates => job.expected(),
            Knowledge::Estimate => {
                let factor = libm::exp(self.error * self.normal());
                Some(Work(((job.work.0 as f64 * factor).min(1e18) as u64).max(1)))
            }
        };
        JobSpec {
            id,
            place: id.0,
            tenant: job.tenant,
            user: job.user,
            priority: job.priority,
            gpus: job.gpus,
            gpus_per_task: 1,
            min_gpus: job.min_gpus.min(job.gpus),
            max_gpus: job.max_gpus.max(job.gpus),
            gpu_type: job.gpu_type.map(|t| self.gpu_types[t.0 as usize]),
            constraint: None,
            best_effort: false,
            cpu_milli_per_gpu: job.cpu_milli_per_gpu,
            memory_mib_per_gpu: job.memory_mib_per_gpu,
            gpu_memory_mib: match job.gpu_memory_mib {
                0 => job
                    .model
                    .and_then(|m| self.gpu_memory.get(m))
                    .copied()
                    .unwrap_or(0),
                stated => stated,
            },
            model: job.model,
            profile_key: None,
            stages: self.stages(job),
            sensitivity: job.sensitivity.clone(),
            scaling: job.scaling.clone(),
            restart_cost: self.restart_cost,
            submit: job.submit,
            expected,
            deadline: job.deadline,
        }
    }

    /// Draws a standard normal number (Box and Muller).
    fn normal(&mut self) -> f64 {
        let mut uniform = || ((self.generator.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let (a, b) = (uniform(), uniform());
        libm::sqrt(-2.0 * libm::log(a)) * libm::cos(std::f64::consts::TAU * b)
    }
}
