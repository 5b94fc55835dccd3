//! Profiles of models, and estimates of run times.

use std::collections::BTreeMap;

use dovetail_cluster::state::{EstimateSource, JobRecord};
use dovetail_learning::{LearnedProfile, Measurement, Prediction};
use dovetail_model::{Time, Work};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The profile of a model, measured while its jobs ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileView {
    /// The model that jobs state, or the user and name of jobs that state none: `~ann/train`.
    pub model: String,
    /// Number of jobs that were measured.
    pub jobs: u64,
    /// Time of the last measurement.
    #[schemars(with = "i64")]
    pub updated: Time,
    /// Duration of steps, by where they were measured.
    pub measurements: Vec<MeasurementView>,
    /// Speed by number of GPUs, relative to the fewest; empty unless at least two numbers were measured.
    pub scaling: BTreeMap<u32, f64>,
    /// What it costs to stop a job and to start it again from its last checkpoint, in seconds; none before the first restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_s: Option<f64>,
    /// Number of latest restarts from which that is known.
    #[serde(default)]
    pub restarts: u64,
}

/// Steps that were measured under the same conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasurementView {
    /// GPUs of the job.
    pub gpus: u32,
    /// Nodes they are on.
    pub nodes: u32,
    /// Type of the GPUs.
    pub gpu_type: String,
    /// CPUs per GPU; 0 if not limited.
    pub cpus_per_gpu: f64,
    /// Model of the job that was on the same GPUs.
    pub beside: Option<String>,
    /// Number of samples.
    pub samples: u64,
    /// Median duration of a step, in milliseconds.
    pub step_ms: f64,
    /// Part of it that waits for data.
    pub data_ms: f64,
    /// Part of it that communicates.
    pub net_ms: f64,
    /// Range that contains nine in ten of the latest samples, in milliseconds.
    pub spread_ms: f64,
    /// How many times longer a step takes than alone; none if it was measured alone.
    pub slowdown: Option<f64>,
}

impl ProfileView {
    pub(crate) fn new(model: &str, profile: &LearnedProfile) -> Self {
        let points = profile.speeds();
        let points = points.iter().flat_map(|table| table.points().iter());
        Self {
            model: model.to_owned(),
            jobs: profile.jobs,
            updated: profile.updated,
            measurements: profile
                .measurements
                .iter()
                .map(|m| MeasurementView::new(profile, m))
                .collect(),
            scaling: points.map(|(gpus, speed)| (*gpus, *speed as f64 / 1e6)).collect(),
            restart_s: profile.restarts.cost().map(Time::as_secs_f64),
            restarts: profile.restarts.count() as u64,
        }
    }
}

impl MeasurementView {
    fn new(profile: &LearnedProfile, measurement: &Measurement) -> Self {
        let (conditions, median) = (&measurement.conditions, measurement.median());
        let millis = |micros: u32| f64::from(micros) / 1000.0;
        let slowdown = conditions.beside.as_ref().and_then(|beside| {
            let mut known = profile.slowdowns();
            let found = known.find(|(other, gpus, _)| *other == beside && *gpus == conditions.gpus);
            found.map(|(_, _, slowdown)| slowdown)
        });
        Self {
            gpus: conditions.gpus,
            nodes: conditions.nodes,
            gpu_type: conditions.gpu_type.clone(),
            cpus_per_gpu: f64::from(conditions.cpu_milli_per_gpu) / 1000.0,
            beside: conditions.beside.clone(),
            samples: measurement.count,
            step_ms: millis(median.step_us),
            data_ms: millis(median.data_us),
            net_ms: millis(median.net_us),
            spread_ms: millis(measurement.spread_us()),
            slowdown,
        }
    }
}

/// How long a job is expected to run, alone on the GPUs it asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EstimateView {
    /// Run time in seconds.
    pub expected_s: f64,
    /// `user` (stated), `steps` (reported steps and their duration), `profile` (stated steps and their duration in other jobs
    /// of the model) or `prediction` (run times of similar jobs).
    pub source: String,
    /// For a prediction: one in twenty of the similar jobs ran shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_s: Option<f64>,
    /// For a prediction: one in twenty of the similar jobs ran longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_s: Option<f64>,
    /// For a prediction: number of similar jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similar_jobs: Option<u32>,
}

impl EstimateView {
    pub(crate) fn new(job: &JobRecord) -> Option<Self> {
        let estimate = job.estimate()?;
        let seconds = |work: Work| work.0 as f64 / 1e6;
        let prediction: Option<Prediction> = match estimate.source {
            EstimateSource::Prediction => job.learned.as_ref().and_then(|learned| learned.prediction),
            EstimateSource::User | EstimateSource::Steps | EstimateSource::Profile => None,
        };
        let source = match estimate.source {
            EstimateSource::User => "user",
            EstimateSource::Steps => "steps",
            EstimateSource::Profile => "profile",
            EstimateSource::Prediction => "prediction",
        };
        Some(Self {
            expected_s: seconds(estimate.expected),
            source: source.to_owned(),
            low_s: prediction.map(|p| seconds(p.low)),
            high_s: prediction.map(|p| seconds(p.high)),
            similar_jobs: prediction.map(|p| p.jobs),
        })
    }
}
