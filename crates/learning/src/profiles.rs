//! Profiles of models, measured where jobs run: duration of a step by number of GPUs, by CPU, and beside other models.

use std::collections::{BTreeMap, VecDeque};

use dovetail_model::sensitivity::Points;
use dovetail_model::{Rate, SpeedTable, Stages, Time};
use serde::{Deserialize, Serialize};

use crate::restarts::LearnedRestarts;

/// Number of profiles; when it is reached, the one that was not updated for longest is forgotten.
const MAX_PROFILES: usize = 1_000;
/// Number of different conditions of a profile; when it is reached, the oldest are forgotten.
const MAX_CONDITIONS: usize = 32;
/// Number of latest samples that are kept for each.
const MAX_SAMPLES: usize = 16;
/// Number of samples from which on a measurement is used.
const MIN_SAMPLES: usize = 2;

/// First character of the keys of jobs that state no model. No stated model begins with it.
pub const UNNAMED: char = '~';

/// Returns the key under which jobs share a profile: their model, else their user and name, as `~ann/train`.
pub fn model_key(model: Option<&str>, user: &str, name: &str) -> String {
    model.map_or_else(|| format!("{UNNAMED}{user}/{name}"), str::to_owned)
}

/// Returns the user to whose jobs a key belongs; none if it is that of a stated model, which all users share.
pub fn owner_of(key: &str) -> Option<&str> {
    let (user, _) = key.strip_prefix(UNNAMED)?.split_once('/')?;
    Some(user)
}

/// Where a step was measured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Conditions {
    /// GPUs of the job.
    pub gpus: u32,
    /// Nodes they are on.
    pub nodes: u32,
    /// Type of the GPUs; empty if unknown.
    pub gpu_type: String,
    /// CPU per GPU, in milli-cores; zero if not limited.
    pub cpu_milli_per_gpu: u32,
    /// Model key of the job beside which it ran on the same GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// Whether stage gates kept the stages of both apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gated: bool,
}

/// Duration of a step, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StepSample {
    /// The whole step.
    pub step_us: u32,
    /// Its wait for data.
    pub data_us: u32,
    /// Its computation; zero if not measured.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpu_us: u32,
    /// Its communication with other processes; zero if not measured.
    pub net_us: u32,
}

fn is_zero(micros: &u32) -> bool {
    *micros == 0
}

/// Steps that were measured under the same conditions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measurement {
    /// The conditions.
    pub conditions: Conditions,
    /// Number of samples so far.
    pub count: u64,
    /// Time of the last sample.
    pub updated: Time,
    /// Latest samples, oldest first.
    recent: VecDeque<StepSample>,
    /// The median that counts as known, in microseconds of a step; zero for none.
    #[serde(default)]
    known_us: u32,
}

/// Difference to the highest speed, in per cent of it, that counts as noise.
const NOISE_PERCENT: u64 = 3;

/// Change of a median, in per cent of it, up to which it counts as known.
const TOLERANCE_PERCENT: u32 = 10;

impl Measurement {
    /// Returns the median of the latest samples, each part by itself.
    pub fn median(&self) -> StepSample {
        self.quantile(50)
    }

    /// Returns how far apart the latest samples are: nine in ten of them are within this range, in microseconds.
    pub fn spread_us(&self) -> u32 {
        self.quantile(95).step_us - self.quantile(5).step_us
    }

    fn quantile(&self, percent: usize) -> StepSample {
        let of = |part: fn(&StepSample) -> u32| {
            let mut values: Vec<u32> = self.recent.iter().map(part).collect();
            values.sort_unstable();
            let last = values.len().saturating_sub(1);
            values.get(last * percent / 100).copied().unwrap_or(0)
        };
        StepSample {
            step_us: of(|s| s.step_us),
            data_us: of(|s| s.data_us),
            gpu_us: of(|s| s.gpu_us),
            net_us: of(|s| s.net_us),
        }
    }

    fn is_usable(&self) -> bool {
        self.recent.len() >= MIN_SAMPLES
    }

    /// Returns whether the median differs much from the one that counts as known, and lets it count as known.
    fn take_news(&mut self) -> bool {
        let median = self.median().step_us;
        let change = u64::from(median.abs_diff(self.known_us)) * 100;
        let is_news = self.is_usable() && change > u64::from(self.known_us) * u64::from(TOLERANCE_PERCENT);
        if is_news {
            self.known_us = median;
        }
        is_news
    }
}

/// What is known about one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LearnedProfile {
    /// Number of jobs that were measured.
    pub jobs: u64,
    /// Time of the last sample.
    pub updated: Time,
    /// Measurements, by conditions.
    pub measurements: Vec<Measurement>,
    /// What restarts cost.
    #[serde(default, skip_serializing_if = "LearnedRestarts::is_empty")]
    pub restarts: LearnedRestarts,
}

impl LearnedProfile {
    /// Adds a sample. Returns whether that changes much.
    fn add(&mut self, now: Time, conditions: &Conditions, sample: StepSample) -> bool {
        self.updated = now;
        let known = self.measurements.iter().position(|m| m.conditions == *conditions);
        let position = known.unwrap_or_else(|| {
            if self.measurements.len() == MAX_CONDITIONS {
                let oldest = (0..MAX_CONDITIONS).min_by_key(|i| self.measurements[*i].updated);
                oldest.map(|i| self.measurements.remove(i));
            }
            self.measurements.push(Measurement {
                conditions: conditions.clone(),
                count: 0,
                updated: now,
                recent: VecDeque::new(),
                known_us: 0,
            });
            self.measurements.len() - 1
        });
        let measurement = &mut self.measurements[position];
        (measurement.count, measurement.updated) = (measurement.count + 1, now);
        if measurement.recent.len() == MAX_SAMPLES {
            measurement.recent.pop_front();
        }
        measurement.recent.push_back(sample);
        measurement.take_news()
    }

    /// Returns measurements of jobs that were alone on their GPUs, on the GPU type with the most samples.
    fn alone(&self) -> impl Iterator<Item = &Measurement> {
        let is_alone = |m: &&Measurement| m.conditions.beside.is_none() && m.is_usable();
        let mut types: BTreeMap<&str, u64> = BTreeMap::new();
        for measurement in self.measurements.iter().filter(is_alone) {
            *types.entry(&measurement.conditions.gpu_type).or_default() += measurement.count;
        }
        let usual = types
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(name, _)| name);
        let is_usual = move |m: &&Measurement| Some(m.conditions.gpu_type.as_str()) == usual;
        self.measurements.iter().filter(is_alone).filter(is_usual)
    }

    /// Returns the measurement on a number of GPUs with the most CPU.
    pub fn on(&self, gpus: u32) -> Option<&Measurement> {
        let same = self.alone().filter(|m| m.conditions.gpus == gpus);
        // Zero is no limit.
        same.max_by_key(|m| (m.conditions.cpu_milli_per_gpu.wrapping_sub(1), m.count))
    }

    /// Returns the stages of a step on a number of GPUs. If the model never ran alone there, they are those that were
    /// measured behind stage gates, which keep the stages of other jobs away from them.
    pub fn stages(&self, gpus: u32) -> Option<Stages> {
        let Some(alone) = self.on(gpus) else {
            return self.gated_stages(gpus);
        };
        let StepSample {
            step_us,
            data_us,
            gpu_us,
            net_us,
        } = alone.median();
        let busy = match gpu_us {
            0 => step_us.saturating_sub(data_us).saturating_sub(net_us),
            measured => measured,
        };
        (step_us > 0).then(|| Stages::three(data_us, busy, net_us, step_us))
    }

    fn gated_stages(&self, gpus: u32) -> Option<Stages> {
        let is_same = |m: &&Measurement| m.conditions.gated && m.conditions.gpus == gpus && m.is_usable();
        let usual = self.measurements.iter().filter(is_same).max_by_key(|m| m.count)?;
        let StepSample {
            data_us,
            gpu_us,
            net_us,
            ..
        } = usual.median();
        let sum = data_us.saturating_add(gpu_us).saturating_add(net_us);
        (gpu_us > 0).then(|| Stages::three(data_us, gpu_us, net_us, sum))
    }

    /// Returns the speed by number of GPUs, if it was measured on at least two numbers.
    pub fn speeds(&self) -> Option<SpeedTable> {
        let mut widths: Vec<u32> = self.alone().map(|m| m.conditions.gpus).collect();
        widths.sort_unstable();
        widths.dedup();
        let step_us = |gpus: u32| u64::from(self.on(gpus).map_or(1, |m| m.median().step_us).max(1));
        let first = step_us(*widths.first()?);
        let speeds = widths
            .iter()
            .map(|gpus| (*gpus, first * 1_000_000 / step_us(*gpus)));
        if widths.len() < 2 {
            return None;
        }
        SpeedTable::new(speeds.collect()).ok()
    }

    /// Returns CPU per GPU, in milli-cores, and microseconds of a step, on a number of GPUs; by CPU.
    pub fn steps_by_cpu(&self, gpus: u32) -> Vec<(u32, u32)> {
        let same = self.alone().filter(|m| m.conditions.gpus == gpus);
        let steps: BTreeMap<u32, u32> = same
            .filter(|m| m.conditions.cpu_milli_per_gpu > 0)
            .map(|m| (m.conditions.cpu_milli_per_gpu, m.median().step_us.max(1)))
            .collect();
        steps.into_iter().collect()
    }

    /// Returns the speed by CPU per GPU of a job with this many GPUs and this much memory per GPU, if it was measured with at
    /// least two amounts. Full speed is that with the CPU it asks for, or the highest.
    pub fn cpu_curve(&self, gpus: u32, cpu_milli_per_gpu: u32, memory_mib_per_gpu: u64) -> Option<Points> {
        let steps: BTreeMap<u32, u32> = self.steps_by_cpu(gpus).into_iter().collect();
        let full = steps.get(&cpu_milli_per_gpu).or(steps.values().min()).copied()?;
        let mut rate = Rate(0);
        let rates = steps.values().map(|step_us| {
            // More CPU never makes a job slower; what looks so is noise.
            rate = rate.max(Rate::from_factor(f64::from(full) / f64::from(*step_us)));
            rate
        });
        let mut rates: Vec<Rate> = rates.collect();
        let top = rates.last().copied()?;
        for rate in &mut rates {
            if u64::from(rate.0) * 100 >= u64::from(top.0) * (100 - NOISE_PERCENT) {
                *rate = top;
            }
        }
        (steps.len() >= 2).then(|| Points {
            cpu_milli: steps.keys().copied().collect(),
            memory_mib: vec![memory_mib_per_gpu.max(1)],
            rates,
        })
    }

    /// Returns how many times longer a step takes beside each other model without stage gates, and on how many GPUs.
    pub fn slowdowns(&self) -> impl Iterator<Item = (&str, u32, f64)> {
        self.measurements
            .iter()
            .filter(|m| m.is_usable() && !m.conditions.gated)
            .filter_map(|m| {
                let alone = self.on(m.conditions.gpus)?.median().step_us.max(1);
                let slowdown = f64::from(m.median().step_us) / f64::from(alone);
                Some((
                    m.conditions.beside.as_deref()?,
                    m.conditions.gpus,
                    slowdown.max(1.0),
                ))
            })
    }
}

/// The profiles of all models, by model key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LearnedProfiles {
    profiles: BTreeMap<String, LearnedProfile>,
}

impl LearnedProfiles {
    /// Adds the duration of a step of a job; `is_first` for the first one of each job. Returns whether the profile says
    /// something else now, so that jobs of this model have to be told.
    pub fn record(
        &mut self,
        now: Time,
        key: &str,
        conditions: &Conditions,
        sample: StepSample,
        is_first: bool,
    ) -> bool {
        let profile = self.profile(key);
        profile.jobs += u64::from(is_first);
        profile.add(now, conditions, sample)
    }

    /// Adds what a restart of a job cost. Returns whether jobs of this model have to be told.
    pub fn record_restart(&mut self, now: Time, key: &str, cost: Time) -> bool {
        let profile = self.profile(key);
        profile.updated = now;
        profile.restarts.add(cost)
    }

    /// Returns the profile of a model, a new one if there is none.
    fn profile(&mut self, key: &str) -> &mut LearnedProfile {
        if !self.profiles.contains_key(key) && self.profiles.len() >= MAX_PROFILES {
            let oldest = self.profiles.iter().min_by_key(|(_, profile)| profile.updated);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.profiles.remove(&oldest);
            }
        }
        self.profiles.entry(key.to_owned()).or_default()
    }

    /// Returns the profile of a model.
    pub fn get(&self, key: &str) -> Option<&LearnedProfile> {
        self.profiles.get(key)
    }

    /// Returns all profiles, by model key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &LearnedProfile)> {
        self.profiles.iter().map(|(key, profile)| (key.as_str(), profile))
    }

    /// Whether there is no profile.
    pub fn is_empty(&self) -> bool {
        self.profiles.is_empty()
    }

    /// Forgets a profile. Returns whether there was one.
    pub fn forget(&mut self, key: &str) -> bool {
        self.profiles.remove(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(gpus: u32, cpu_milli_per_gpu: u32) -> Conditions {
        Conditions {
            gpus,
            nodes: 1,
            gpu_type: "V100".to_owned(),
            cpu_milli_per_gpu,
            beside: None,
            gated: false,
        }
    }

    fn sample(step_us: u32, data_us: u32) -> StepSample {
        StepSample {
            step_us,
            data_us,
            gpu_us: 0,
            net_us: 0,
        }
    }

    #[test]
    fn stages_behind_gates_count_where_the_model_never_ran_alone() {
        let mut all = LearnedProfiles::default();
        let gated = Conditions {
            beside: Some("vgg".to_owned()),
            gated: true,
            ..on(1, 0)
        };
        let step = StepSample {
            step_us: 200,
            data_us: 30,
            gpu_us: 50,
            net_us: 20,
        };
        for n in 0..2 {
            all.record(Time(n), "bert", &gated, step, n == 0);
        }
        let profile = all.get("bert").unwrap();
        assert_eq!(profile.stages(1), Some(Stages::three(30, 50, 20, 100)));
        assert_eq!(
            profile.slowdowns().count(),
            0,
            "gates make jobs wait by intention"
        );
        for n in 0..2 {
            all.record(
                Time(n),
                "bert",
                &on(1, 0),
                StepSample { step_us: 110, ..step },
                false,
            );
        }
        let profile = all.get("bert").unwrap();
        assert_eq!(profile.stages(1), Some(Stages::three(30, 50, 20, 110)));
    }

    #[test]
    fn a_profile_has_stages_speeds_and_curves_of_what_was_measured() {
        let mut all = LearnedProfiles::default();
        let mut add = |conditions: &Conditions, step: StepSample| {
            for n in 0..3 {
                all.record(Time(n), "bert", conditions, step, n == 0);
            }
        };
        add(&on(1, 4_000), sample(100_000, 20_000));
        add(&on(2, 4_000), sample(60_000, 20_000));
        add(&on(1, 1_000), sample(200_000, 120_000));
        let beside = Conditions {
            beside: Some("vgg".to_owned()),
            ..on(2, 4_000)
        };
        add(&beside, sample(90_000, 20_000));
        let profile = all.get("bert").unwrap();
        assert_eq!(profile.jobs, 4);
        assert_eq!(profile.stages(2), Some(Stages::three(20_000, 40_000, 0, 60_000)));
        assert_eq!(profile.stages(8), None);
        let expected = SpeedTable::new([(1, 1_000_000), (2, 1_666_666)].into_iter().collect()).unwrap();
        assert_eq!(profile.speeds(), Some(expected));
        let curve = profile.cpu_curve(1, 4_000, 512).unwrap();
        assert_eq!(
            (curve.cpu_milli, curve.memory_mib),
            (vec![1_000, 4_000], vec![512])
        );
        assert_eq!(curve.rates, [Rate(500_000), Rate::FULL]);
        assert_eq!(profile.cpu_curve(2, 4_000, 512), None, "one amount is no curve");
        assert_eq!(profile.slowdowns().collect::<Vec<_>>(), [("vgg", 2, 1.5)]);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<LearnedProfiles>(&text).unwrap(), all);
        assert!(all.forget("bert") && !all.forget("bert"));
    }

    #[test]
    fn one_sample_is_not_used_and_an_outlier_does_not_count() {
        let mut all = LearnedProfiles::default();
        all.record(Time(1), "m", &on(1, 0), sample(900, 0), true);
        assert_eq!(all.get("m").unwrap().stages(1), None);
        for n in 2..6 {
            all.record(Time(n), "m", &on(1, 0), sample(100, 10), false);
        }
        let profile = all.get("m").unwrap();
        assert_eq!(profile.stages(1), Some(Stages::three(10, 90, 0, 100)));
        assert_eq!(
            (profile.measurements[0].count, profile.measurements[0].spread_us()),
            (5, 0)
        );
    }

    #[test]
    fn the_number_of_profiles_conditions_and_samples_is_limited() {
        let mut all = LearnedProfiles::default();
        for n in 0..3_000_u32 {
            let key = format!("model {}", n % 1_200);
            all.record(Time(n.into()), &key, &on(1 + n % 64, n % 7), sample(n, 0), true);
        }
        for n in 0..200 {
            all.record(
                Time(5_000 + i64::from(n)),
                "one",
                &on(1 + n % 50, 0),
                sample(n, 0),
                false,
            );
        }
        assert_eq!(all.iter().count(), MAX_PROFILES);
        let one = all.get("one").unwrap();
        assert_eq!(one.measurements.len(), MAX_CONDITIONS);
        assert!(one.measurements.iter().all(|m| m.recent.len() <= MAX_SAMPLES));
    }
}
