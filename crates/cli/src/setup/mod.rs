//! From flags to configured objects: the cluster, the workload, the configuration of the run, the policy.

mod values;
mod workload;

use std::path::Path;

use anyhow::anyhow;
use dovetail_console::{Failure, OrFailure};
use dovetail_engine::{Clock, Knowledge, Policy, Runtime};
use dovetail_model::{ClusterSpec, Time};
use dovetail_policies::{Overrides, build, check_runtime};
use dovetail_report::format::span as span_text;
use dovetail_sim::{Failures, SimConfig, Simulator, compat};
use dovetail_workload::{Workload, describe_cluster};

use crate::args::{CompatArg, KnowledgeArg, RunArgs};
use crate::tenancy;

use values::{clock, span, track};
pub use values::{loads, seeds, split_policies};
pub use workload::{format, named_sensitivity_table, sensitivity_table, speeds, workload};

/// Cluster if none is given.
const DEFAULT_CLUSTER: &str = "16x8";
/// Returns the cluster of `--cluster`.
///
/// # Errors
/// Names the flag or file and the error.
pub fn cluster(args: &RunArgs) -> Result<ClusterSpec, Failure> {
    let described = describe_cluster(args.cluster.as_deref().unwrap_or(DEFAULT_CLUSTER)).or_request()?;
    if !args.quiet {
        described.notes.iter().for_each(|note| eprintln!("note: {note}"));
    }
    Ok(described.cluster)
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
            "--emit requires --out DIR, the directory to write to",
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

/// Returns the parts that replace those of the preset.
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
    check_runtime(&policy, &Simulator.capabilities()).or_request()?;
    // A tenancy read from a file is named after the file.
    if let (Some(read), Some(given)) = (&parts.tenancy, &args.tenancy) {
        policy.name = policy.name.replace(read.as_str(), given);
    }
    Ok((policy, needs))
}

/// Returns a warning if the time slices of jobs are no longer than a restart, so that jobs may make no progress.
pub fn short_time_slices(policy: &Policy, workload: &Workload, config: &SimConfig) -> Option<String> {
    let cost = config.restart_cost;
    if cost == Time::ZERO || !policy.discipline.needs_holders() {
        return None;
    }
    let round = match config.clock {
        Clock::Rounds { period, .. } => period,
        Clock::Events => Time::ZERO,
    };
    let slice = |gpus: u32| policy.order.time_slice(gpus).map(|slice| slice.max(round));
    let short = |gpus: u32| slice(gpus).is_some_and(|slice| slice <= cost);
    let jobs = workload.jobs.iter().filter(|j| short(j.gpus)).count();
    let narrowest = workload.jobs.iter().map(|j| j.gpus).filter(|g| short(*g)).min()?;
    let seconds = |time: Time| span_text(time.as_secs_f64());
    Some(format!(
        "{}: the time slice of a job on {narrowest} GPU{} is {}, and a restart takes {}: {jobs} of {} jobs may make no progress \
         once they have been stopped; use a longer time slice (quantum of las, first limit of tiresias) or a lower --restart-cost",
        policy.name,
        if narrowest == 1 { "" } else { "s" },
        seconds(slice(narrowest)?),
        seconds(cost),
        workload.jobs.len(),
    ))
}
