//! The workload of a run, and the speeds of its models.

use std::path::Path;

use dovetail_console::{Failure, OrFailure};
use dovetail_model::{ClusterSpec, Rate, Scaling};
use dovetail_sim::SimConfig;
use dovetail_workload::generate::{GenerateSpec, generate};
use dovetail_workload::profiles::Profiles;
use dovetail_workload::{Format, SensitivityTable, Workload, join_sensitivity, read};

use crate::args::{CompatArg, RunArgs};

/// Default number of generated jobs.
const DEFAULT_JOBS: u64 = 2000;
/// Default load of a generated workload.
const DEFAULT_LOAD: f64 = 0.9;

/// Returns the trace format with this name.
///
/// # Errors
/// Lists the known formats.
pub fn format(name: Option<&str>) -> Result<Option<Format>, Failure> {
    name.map(|n| n.parse::<Format>()).transpose().or_request()
}

/// Returns the workload for one load and seed: a trace, rescaled to the load if there is one, or a generated workload.
///
/// # Errors
/// Names the flag or file and the error.
pub fn workload(
    args: &RunArgs,
    cluster: &ClusterSpec,
    load: Option<f64>,
    seed: u64,
) -> Result<Workload, Failure> {
    let mut workload = rigid_workload(args, cluster.gpus(), load, seed)?;
    make_elastic(&mut workload, args)?;
    if let Some(table) = sensitivity_table(args.sensitivity.as_deref(), cluster)? {
        join_sensitivity(&mut workload, &table);
    }
    Ok(workload)
}

/// Returns the sensitivity table with this name or in this file; by default the one that matches the cluster.
///
/// # Errors
/// Lists the known tables, or names the error in the file.
pub fn sensitivity_table(
    name: Option<&str>,
    cluster: &ClusterSpec,
) -> Result<Option<SensitivityTable>, Failure> {
    match name {
        None => Ok(SensitivityTable::of_cluster(cluster)),
        Some("none") => Ok(None),
        Some(name) => named_sensitivity_table(name).map(Some),
    }
}

/// Returns the sensitivity table with this name or in this file.
///
/// # Errors
/// Lists the known tables, or names the error in the file.
pub fn named_sensitivity_table(name: &str) -> Result<SensitivityTable, Failure> {
    if let Some(table) = SensitivityTable::builtin(name) {
        return Ok(table);
    }
    if !Path::new(name).exists() {
        let known = SensitivityTable::builtin_names().join(", ");
        return Err(Failure::request(format!(
            "unknown sensitivity table `{name}`: expected a YAML file, or one of {known}"
        )));
    }
    SensitivityTable::read(name).or_request()
}

fn rigid_workload(args: &RunArgs, gpus: u32, load: Option<f64>, seed: u64) -> Result<Workload, Failure> {
    match &args.trace {
        Some(path) => {
            if args.generate.is_some() {
                return Err(Failure::request("--generate cannot be used with --trace"));
            }
            let mut workload = read(path, format(args.trace_format.as_deref())?).or_request()?;
            if let Some(jobs) = args.jobs {
                workload.truncate(usize::try_from(jobs).unwrap_or(usize::MAX));
            }
            // A Blox workload has its own arrivals; the load only selects the row of a table.
            if args.compat != Some(CompatArg::Blox) {
                rescale(&mut workload, args.jobs_per_hour, load, gpus)?;
            }
            Ok(workload)
        }
        None => generate(&generator(args, gpus, load, seed)?).or_request(),
    }
}

fn rescale(
    workload: &mut Workload,
    per_hour: Option<f64>,
    load: Option<f64>,
    gpus: u32,
) -> Result<(), Failure> {
    match (per_hour, load) {
        (Some(rate), _) => workload.rescale_rate(rate).or_request(),
        (None, Some(load)) => workload.rescale_load(load, gpus).or_request(),
        (None, None) => Ok(()),
    }
}

fn generator(args: &RunArgs, gpus: u32, load: Option<f64>, seed: u64) -> Result<GenerateSpec, Failure> {
    if args.trace_format.is_some() {
        return Err(Failure::request("--trace-format requires --trace"));
    }
    let mut spec = GenerateSpec::preset(args.generate.as_deref().unwrap_or("philly-like")).or_request()?;
    spec.jobs = args.jobs.unwrap_or(DEFAULT_JOBS);
    spec.seed = seed;
    spec.jobs_per_hour = args.jobs_per_hour;
    spec.load = match (args.jobs_per_hour, load) {
        (Some(_), _) => None,
        (None, load) => Some(load.unwrap_or(DEFAULT_LOAD)),
    };
    spec.cluster_gpus = Some(gpus);
    Ok(spec)
}

/// Sets the speeds of the models of a workload in the configuration.
///
/// # Errors
/// Names the accepted values of `--spread-penalty` and `--profiles`.
pub fn speeds(args: &RunArgs, workload: &Workload, config: &mut SimConfig) -> Result<(), Failure> {
    if let Some(text) = &args.spread_penalty {
        let factor = text.parse::<f64>().ok().filter(|f| *f > 0.0 && *f <= 1.0);
        let bad = || format!("--spread-penalty: found `{text}`, expected a factor above 0 and at most 1");
        config.speeds.spread = Rate::from_factor(factor.ok_or_else(|| Failure::request(bad()))?);
    }
    let profiles = match args.profiles.as_deref() {
        None | Some("builtin") => Profiles::default(),
        Some(path) => Profiles::read(Path::new(path)).or_request()?,
    };
    if config.cluster.nodes.values().any(|n| n.gpu_memory_mib > 0) {
        for (model, name) in workload.names.models.iter() {
            let known = profiles.get(name).and_then(|p| p.gpu_memory_mib);
            *config.gpu_memory.entry(model) = known.unwrap_or(0);
        }
    }
    if args.profiles.is_none() {
        return Ok(());
    }
    config.slowdowns = profiles.slowdowns(&workload.names.models);
    let kinds: Vec<_> = config
        .cluster
        .gpu_types
        .iter()
        .map(|(id, name)| (id, name.clone()))
        .collect();
    for (model, name) in workload.names.models.iter() {
        let Some(profile) = profiles.get(name) else {
            continue;
        };
        let speed = config.speeds.by_model.entry(model);
        speed.spread = Some(profile.spread);
        for (kind, kind_name) in &kinds {
            *speed.by_gpu_type.entry(*kind) = Some(profile.speed_on(kind_name));
        }
    }
    Ok(())
}

/// Makes rigid jobs elastic by `--elastic` and `--parallel-share`.
fn make_elastic(workload: &mut Workload, args: &RunArgs) -> Result<(), Failure> {
    if let Some(text) = &args.elastic {
        let range = text
            .split_once("..")
            .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
        let is_valid =
            |(low, high): &(f64, f64)| *low > 0.0 && *low <= 1.0 && *high >= 1.0 && *high <= 1024.0;
        let (low, high) = range.filter(is_valid).ok_or_else(|| {
            let expected =
                "LOW..HIGH with LOW above 0 and at most 1, and HIGH from 1 to 1024, such as 0.5..4";
            Failure::request(format!("--elastic: found `{text}`, expected {expected}"))
        })?;
        for job in &mut workload.jobs {
            job.min_gpus = ((f64::from(job.gpus) * low).ceil() as u32).clamp(1, job.gpus);
            job.max_gpus = ((f64::from(job.gpus) * high) as u32).max(job.gpus);
        }
    }
    if let Some(share) = args.parallel_share {
        if !(0.0..=1.0).contains(&share) {
            return Err(Failure::request(format!(
                "--parallel-share: found {share}, expected a number from 0 to 1"
            )));
        }
        let scaling = Scaling::Amdahl {
            parallel_ppm: (share * 1e6).round() as u32,
        };
        workload.jobs.iter_mut().for_each(|job| job.scaling = scaling);
    }
    Ok(())
}
