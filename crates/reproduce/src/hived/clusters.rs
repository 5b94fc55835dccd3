//! The clusters of the sharing study, shared and private, and their runs.

use std::fmt::Write;

use dovetail_cells::Fault;
use dovetail_hived::parse_config;
use dovetail_model::Time;
use dovetail_model::run::RunRecord;
use dovetail_policies::tenancy::{CellMap, SharedCells};
use dovetail_policies::{Overrides, build};
use dovetail_sim::{SimConfig, simulate};
use dovetail_workload::Workload;
use dovetail_workload::cluster::describe_bytes;

use crate::ReproduceError;

/// GPUs of a machine.
pub(super) const GPUS_PER_MACHINE: u32 = 8;
/// Restart cost of a job. It is zero because a job may change machines in one cluster and not in the other, after which
/// the times of all later jobs would drift apart.
pub(super) const RESTART_COST: Time = Time::ZERO;
/// Name of the generated configuration, for messages.
const FILE: &str = "study.yaml";

/// How tenants share a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Each tenant is guaranteed a number of GPUs, on any machines.
    Quota,
    /// Each tenant owns a number of whole machines, any of them.
    Cells,
}

/// A tenant and the number of machines it owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) tenant: String,
    pub(super) machines: u32,
}

/// Returns HiveD's configuration of a cluster with as many machines as the tenants own together.
fn hived_config(owners: &[Owner]) -> String {
    let mut text = format!(
        "physicalCluster:\n  cellTypes:\n    NODE: {{childCellType: GPU, childCellNumber: {GPUS_PER_MACHINE}, isNodeLevel: \
         true}}\n  physicalCells:\n"
    );
    let machines: u32 = owners.iter().map(|owner| owner.machines).sum();
    for machine in 0..machines {
        let _ = writeln!(text, "  - {{cellType: NODE, cellAddress: node-{machine}}}");
    }
    text += "virtualClusters:\n";
    for Owner { tenant, machines } in owners {
        let _ = writeln!(
            text,
            "  \"{tenant}\": {{virtualCells: [{{cellType: NODE, cellNumber: {machines}}}]}}"
        );
    }
    text
}

/// Runs the jobs of these tenants on the machines that they own together. A job that fits on a machine waits for one
/// with enough free GPUs, a wider job for the fewest machines possible.
pub(super) fn run(
    policy: &str,
    sharing: Sharing,
    owners: &[Owner],
    workload: &Workload,
) -> Result<RunRecord, ReproduceError> {
    let text = hived_config(owners);
    let cluster = describe_bytes(text.as_bytes(), FILE)?.cluster;
    let tenants: Vec<String> = workload.names.tenants.values().cloned().collect();
    let mut overrides = Overrides {
        placement: Some("consolidate:strict=true".to_owned()),
        ..Overrides::default()
    };
    match sharing {
        Sharing::Quota => {
            let share = |o: &Owner| format!("{}={}", o.tenant, o.machines * GPUS_PER_MACHINE);
            let shares: Vec<String> = owners.iter().map(share).collect();
            overrides.tenancy = Some(format!("quota:{},default=0", shares.join(",")));
        }
        Sharing::Cells => {
            let config = parse_config(&text, FILE)?;
            let layout = config.compile().map_err(invalid_cells)?.layout;
            let map = CellMap::new(layout, &cluster, &tenants)?;
            overrides.tenancy = Some(format!("cells:{FILE}"));
            overrides.cells = Some(SharedCells::new(map));
        }
    }
    overrides.tenants = tenants;
    let (built, needs) = build(policy, &overrides)?;
    let mut config = SimConfig::new(cluster);
    (config.restart_cost, config.segments) = (RESTART_COST, 0);
    Ok(simulate(workload, built, needs, &config)?)
}

fn invalid_cells(faults: Vec<Fault>) -> ReproduceError {
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    ReproduceError::Cells(texts.join("; "))
}

/// Returns the jobs of one tenant.
pub(super) fn jobs_of(workload: &Workload, tenant: &str) -> Workload {
    let mut own = workload.clone();
    own.jobs
        .retain(|job| workload.names.tenants[job.tenant] == tenant);
    own
}
