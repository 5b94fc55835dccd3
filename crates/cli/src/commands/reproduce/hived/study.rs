//! The clusters of the study, shared and private, and their runs.

use std::fmt::Write;

use dovetail_model::Time;
use dovetail_model::run::RunRecord;
use dovetail_policies::tenancy::{CellMap, SharedCells};
use dovetail_policies::{Overrides, build};
use dovetail_sim::{SimConfig, simulate};
use dovetail_workload::cluster::describe_bytes;
use dovetail_workload::{Workload, parse_hived};

use crate::failure::{Blame, Failure};

/// GPUs of a machine.
pub(super) const PER_MACHINE: u32 = 8;
/// Time from a launch to the first progress when a job was started before. Nothing: a job that changes machines in one
/// cluster may stay in the other, and the times of all jobs after it would drift apart.
pub(super) const RESTART: Time = Time::ZERO;

/// What tenants share, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Each is guaranteed so many GPUs, whichever they are.
    Quota,
    /// Each owns whole machines, whichever they are.
    Cells,
}

/// A tenant and the machines it owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) tenant: String,
    pub(super) machines: u32,
}

/// HiveD's configuration for these tenants: as many machines as they own together.
pub(super) fn file(owners: &[Owner]) -> String {
    let mut text = format!(
        "physicalCluster:\n  cellTypes:\n    NODE: {{childCellType: GPU, childCellNumber: {PER_MACHINE}, isNodeLevel: \
         true}}\n  physicalCells:\n"
    );
    let machines: u32 = owners.iter().map(|o| o.machines).sum();
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

/// Runs the jobs of these tenants on the machines they own together. A job that fits on a machine waits for one that
/// has room, a wider one for as few machines as can be.
pub(super) fn run(
    policy: &str,
    sharing: Sharing,
    owners: &[Owner],
    workload: &Workload,
) -> Result<RunRecord, Failure> {
    let text = file(owners);
    let cluster = describe_bytes(text.as_bytes(), "study.yaml").or_work()?.cluster;
    let tenants: Vec<String> = workload.names.tenants.values().cloned().collect();
    let mut overrides = Overrides {
        placement: Some("consolidate:strict=true".to_owned()),
        ..Overrides::default()
    };
    match sharing {
        Sharing::Quota => {
            let share = |o: &Owner| format!("{}={}", o.tenant, o.machines * PER_MACHINE);
            let shares: Vec<String> = owners.iter().map(share).collect();
            overrides.tenancy = Some(format!("quota:{},default=0", shares.join(",")));
        }
        Sharing::Cells => {
            let config = parse_hived(&text, "study.yaml").or_work()?;
            let faults = |faults: Vec<dovetail_cells::Fault>| {
                anyhow::anyhow!(
                    "{}",
                    faults
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join("; ")
                )
            };
            let layout = config.compile().map_err(faults).or_work()?.layout;
            let map = CellMap::new(layout, &cluster, &tenants).or_work()?;
            overrides.tenancy = Some("cells:study.yaml".to_owned());
            overrides.cells = Some(SharedCells::new(map));
        }
    }
    overrides.tenants = tenants;
    let (built, needs) = build(policy, &overrides).or_work()?;
    let mut config = SimConfig::new(cluster);
    (config.restart_cost, config.segments) = (RESTART, 0);
    simulate(workload, built, needs, &config).or_work()
}

/// The jobs of one tenant.
pub(super) fn only(workload: &Workload, tenant: &str) -> Workload {
    let mut own = workload.clone();
    own.jobs.retain(|j| workload.names.tenants[j.tenant] == tenant);
    own
}
