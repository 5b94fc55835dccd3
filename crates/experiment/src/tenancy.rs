//! The shares of tenants, with the files that a tenancy names.

use std::path::Path;

use dovetail_model::TenantId;
use dovetail_policies::Overrides;
use dovetail_policies::tenancy::{CellMap, QuotaShare, QuotaShares, SharedCells};
use dovetail_sim::SimConfig;
use dovetail_workload::Workload;
use dovetail_workload::quota::read_quota;

use crate::ExperimentError;

/// Resolves the tenants of the workload and the files that a tenancy names.
pub(crate) fn resolve(
    overrides: &mut Overrides,
    workload: &Workload,
    config: &SimConfig,
) -> Result<(), ExperimentError> {
    let Some(text) = &overrides.tenancy else {
        return Ok(());
    };
    overrides.tenants = workload.names.tenants.values().cloned().collect();
    if let Some(("quota", value)) = text.split_once(':') {
        let shares = shares(value)?;
        check_shares(&shares, workload, config)?;
        overrides.tenancy = Some(format!("quota:{shares}"));
    } else if let Some(("cells", file)) = text.split_once(':') {
        overrides.cells = Some(cells(file, workload, config, &overrides.tenants)?);
    }
    Ok(())
}

/// Reads the cells of a file, for the nodes of this cluster and the tenants of this workload.
fn cells(
    file: &str,
    workload: &Workload,
    config: &SimConfig,
    tenants: &[String],
) -> Result<SharedCells, ExperimentError> {
    let (_, compiled) = dovetail_hived::read_config(Path::new(file))?;
    let layout = compiled.layout;
    let unknown = workload
        .jobs
        .iter()
        .find(|j| layout.vc_named(&workload.names.tenants[j.tenant]).is_none());
    if let Some(job) = unknown {
        return Err(ExperimentError::UnknownVirtualCluster {
            tenant: workload.names.tenants[job.tenant].clone(),
            file: file.to_owned(),
            known: layout.vcs.iter().map(|vc| vc.name.clone()).collect(),
        });
    }
    let users: Vec<String> = workload.names.users.values().cloned().collect();
    let map = CellMap::new(layout, &config.cluster, tenants)?;
    Ok(SharedCells::new(map.with_users(&users)))
}

/// Returns the shares from the text, or from the file it names.
fn shares(value: &str) -> Result<QuotaShares, ExperimentError> {
    if value.contains('=') {
        return Ok(QuotaShares::parse(value)?);
    }
    let mut shares = QuotaShares::default();
    for (name, guaranteed, borrowed) in read_quota(Path::new(value))? {
        let share = QuotaShare {
            guaranteed,
            borrowed: borrowed.unwrap_or(u32::MAX),
        };
        match name.as_str() {
            "default" => shares.default = Some(share),
            _ => drop(shares.named.insert(name, share)),
        }
    }
    Ok(shares)
}

/// Checks that guarantees do not exceed the cluster, and that every tenant with jobs has a share.
fn check_shares(
    shares: &QuotaShares,
    workload: &Workload,
    config: &SimConfig,
) -> Result<(), ExperimentError> {
    let has_jobs = |tenant: TenantId| workload.jobs.iter().any(|j| j.tenant == tenant);
    let tenants = workload.names.tenants.iter();
    let others: Vec<String> = tenants
        .filter(|(id, name)| !shares.named.contains_key(*name) && has_jobs(*id))
        .map(|(_, name)| name.clone())
        .collect();
    let named: u64 = shares.named.values().map(|s| u64::from(s.guaranteed)).sum();
    let each = shares.default.map_or(0, |s| u64::from(s.guaranteed));
    let (guaranteed, gpus) = (named + each * others.len() as u64, config.cluster.gpus());
    if guaranteed > u64::from(gpus) {
        return Err(ExperimentError::ExcessiveGuarantees { guaranteed, gpus });
    }
    match shares.default {
        None if !others.is_empty() => Err(ExperimentError::MissingShare { tenants: others }),
        _ => Ok(()),
    }
}
