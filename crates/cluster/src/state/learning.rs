//! What the cluster has learned from its jobs, and what that says about a job whose user states less.

use std::collections::BTreeSet;
use std::sync::Arc;

use dovetail_learning::{
    Conditions, JobTraits, LearnedGroups, LearnedProfiles, Prediction, RunTimePredictor, StepSample, UNNAMED,
    model_key,
};
use dovetail_model::sensitivity::{Points, Sensitivity};
use dovetail_model::stages::period_us;
use dovetail_model::{InterleavingTerms, JobSpec, Scaling, SpeedTable, Stages, Time, Work};
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
    #[serde(default, skip_serializing_if = "LearnedGroups::is_empty")]
    groups: LearnedGroups,
    /// Keys of profiles that changed, and of which unfinished jobs were not told yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    changed: BTreeSet<String>,
    /// When jobs were told last.
    #[serde(default)]
    respecified_at: Time,
}

/// Shortest time between two changes of profiles of which jobs are told: that takes a look at all unfinished jobs.
const RESPECIFY_INTERVAL: Time = Time::from_secs(1);

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
    /// What a restart costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_cost: Option<Time>,
}

impl LearnedTraits {
    /// Adds to the specification of a job what its user does not state.
    pub(super) fn fill(&self, spec: &mut JobSpec) {
        spec.expected = spec.expected.or(self.estimate.map(|estimate| estimate.expected));
        spec.stages = spec.stages.or(self.stages);
        spec.restart_cost = self.restart_cost;
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

    /// Returns the measured periods of groups of models.
    pub(super) fn groups(&self) -> &LearnedGroups {
        &self.groups
    }

    /// Forgets the profile of a model. Returns the groups that are forgotten with it.
    pub(super) fn forget_profile(&mut self, key: &str) -> Vec<Vec<String>> {
        self.profiles.forget(key);
        self.groups.forget(key)
    }

    /// Learns the measured period of jobs that interleave their stages. Returns their models; none if it is not known what was
    /// planned for them.
    pub(super) fn learn_period(
        &mut self,
        now: Time,
        members: &[&JobRecord],
        measured: Time,
    ) -> Option<Vec<String>> {
        let terms = members.iter().map(|job| job.attempt()?.interleaving);
        let terms: Vec<InterleavingTerms> = terms.collect::<Option<_>>()?;
        let stages: Vec<Stages> = terms.iter().map(|terms| terms.stages).collect();
        let ordering = terms.iter().map(|terms| terms.ordering).min()?;
        let models: Vec<String> = members.iter().map(|job| key_of(job)).collect();
        let planned_us = period_us(&stages, ordering);
        self.groups
            .record(now, models.clone(), measured.0.unsigned_abs(), planned_us);
        Some(models)
    }

    /// Returns what other jobs say about a job.
    pub(super) fn about(&self, job: &JobRecord, nodes: &NodeTable) -> LearnedTraits {
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
                profile.cpu_curve(request.gpus, cpu_milli, memory_mib_per_gpu(job, nodes))
            }),
            restart_cost: profile.and_then(|profile| profile.restarts.cost()),
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

    /// Returns the key of a profile that changed, if it is time to tell unfinished jobs of it.
    pub(super) fn take_changed(&mut self, now: Time) -> Option<String> {
        if now.since(self.respecified_at) < RESPECIFY_INTERVAL {
            return None;
        }
        let key = self.changed.pop_first()?;
        self.respecified_at = now;
        Some(key)
    }

    /// Replaces what a job was told about its model by what its profile says now. Returns whether that differs.
    pub(super) fn renew(&self, job: &JobRecord, nodes: &NodeTable, traits: &mut LearnedTraits) -> bool {
        let now = self.about(job, nodes);
        let renewed = LearnedTraits {
            estimate: traits.estimate,
            prediction: traits.prediction,
            ..now
        };
        let is_same = renewed == *traits;
        *traits = renewed;
        !is_same
    }

    /// Learns what it cost to stop a job and to start it again.
    pub(super) fn learn_restart(&mut self, now: Time, job: &JobRecord, cost: Time) {
        let key = key_of(job);
        if self.profiles.record_restart(now, &key, cost) {
            self.changed.insert(key);
        }
    }

    /// Learns from the steps that a job has reported last. Returns whether they were measured under steady conditions.
    pub(super) fn learn_steps(
        &mut self,
        job: &JobRecord,
        nodes: &NodeTable,
        beside: Option<String>,
        (now, knows_of_changes): (Time, bool),
    ) -> bool {
        let (Some(attempt), Ok(step_us)) = (job.attempt(), u32::try_from(job.progress.step_time.0)) else {
            return false;
        };
        if step_us == 0 || !attempt.has_settled(now, job.progress.step, knows_of_changes) {
            return false;
        }
        let allocation = &attempt.allocation;
        let gpus = allocation.gpus();
        let given = attempt.cpu_milli_per_gpu();
        let gpu_type = allocation.shares.first().and_then(|share| nodes.get(share.node));
        let conditions = Conditions {
            gpus,
            nodes: u32::try_from(allocation.shares.len()).unwrap_or(u32::MAX),
            gpu_type: gpu_type.map(|node| node.gpu_type.clone()).unwrap_or_default(),
            cpu_milli_per_gpu: attempt
                .trial
                .as_ref()
                .map_or(given, |trial| trial.cpu_milli_per_gpu),
            gated: beside.is_some() && attempt.gates().is_some(),
            beside,
        };
        let stages = attempt.stages.as_deref().cloned().unwrap_or_default();
        let part = |time: Time| u32::try_from(time.0).unwrap_or(0).min(step_us);
        // A wait at gates is part of a step beside other jobs, but not of one alone.
        let waited = match conditions.beside {
            Some(_) => 0,
            None => part(stages.gate_time),
        };
        let sample = StepSample {
            step_us: (step_us - waited).max(1),
            data_us: part(job.progress.data_time),
            gpu_us: part(stages.gpu_time),
            net_us: part(stages.network_time),
        };
        let timed = job.progress_samples.iter().filter(|s| s.step_time > Time::ZERO);
        let is_first = timed.take(2).count() == 1;
        let key = key_of(job);
        if self.profiles.record(now, &key, &conditions, sample, is_first) {
            self.changed.insert(key);
        }
        true
    }
}

/// Returns the memory per GPU that a job needs, in MiB. That is not measured: without a request, it is the proportional share
/// of the nodes that the job runs on, or of the node with the least.
fn memory_mib_per_gpu(job: &JobRecord, nodes: &NodeTable) -> u64 {
    if job.request.memory_mib_per_gpu > 0 {
        return job.request.memory_mib_per_gpu;
    }
    let attempt = job.attempt().filter(|attempt| attempt.end.is_none());
    let is_used = |id| attempt.is_none_or(|attempt| attempt.place_of(id).is_some());
    let specs = nodes
        .iter()
        .filter(|(id, _)| is_used(*id))
        .map(|(_, node)| &node.spec);
    let shares = specs
        .filter(|spec| spec.gpus > 0)
        .map(|spec| spec.memory_mib / u64::from(spec.gpus));
    shares.min().unwrap_or(0)
}

/// Returns whether a job has the profile with this key.
pub(super) fn has_key(job: &JobRecord, key: &str) -> bool {
    match (&job.request.model, key.strip_prefix(UNNAMED)) {
        (Some(model), _) => model == key,
        (None, Some(rest)) => rest
            .strip_prefix(job.user.as_str())
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|name| name == job.request.name),
        (None, None) => false,
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
