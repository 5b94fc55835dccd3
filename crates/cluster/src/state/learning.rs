//! What the cluster has learned from its jobs, and what that says about a job whose user states less.

use std::sync::Arc;

use dovetail_learning::{
    Conditions, JobTraits, LearnedProfiles, Prediction, RunTimePredictor, StepSample, model_key,
};
use dovetail_model::sensitivity::{Points, Sensitivity};
use dovetail_model::{JobSpec, Scaling, SpeedTable, Stages, Time, Work};
use serde::{Deserialize, Serialize};

use super::jobs::{End, Estimate, EstimateSource, JobRecord};
use super::nodes::NodeTable;

/// Run times and profiles.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Learning {
    #[serde(default)]
    run_times: RunTimePredictor,
    #[serde(default, skip_serializing_if = "LearnedProfiles::is_empty")]
    profiles: LearnedProfiles,
}

/// What was known about a job from other jobs when it was queued.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LearnedTraits {
    /// Its run time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// The prediction from which the run time is taken, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
    /// Stages of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Stages>,
    /// Speed by number of GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speeds: Option<SpeedTable>,
    /// Speed by CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_curve: Option<Points>,
}

impl LearnedTraits {
    /// Adds to the specification of a job what its user does not state.
    pub(super) fn fill(&self, spec: &mut JobSpec) {
        spec.expected = spec.expected.or(self.estimate.map(|estimate| estimate.expected));
        spec.stages = spec.stages.or(self.stages);
        if let (Scaling::Linear, Some(speeds)) = (&spec.scaling, &self.speeds) {
            spec.scaling = Scaling::Measured(speeds.clone().into());
        }
        if spec.sensitivity.is_none() {
            let curve = self
                .cpu_curve
                .clone()
                .and_then(|points| Sensitivity::try_from(points).ok());
            spec.sensitivity = curve.map(Arc::new);
        }
    }
}

impl Learning {
    /// Returns the profiles of models.
    pub(super) fn profiles(&self) -> &LearnedProfiles {
        &self.profiles
    }

    /// Forgets the profile of a model.
    pub(super) fn forget_profile(&mut self, key: &str) {
        self.profiles.forget(key);
    }

    /// Returns what other jobs say about a job.
    pub(super) fn about(&self, job: &JobRecord) -> LearnedTraits {
        let request = &job.request;
        let profile = self.profiles.get(&key_of(job));
        let from_profile = profile.and_then(|profile| {
            let step_us = profile.on(request.gpus)?.median().step_us;
            let expected = Work(u64::from(step_us).saturating_mul(request.total_steps?));
            let source = EstimateSource::Profile;
            Some(Estimate { expected, source })
        });
        let prediction = match (request.expected, from_profile) {
            (None, None) => self.run_times.predict(&traits(job)),
            _ => None,
        };
        let predicted = prediction.map(|prediction| Estimate {
            expected: prediction.median,
            source: EstimateSource::Prediction,
        });
        LearnedTraits {
            estimate: from_profile.or(predicted),
            prediction,
            stages: profile.and_then(|profile| profile.stages(request.gpus)),
            speeds: profile.and_then(dovetail_learning::LearnedProfile::speeds),
            cpu_curve: profile.and_then(|profile| {
                let cpu_milli = request.cpus_per_gpu.milli();
                profile.cpu_curve(request.gpus, cpu_milli, request.memory_mib_per_gpu)
            }),
        }
    }

    /// Learns the run time of a job that has ended by itself.
    pub(super) fn learn_run_time(&mut self, job: &JobRecord, end: &End) {
        if !matches!(end, End::Completed | End::Failed { .. } | End::TimeLimit) {
            return;
        }
        let work = match job.estimate() {
            Some(steps) if *end == End::Completed && steps.source == EstimateSource::Steps => steps.expected,
            _ => job.held_work(),
        };
        if work > Work(0) {
            self.run_times.learn(&traits(job), work);
        }
    }

    /// Learns from the steps that a job has reported last.
    pub(super) fn learn_steps(
        &mut self,
        job: &JobRecord,
        nodes: &NodeTable,
        beside: Option<String>,
        now: Time,
    ) {
        let (Some(attempt), Ok(step_us)) = (job.attempt(), u32::try_from(job.progress.step_time.0)) else {
            return;
        };
        if step_us == 0 {
            return;
        }
        let allocation = &attempt.allocation;
        let gpus = allocation.gpus();
        let cpu_milli: u64 = allocation
            .shares
            .iter()
            .map(|share| u64::from(share.cpu_milli))
            .sum();
        let gpu_type = allocation.shares.first().and_then(|share| nodes.get(share.node));
        let conditions = Conditions {
            gpus,
            nodes: u32::try_from(allocation.shares.len()).unwrap_or(u32::MAX),
            gpu_type: gpu_type.map(|node| node.gpu_type.clone()).unwrap_or_default(),
            cpu_milli_per_gpu: u32::try_from(cpu_milli / u64::from(gpus.max(1))).unwrap_or(u32::MAX),
            beside,
        };
        let sample = StepSample {
            step_us,
            data_us: u32::try_from(job.progress.data_time.0).unwrap_or(0).min(step_us),
            net_us: 0,
        };
        let timed = job.progress_samples.iter().filter(|s| s.step_time > Time::ZERO);
        let is_first = timed.take(2).count() == 1;
        self.profiles
            .record(now, &key_of(job), &conditions, sample, is_first);
    }
}

/// Returns the key of the profile of a job.
pub(crate) fn key_of(job: &JobRecord) -> String {
    model_key(job.request.model.as_deref(), &job.user, &job.request.name)
}

fn traits(job: &JobRecord) -> JobTraits<'_> {
    JobTraits {
        user: &job.user,
        name: &job.request.name,
        model: job.request.model.as_deref(),
        virtual_cluster: &job.request.tenant,
        gpus: job.request.gpus,
        submitted: job.submitted,
    }
}
