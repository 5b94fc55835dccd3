//! `--tenancy`: the shares of tenants, with the files it names.

use std::path::Path;

use dovetail_console::{Failure, OrFailure};
use dovetail_model::TenantId;
use dovetail_policies::Overrides;
use dovetail_policies::tenancy::{CellMap, QuotaShare, QuotaShares, SharedCells};
use dovetail_sim::SimConfig;
use dovetail_workload::{Workload, quota::read_quota};

/// Resolves the tenants of the workload and the files that a tenancy names.
///
/// # Errors
/// Names the error in the file, or in its guarantees.
pub fn resolve(overrides: &mut Overrides, workload: &Workload, config: &SimConfig) -> Result<(), Failure> {
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
) -> Result<SharedCells, Failure> {
    let (_, compiled) = dovetail_hived::read_config(Path::new(file)).or_request()?;
    let layout = compiled.layout;
    let unknown = workload
        .jobs
        .iter()
        .find(|j| layout.vc_named(&workload.names.tenants[j.tenant]).is_none());
    if let Some(job) = unknown {
        let names: Vec<&str> = layout.vcs.iter().map(|vc| vc.name.as_str()).collect();
        return Err(Failure::request(format!(
            "--tenancy cells: tenant `{}` of the workload is not a virtual cluster of {file}: expected one of {}",
            workload.names.tenants[job.tenant],
            names.join(", ")
        )));
    }
    let users: Vec<String> = workload.names.users.values().cloned().collect();
    let map = CellMap::new(layout, &config.cluster, tenants).or_request()?;
    Ok(SharedCells::new(map.with_users(&users)))
}

/// Returns the shares from the text, or from the file it names.
fn shares(value: &str) -> Result<QuotaShares, Failure> {
    if value.contains('=') {
        return QuotaShares::parse(value).or_request();
    }
    let mut shares = QuotaShares::default();
    for (name, guaranteed, borrowed) in read_quota(Path::new(value)).or_request()? {
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
fn check_shares(shares: &QuotaShares, workload: &Workload, config: &SimConfig) -> Result<(), Failure> {
    let guaranteed: u64 = shares.named.values().map(|s| u64::from(s.guaranteed)).sum();
    let others = |name: &String| !shares.named.contains_key(name);
    let has_jobs = |tenant: TenantId| workload.jobs.iter().any(|j| j.tenant == tenant);
    let others = workload.names.tenants.iter().filter(|(_, name)| others(name));
    let others: Vec<&String> = others
        .filter(|(id, _)| has_jobs(*id))
        .map(|(_, name)| name)
        .collect();
    let each = shares.default.map_or(0, |s| u64::from(s.guaranteed));
    let (guaranteed, gpus) = (guaranteed + each * others.len() as u64, config.cluster.gpus());
    if guaranteed > u64::from(gpus) {
        return Err(Failure::request(format!(
            "--tenancy quota: guarantees of {guaranteed} GPUs exceed the {gpus} GPUs of the cluster"
        )));
    }
    match shares.default {
        None if !others.is_empty() => Err(Failure::request(format!(
            "--tenancy quota: missing share for {}: add TENANT=GPUS for {}, or default=GPUS for all others",
            others
                .iter()
                .map(|n| format!("`{n}`"))
                .collect::<Vec<_>>()
                .join(", "),
            if others.len() == 1 { "it" } else { "each" },
        ))),
        _ => Ok(()),
    }
}
