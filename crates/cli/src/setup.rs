//! From flags to configured objects: the workload, the cluster, the run's configuration, policies.

use std::path::Path;

use anyhow::anyhow;
use dovetail_console::{Failure, OrFailure};
use dovetail_engine::{Clock, Knowledge, Policy};
use dovetail_model::{ClusterSpec, Rate, Scaling, Time, parse_span};
use dovetail_policies::{Overrides, build};
use dovetail_report::format::span as span_text;
use dovetail_sim::{Failures, SimConfig, compat};
use dovetail_workload::generate::{GenerateSpec, generate};
use dovetail_workload::profiles::Profiles;
use dovetail_workload::{Format, SensitivityTable, Workload, describe_cluster, read};

use crate::args::{CompatArg, KnowledgeArg, RunArgs};
use crate::tenancy;

/// The cluster when none is given.
const DEFAULT_VIRTUAL_CLUSTER: &str = "16x8";
/// Default number of generated jobs.
const DEFAULT_JOBS: u64 = 2000;
/// Default load of a generated workload.
const DEFAULT_LOAD: f64 = 0.9;

/// The cluster.
///
/// # Errors
/// Names the flag or file and the error.
pub fn cluster(args: &RunArgs) -> Result<ClusterSpec, Failure> {
    let described =
        describe_cluster(args.cluster.as_deref().unwrap_or(DEFAULT_VIRTUAL_CLUSTER)).or_request()?;
    if !args.quiet {
        described.notes.iter().for_each(|note| eprintln!("note: {note}"));
    }
    Ok(described.cluster)
}

/// The format with this name.
///
/// # Errors
/// Lists the known formats.
pub fn format(name: Option<&str>) -> Result<Option<Format>, Failure> {
    name.map(|n| n.parse::<Format>()).transpose().or_request()
}

/// The workload for one load and seed: a trace, stretched if asked for, or a generated one.
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
        workload.join_sensitivity(&table);
    }
    Ok(workload)
}

/// The table of sensitivities by name or file, or else the one that suits the cluster.
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

/// The table of sensitivities of this name, or in this file.
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
            "no table of sensitivities `{name}`: expected a YAML file, or one of {known}"
        )));
    }
    SensitivityTable::read(name).or_request()
}

fn rigid_workload(args: &RunArgs, gpus: u32, load: Option<f64>, seed: u64) -> Result<Workload, Failure> {
    match &args.trace {
        Some(path) => {
            if args.generate.is_some() {
                return Err(Failure::request("--generate and --trace exclude each other"));
            }
            let mut workload = read(path, format(args.trace_format.as_deref())?).or_request()?;
            if let Some(jobs) = args.jobs {
                workload.truncate(usize::try_from(jobs).unwrap_or(usize::MAX));
            }
            // A Blox workload has its own arrivals; the load only selects the row of a table.
            if args.compat != Some(CompatArg::Blox) {
                stretch(&mut workload, args.jobs_per_hour, load, gpus)?;
            }
            Ok(workload)
        }
        None => generate(&generator(args, gpus, load, seed)?).or_request(),
    }
}

fn stretch(
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
        return Err(Failure::request("--trace-format needs --trace"));
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

/// Returns the configuration of a run on this cluster with this seed.
///
/// # Errors
/// Names the invalid flag and the accepted values.
pub fn config(args: &RunArgs, cluster: ClusterSpec, seed: u64) -> Result<SimConfig, Failure> {
    let mut config = SimConfig::new(cluster);
    config.seed = seed;
    config.check = args.check;
    config.moments = args.emit.is_some();
    if args.emit.is_some() && args.out.is_none() {
        return Err(Failure::request(
            "--emit writes files into the directory of --out: give one, such as --out DIR",
        ));
    }
    config.clock = clock(args.clock.as_deref())?;
    config.knowledge = args.knowledge.map(|k| match k {
        KnowledgeArg::None => Knowledge::None,
        KnowledgeArg::Estimate => Knowledge::Estimate,
        KnowledgeArg::Oracle => Knowledge::Oracle,
    });
    if let Some(error) = args.estimate_error {
        if !(error.is_finite() && (0.0..=10.0).contains(&error)) {
            return Err(Failure::request(format!(
                "--estimate-error: found {error}, expected a number from 0 to 10"
            )));
        }
        config.estimate_error = error;
    }
    config.restart_cost = span("--restart-cost", args.restart_cost.as_deref())?.unwrap_or(Time::ZERO);
    config.checkpoint = span("--checkpoint", args.checkpoint.as_deref())?;
    config.checkpoint_cost =
        span("--checkpoint-cost", args.checkpoint_cost.as_deref())?.unwrap_or(Time::ZERO);
    config.failures.mtbf = span("--mtbf", args.mtbf.as_deref())?;
    config.failures.repair = span("--repair", args.repair.as_deref())?.unwrap_or(Time::from_secs(3600));
    if let Some(path) = &args.failures {
        config.failures.outages = outages(path, &config.cluster)?;
    }
    config.track = args.track.as_deref().map(track).transpose()?;
    Ok(config)
}

fn outages(path: &Path, cluster: &ClusterSpec) -> Result<Vec<dovetail_sim::Outage>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| anyhow!("cannot read failures {}: {e}", path.display()))
        .or_request()?;
    let names: Vec<String> = cluster.nodes.values().map(|n| n.name.clone()).collect();
    Failures::parse(&text, &path.display().to_string(), &names).or_request()
}

/// Speeds for the models of a workload, once both are known.
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

/// Makes rigid jobs elastic: from `low` to `high` times the GPUs asked for, with this parallel share.
fn make_elastic(workload: &mut Workload, args: &RunArgs) -> Result<(), Failure> {
    if let Some(text) = &args.elastic {
        let range = text
            .split_once("..")
            .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
        let fine = |(low, high): &(f64, f64)| *low > 0.0 && *low <= 1.0 && *high >= 1.0 && *high <= 1024.0;
        let (low, high) = range.filter(fine).ok_or_else(|| {
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

fn clock(text: Option<&str>) -> Result<Clock, Failure> {
    let bad = |found: &str| {
        Failure::request(format!(
            "--clock: found `{found}`, expected events, or rounds:SPAN such as rounds:300s"
        ))
    };
    match text {
        None | Some("events") => Ok(Clock::Events),
        Some(text) => {
            let period = text
                .strip_prefix("rounds:")
                .and_then(parse_span)
                .filter(|p| *p > Time::ZERO);
            period.map(Clock::rounds).ok_or_else(|| bad(text))
        }
    }
}

fn span(flag: &str, text: Option<&str>) -> Result<Option<Time>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let bad = || {
        Failure::request(format!(
            "{flag}: found `{text}`, expected a span of time such as 30s, 5m, 2h or 1d"
        ))
    };
    parse_span(text).map(Some).ok_or_else(bad)
}

fn track(text: &str) -> Result<(u32, u32), Failure> {
    let range = text
        .split_once("..")
        .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    range.filter(|(a, b)| a <= b).ok_or_else(|| {
        Failure::request(format!(
            "--track: found `{text}`, expected FIRST..LAST, two job ids such as 0..99"
        ))
    })
}

/// The parts that replace those of the preset.
fn overrides(args: &RunArgs) -> Overrides {
    Overrides {
        admission: args.admission.clone(),
        order: args.order.clone(),
        discipline: args.discipline.clone(),
        sizing: args.sizing.clone(),
        grouping: args.grouping.clone(),
        placement: args.placement.clone(),
        tenancy: args.tenancy.clone(),
        ..Overrides::default()
    }
}

/// Returns the policy, and adapts the configuration to a reference system.
///
/// # Errors
/// Names the unknown policy, part or knob, with similar known ones.
pub fn policy(
    name: &str,
    args: &RunArgs,
    workload: &Workload,
    config: &mut SimConfig,
) -> Result<(Policy, Knowledge), Failure> {
    let mut parts = overrides(args);
    tenancy::resolve(&mut parts, workload, config)?;
    let (mut policy, needs) = match args.compat {
        None => build(name, &parts).or_request(),
        Some(CompatArg::Blox) => {
            let rate = args.jobs_per_hour.or(args.load);
            compat::blox(name, &parts, workload, rate, config).or_request()
        }
        Some(CompatArg::Muri) => compat::muri(name, &parts, workload, config).or_request(),
        Some(CompatArg::Synergy) => compat::synergy(name, &parts, workload, config).or_request(),
    }?;
    // A tenancy read from a file is named after the file.
    if let (Some(read), Some(given)) = (&parts.tenancy, &args.tenancy) {
        policy.name = policy.name.replace(read.as_str(), given);
    }
    Ok((policy, needs))
}

/// Returns a warning if the turns of jobs are shorter than a restart, so that jobs make no progress.
pub fn short_turns(policy: &Policy, workload: &Workload, config: &SimConfig) -> Option<String> {
    let cost = config.restart_cost;
    if cost == Time::ZERO || !policy.discipline.needs_holders() {
        return None;
    }
    let round = match config.clock {
        Clock::Rounds { period, .. } => period,
        Clock::Events => Time::ZERO,
    };
    let turn = |gpus: u32| policy.order.time_slice(gpus).map(|turn| turn.max(round));
    let short = |gpus: u32| turn(gpus).is_some_and(|turn| turn <= cost);
    let jobs = workload.jobs.iter().filter(|j| short(j.gpus)).count();
    let narrowest = workload.jobs.iter().map(|j| j.gpus).filter(|g| short(*g)).min()?;
    let seconds = |time: Time| span_text(time.as_secs_f64());
    Some(format!(
        "{}: a job on {narrowest} GPU{} has turns of {}, and starting again takes {}: {jobs} of {} jobs may make no \
         progress once they have been stopped. Longer turns (quantum of las, first limit of tiresias) or a lower --restart-cost help",
        policy.name,
        if narrowest == 1 { "" } else { "s" },
        seconds(turn(narrowest)?),
        seconds(cost),
        workload.jobs.len(),
    ))
}

/// Splits `a,b:k=1,l=2,c` into policies: a piece with `=` but without `:` belongs to the policy before it.
pub fn split_policies(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for piece in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        match names.last_mut() {
            Some(last) if piece.contains('=') && !piece.contains(':') => {
                last.push(',');
                last.push_str(piece);
            }
            _ => names.push(piece.to_owned()),
        }
    }
    names
}

/// Parses `1..5` (both ends included) or `1,2,3`.
///
/// # Errors
/// Names the expected format.
pub fn seeds(text: &str) -> Result<Vec<u64>, Failure> {
    let bad = || {
        Failure::request(format!(
            "--seeds: found `{text}`, expected FIRST..LAST or a list such as 1,2,3"
        ))
    };
    if let Some((a, b)) = text.split_once("..") {
        let (a, b): (u64, u64) = (
            a.trim().parse().map_err(|_| bad())?,
            b.trim().parse().map_err(|_| bad())?,
        );
        return if a <= b && b - a < 10_000 {
            Ok((a..=b).collect())
        } else {
            Err(bad())
        };
    }
    text.split(',')
        .map(|s| s.trim().parse().map_err(|_| bad()))
        .collect()
}

/// Parses a list of loads.
///
/// # Errors
/// Names the expected format.
pub fn loads(text: &str) -> Result<Vec<f64>, Failure> {
    let bad = || {
        Failure::request(format!(
            "--loads: found `{text}`, expected numbers above 0 such as 0.7,0.9,1.1"
        ))
    };
    let parse = |s: &str| {
        s.trim()
            .parse::<f64>()
            .ok()
            .filter(|l| l.is_finite() && *l > 0.0)
            .ok_or_else(bad)
    };
    text.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_keep_their_knobs() {
        assert_eq!(
            split_policies("fifo, tiresias:limits=1/2,promote=2,srsf"),
            ["fifo", "tiresias:limits=1/2,promote=2", "srsf"]
        );
    }

    #[test]
    fn seeds_and_tracks_are_inclusive() {
        assert_eq!(seeds("1..3").unwrap(), [1, 2, 3]);
        assert_eq!(seeds("4,2").unwrap(), [4, 2]);
        assert!(seeds("3..1").is_err());
        assert_eq!(track("0..99").unwrap(), (0, 99));
        assert!(track("5").is_err());
    }
}
