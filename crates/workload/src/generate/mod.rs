//! Generated workloads: arrivals, widths, run times, tenants and models, each from its own part and one seed.
//!
//! The same [`GenerateSpec`] gives the same jobs on every machine. The default is **philly-like**: it has the statistics
//! of the public Philly trace.

mod arrivals;
mod durations;
mod mix;
mod philly;
mod random;
mod spec;

use dovetail_model::{ModelId, TenantId, Time, UserId, Work};
use serde::{Deserialize, Serialize};

pub use arrivals::Arrivals;
pub use durations::Durations;
pub use mix::{GpuMix, Tenants};

use crate::job::{JobLabel, Names, TraceJob, Workload};
use random::{Random, Stream, Weights};

/// Maximum number of jobs in one workload.
const MAX_JOBS: u64 = 50_000_000;

/// A workload to generate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateSpec {
    /// Number of jobs.
    pub jobs: u64,
    /// Seed of all random draws.
    pub seed: u64,
    /// Mean rate of arrival; that of the Philly trace, 31.47, if neither this nor a load is set.
    pub jobs_per_hour: Option<f64>,
    /// Instead of a rate: the share of `cluster_gpus` that the jobs request on average from first to last arrival.
    pub load: Option<f64>,
    /// Number of GPUs that `load` refers to.
    pub cluster_gpus: Option<u32>,
    /// Arrival times of jobs.
    pub arrivals: Arrivals,
    /// Run times.
    pub durations: Durations,
    /// Requested GPUs.
    pub gpus: GpuMix,
    /// Tenants.
    pub tenants: Tenants,
    /// Users per tenant; 0 for no users.
    pub users_per_tenant: u32,
    /// Skew of a tenant's jobs over its users; 0 is even.
    pub user_skew: f64,
    /// Models, with equal probability; empty for no models.
    pub models: Vec<String>,
}

impl Default for GenerateSpec {
    /// Returns a thousand jobs like those of the Philly trace.
    fn default() -> Self {
        Self {
            jobs: 1000,
            seed: 1,
            jobs_per_hour: None,
            load: None,
            cluster_gpus: None,
            arrivals: Arrivals::Philly,
            durations: Durations::Philly,
            gpus: GpuMix::Philly,
            tenants: Tenants::Philly,
            users_per_tenant: 0,
            user_skew: 1.0,
            models: Vec::new(),
        }
    }
}

impl GenerateSpec {
    /// Names of the preset generators.
    pub const PRESETS: [&'static str; 3] = ["philly-like", "blox", "blox-small"];

    /// Returns a preset generator by name.
    pub fn preset(name: &str) -> Result<Self, GenerateError> {
        let blox = |durations| Self {
            arrivals: Arrivals::Poisson,
            durations,
            gpus: GpuMix::default(),
            tenants: Tenants::Ranked { count: 1, skew: 0.0 },
            ..Self::default()
        };
        match name {
            "philly-like" => Ok(Self::default()),
            "blox" => Ok(blox(Durations::Blox)),
            "blox-small" => Ok(blox(Durations::BloxSmall)),
            _ => {
                let near = dovetail_model::suggest::nearest(name, Self::PRESETS);
                let hint = near
                    .first()
                    .map(|n| format!(" (did you mean {n}?)"))
                    .unwrap_or_default();
                let expected = format!("one of {}{hint}", Self::PRESETS.join(", "));
                Err(GenerateError {
                    field: "generator",
                    found: format!("{name:?}"),
                    expected,
                })
            }
        }
    }
}

/// An invalid setting of a generator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: found {found}, expected {expected}")]
pub struct GenerateError {
    /// The setting.
    pub field: &'static str,
    /// Its value.
    pub found: String,
    /// The accepted values.
    pub expected: String,
}

/// Generates a workload.
pub fn generate(spec: &GenerateSpec) -> Result<Workload, GenerateError> {
    check(spec)?;
    let jobs = spec.jobs as usize;
    let gpus = spec.gpus.draw(&mut Random::new(spec.seed, Stream::Gpus), jobs);
    let work = spec
        .durations
        .draw(&mut Random::new(spec.seed, Stream::Durations), &gpus);
    let submit = arrivals(spec, &gpus, &work)?;
    let tenants = spec
        .tenants
        .draw(&mut Random::new(spec.seed, Stream::Tenants), &gpus);
    let mut users = Random::new(spec.seed, Stream::Users);
    let mut models = Random::new(spec.seed, Stream::Models);
    let user_weights = Weights::zipf(spec.users_per_tenant, spec.user_skew);

    let one_tenant = spec.tenants.count() == 1;
    let generated = (0..jobs).map(|i| {
        let mut job = TraceJob::new(JobLabel::Number(i as u64), submit[i], work[i], gpus[i]);
        if !one_tenant {
            job.tenant = TenantId(tenants[i] as u32 + 1);
        }
        if spec.users_per_tenant > 0 {
            let user = tenants[i] * spec.users_per_tenant as usize + user_weights.draw(&mut users);
            job.user = UserId(user as u32 + 1);
        }
        if !spec.models.is_empty() {
            job.model = Some(ModelId(models.index(spec.models.len()) as u32));
        }
        job
    });
    let jobs = generated.collect();
    Ok(Workload {
        source: source(spec),
        jobs,
        names: names(spec),
        ..Workload::default()
    })
}

/// Draws arrivals at the requested rate, or at the rate that gives the requested load.
fn arrivals(spec: &GenerateSpec, gpus: &[u32], work: &[Work]) -> Result<Vec<Time>, GenerateError> {
    let draw = |per_hour| spec.arrivals.draw(spec.seed, gpus.len(), per_hour);
    let (Some(load), Some(cluster)) = (spec.load, spec.cluster_gpus) else {
        return draw(spec.jobs_per_hour.unwrap_or(philly::JOBS_PER_HOUR));
    };
    let gpu_seconds: f64 = gpus
        .iter()
        .zip(work)
        .map(|(g, w)| f64::from(*g) * w.as_secs_f64())
        .sum();
    let target_span = gpu_seconds / (load * f64::from(cluster));
    let mut per_hour = gpus.len() as f64 / target_span * 3600.0;
    let mut times = draw(per_hour)?;
    // The hours of the day must not shift, so the rate is adjusted by drawing again, not by stretching.
    for _ in 0..8 {
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            break;
        };
        let off = last.since(*first).as_secs_f64() / target_span;
        if off == 0.0 || (off - 1.0).abs() < 1e-3 {
            break;
        }
        per_hour *= off;
        times = draw(per_hour)?;
    }
    Ok(times)
}

fn check(spec: &GenerateSpec) -> Result<(), GenerateError> {
    let wrong = |field, found: String, expected: String| {
        Err(GenerateError {
            field,
            found,
            expected,
        })
    };
    if !(1..=MAX_JOBS).contains(&spec.jobs) {
        return wrong(
            "jobs",
            spec.jobs.to_string(),
            format!("a whole number from 1 to {MAX_JOBS}"),
        );
    }
    let positive = [("jobs_per_hour", spec.jobs_per_hour), ("load", spec.load)];
    for (field, value) in positive {
        if let Some(value) = value.filter(|v| !(1e-9..=1e9).contains(v)) {
            return wrong(
                field,
                value.to_string(),
                "a number above 0 and at most 1000000000".to_owned(),
            );
        }
    }
    if spec.jobs_per_hour.is_some() && spec.load.is_some() {
        return wrong(
            "load",
            "a load and jobs_per_hour".to_owned(),
            "one of the two".to_owned(),
        );
    }
    if spec.load.is_some() && spec.cluster_gpus.is_none_or(|g| g == 0) {
        let found = spec.cluster_gpus.map_or("nothing".to_owned(), |g| g.to_string());
        return wrong(
            "cluster_gpus",
            found,
            "the number of GPUs the load refers to".to_owned(),
        );
    }
    if u64::from(spec.users_per_tenant) * spec.tenants.count() as u64 > 10_000_000 {
        return wrong(
            "users_per_tenant",
            spec.users_per_tenant.to_string(),
            "at most 10000000 users in all".to_owned(),
        );
    }
    if !(0.0..=20.0).contains(&spec.user_skew) {
        return wrong(
            "user_skew",
            spec.user_skew.to_string(),
            "a number from 0 to 20".to_owned(),
        );
    }
    if spec.models.iter().any(|m| m.trim().is_empty()) {
        return wrong("models", "an empty name".to_owned(), "names".to_owned());
    }
    Ok(())
}

fn source(spec: &GenerateSpec) -> String {
    let philly = spec.durations == Durations::Philly && spec.gpus == GpuMix::Philly;
    let kind = if philly {
        "philly-like".to_owned()
    } else {
        format!("generated ({} run times)", spec.durations)
    };
    format!("{kind}, seed {}", spec.seed)
}

fn names(spec: &GenerateSpec) -> Names {
    let mut names = Names::default();
    let tenants = spec.tenants.count();
    if tenants > 1 {
        for tenant in 0..tenants {
            names.tenants.push(format!("vc-{tenant}"));
        }
    }
    for tenant in 0..tenants {
        for user in 0..spec.users_per_tenant {
            names.users.push(format!("vc-{tenant}-user-{user}"));
        }
    }
    names.models = spec.models.iter().cloned().collect();
    names
}
