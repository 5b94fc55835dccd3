//! The workload of a run, and the speeds of its models.

use std::path::Path;

use dovetail_model::{ClusterSpec, Rate, Scaling};
use dovetail_sim::SimConfig;
use dovetail_workload::generate::{GenerateSpec, generate};
use dovetail_workload::profiles::Profiles;
use dovetail_workload::{Format, SensitivityTable, Workload, join_sensitivity, read};

use crate::values::parse_elastic;
use crate::{ExperimentError, ReferenceSystem, RunSpec};

/// Generator if none is given.
const DEFAULT_GENERATOR: &str = "philly-like";
/// Default number of generated jobs.
const DEFAULT_JOBS: u64 = 2000;
/// Default load of a generated workload.
const DEFAULT_LOAD: f64 = 0.9;

/// Returns the workload for one load and seed: a trace, rescaled to the load if there is one, or a generated workload.
pub(crate) fn open(
    spec: &RunSpec,
    cluster: &ClusterSpec,
    load: Option<f64>,
    seed: u64,
) -> Result<Workload, ExperimentError> {
    let mut workload = rigid_workload(spec, cluster.gpus(), load, seed)?;
    make_elastic(&mut workload, spec)?;
    scale_as_measured(&mut workload, &profiles(spec)?);
    let table = match spec.sensitivity.as_deref() {
        None => SensitivityTable::of_cluster(cluster),
        Some("none") => None,
        Some(name) => Some(SensitivityTable::named(name)?),
    };
    if let Some(table) = table {
        join_sensitivity(&mut workload, &table);
    }
    Ok(workload)
}

fn rigid_workload(
    spec: &RunSpec,
    gpus: u32,
    load: Option<f64>,
    seed: u64,
) -> Result<Workload, ExperimentError> {
    let Some(path) = &spec.trace else {
        return Ok(generate(&generator(spec, gpus, load, seed)?)?);
    };
    if spec.generate.is_some() {
        return Err(ExperimentError::Conflict {
            key: "generate",
            other: "trace",
        });
    }
    let format = spec.trace_format.as_deref().map(str::parse::<Format>);
    let mut workload = read(path, format.transpose()?)?;
    if let Some(jobs) = spec.jobs {
        workload.truncate(usize::try_from(jobs).unwrap_or(usize::MAX));
    }
    // A Blox workload has its own arrivals; the load only selects the row of a table.
    if spec.compat != Some(ReferenceSystem::Blox) {
        match (spec.jobs_per_hour, load) {
            (Some(rate), _) => workload.rescale_rate(rate)?,
            (None, Some(load)) => workload.rescale_load(load, gpus)?,
            (None, None) => {}
        }
    }
    Ok(workload)
}

fn generator(
    spec: &RunSpec,
    gpus: u32,
    load: Option<f64>,
    seed: u64,
) -> Result<GenerateSpec, ExperimentError> {
    if spec.trace_format.is_some() {
        return Err(ExperimentError::Requires {
            key: "trace-format",
            other: "trace",
        });
    }
    let mut generator = GenerateSpec::preset(spec.generate.as_deref().unwrap_or(DEFAULT_GENERATOR))?;
    generator.jobs = spec.jobs.unwrap_or(DEFAULT_JOBS);
    generator.seed = seed;
    generator.jobs_per_hour = spec.jobs_per_hour;
    generator.load = match (spec.jobs_per_hour, load) {
        (Some(_), _) => None,
        (None, load) => Some(load.unwrap_or(DEFAULT_LOAD)),
    };
    generator.cluster_gpus = Some(gpus);
    Ok(generator)
}

/// Makes rigid jobs elastic by `elastic` and `parallel-share`.
fn make_elastic(workload: &mut Workload, spec: &RunSpec) -> Result<(), ExperimentError> {
    if let Some(text) = &spec.elastic {
        let (low, high) = parse_elastic(text)?;
        for job in &mut workload.jobs {
            job.min_gpus = ((f64::from(job.gpus) * low).ceil() as u32).clamp(1, job.gpus);
            job.max_gpus = ((f64::from(job.gpus) * high) as u32).max(job.gpus);
        }
    }
    if let Some(share) = spec.parallel_share {
        if !(0.0..=1.0).contains(&share) {
            return Err(ExperimentError::InvalidSetting {
                key: "parallel-share",
                found: share.to_string(),
                expected: "a number from 0 to 1",
            });
        }
        let scaling = Scaling::Amdahl {
            parallel_ppm: (share * 1e6).round() as u32,
        };
        workload
            .jobs
            .iter_mut()
            .for_each(|job| job.scaling = scaling.clone());
    }
    Ok(())
}

/// Returns the profiles of models, built-in or with those of a file.
fn profiles(spec: &RunSpec) -> Result<Profiles, ExperimentError> {
    match spec.profiles.as_deref() {
        None | Some("builtin") => Ok(Profiles::default()),
        Some(path) => Ok(Profiles::read(Path::new(path))?),
    }
}

/// Gives jobs the speed by number of GPUs that was measured for their model, if the trace states none.
fn scale_as_measured(workload: &mut Workload, profiles: &Profiles) {
    for job in &mut workload.jobs {
        let Some(model) = job.model.filter(|_| job.scaling == Scaling::Linear) else {
            continue;
        };
        if let Some(profile) = profiles.get(&workload.names.models[model])
            && matches!(profile.scaling, Scaling::Measured(_))
        {
            job.scaling = profile.scaling.clone();
        }
    }
}

/// Sets the speeds of the models of a workload in the configuration.
pub(crate) fn set_speeds(
    spec: &RunSpec,
    workload: &Workload,
    config: &mut SimConfig,
) -> Result<(), ExperimentError> {
    if let Some(text) = &spec.spread_penalty {
        let factor = text.parse::<f64>().ok().filter(|f| *f > 0.0 && *f <= 1.0);
        let expected = "a factor above 0 and at most 1";
        let invalid = || ExperimentError::invalid_text("spread-penalty", text, expected);
        config.speeds.spread = Rate::from_factor(factor.ok_or_else(invalid)?);
    }
    let profiles = profiles(spec)?;
    if config.cluster.nodes.values().any(|n| n.gpu_memory_mib > 0) {
        for (model, name) in workload.names.models.iter() {
            let known = profiles.get(name).and_then(|p| p.gpu_memory_mib);
            *config.gpu_memory.entry(model) = known.unwrap_or(0);
        }
    }
    if spec.profiles.is_none() {
        return Ok(());
    }
    config.slowdowns = profiles.slowdowns(&workload.names.models);
    for (model, name) in workload.names.models.iter() {
        let Some(profile) = profiles.get(name) else {
            continue;
        };
        let stages = profile
            .stages
            .iter()
            .map(|(gpus, stages)| ((model, *gpus), *stages));
        config.stages.extend(stages);
        let speed = config.speeds.by_model.entry(model);
        speed.spread = Some(profile.spread);
        for (kind, kind_name) in config.cluster.gpu_types.iter() {
            *speed.by_gpu_type.entry(kind) = Some(profile.speed_on(kind_name));
        }
    }
    Ok(())
}
