//! The cluster, the configuration and the policy of a run.

use std::path::Path;

use dovetail_engine::{Knowledge, Policy};
use dovetail_model::{ClusterSpec, Time};
use dovetail_policies::{build, check_runtime};
use dovetail_sim::{Failures, Outage, SIMULATOR, SimConfig, compat};
use dovetail_workload::{Workload, describe_cluster};

use crate::values::{parse_clock, parse_optional_span, parse_track};
use crate::{ExperimentError, Notice, ReferenceSystem, RunSpec, tenancy};

/// Cluster if none is given.
const DEFAULT_CLUSTER: &str = "16x8";
/// Default duration of a random outage.
const DEFAULT_REPAIR: Time = Time::from_secs(3600);

/// Returns the cluster.
pub(crate) fn open_cluster(
    spec: &RunSpec,
    notices: &mut dyn FnMut(Notice),
) -> Result<ClusterSpec, ExperimentError> {
    let described = describe_cluster(spec.cluster.as_deref().unwrap_or(DEFAULT_CLUSTER))?;
    described
        .notes
        .into_iter()
        .for_each(|note| notices(Notice::Note(note)));
    Ok(described.cluster)
}

/// Returns the configuration of a run on this cluster with this seed.
pub(crate) fn configure(
    spec: &RunSpec,
    cluster: ClusterSpec,
    seed: u64,
) -> Result<SimConfig, ExperimentError> {
    let mut config = SimConfig::new(cluster);
    config.seed = seed;
    config.check = spec.check;
    config.moments = spec.moments;
    config.clock = parse_clock(spec.clock.as_deref())?;
    config.knowledge = spec.knowledge;
    if let Some(error) = spec.estimate_error {
        if !(error.is_finite() && (0.0..=10.0).contains(&error)) {
            return Err(ExperimentError::InvalidSetting {
                key: "estimate-error",
                found: error.to_string(),
                expected: "a number from 0 to 10",
            });
        }
        config.estimate_error = error;
    }
    let span = |key, text: &Option<String>| parse_optional_span(key, text.as_deref());
    config.restart_cost = span("restart-cost", &spec.restart_cost)?.unwrap_or(Time::ZERO);
    config.checkpoint = span("checkpoint", &spec.checkpoint)?;
    config.checkpoint_cost = span("checkpoint-cost", &spec.checkpoint_cost)?.unwrap_or(Time::ZERO);
    config.failures.mtbf = span("mtbf", &spec.mtbf)?;
    config.failures.repair = span("repair", &spec.repair)?.unwrap_or(DEFAULT_REPAIR);
    if let Some(path) = &spec.failures {
        config.failures.outages = read_outages(path, &config.cluster)?;
    }
    config.track = spec.track.as_deref().map(parse_track).transpose()?;
    Ok(config)
}

fn read_outages(path: &Path, cluster: &ClusterSpec) -> Result<Vec<Outage>, ExperimentError> {
    let text = std::fs::read_to_string(path).map_err(|source| ExperimentError::Unreadable {
        what: "failures",
        path: path.to_owned(),
        source,
    })?;
    let names: Vec<String> = cluster.nodes.values().map(|n| n.name.clone()).collect();
    Ok(Failures::parse(&text, &path.display().to_string(), &names)?)
}

/// Returns the policy and what it must know, and adapts the configuration to a reference system.
pub(crate) fn build_policy(
    name: &str,
    spec: &RunSpec,
    workload: &Workload,
    config: &mut SimConfig,
) -> Result<(Policy, Knowledge), ExperimentError> {
    let mut parts = spec.overrides();
    tenancy::resolve(&mut parts, workload, config)?;
    let (mut policy, needs) = match spec.compat {
        None => build(name, &parts)?,
        Some(ReferenceSystem::Blox) => {
            let rate = spec.jobs_per_hour.or(spec.load);
            compat::blox(name, &parts, workload, rate, config)?
        }
        Some(ReferenceSystem::Muri) => compat::muri(name, &parts, workload, config)?,
        Some(ReferenceSystem::Synergy) => compat::synergy(name, &parts, workload, config)?,
    };
    check_runtime(&policy, &SIMULATOR)?;
    // A tenancy read from a file is named after the file.
    if let (Some(read), Some(given)) = (&parts.tenancy, &spec.tenancy) {
        policy.name = policy.name.replace(read.as_str(), given);
    }
    Ok((policy, needs))
}
