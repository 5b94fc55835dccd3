//! Clusters as tables: one row for a whole cluster (Muri), or one for each machine.

use std::collections::BTreeMap;

use dovetail_model::{ClusterSpec, GpuTypeId, NodeSpec, Zone, ZoneId};

use super::{ClusterError, MAX_NODE_GPUS, MAX_NODES, repeated_name};
use crate::error::TraceError;
use crate::read::{Cell, Table, open};

/// GPUs of a Lingjun host, which its topology does not state.
const LINGJUN_GPUS: u32 = 8;

/// Parses a CSV file; the header determines its kind.
pub(super) fn parse(bytes: &[u8], file: &str) -> Result<ClusterSpec, ClusterError> {
    let (input, _) = open(bytes, file)?;
    let mut table = Table::with_header(input)?;
    let has = |name| table.column(name).is_some();
    let cluster = if has("num_switch") || has("num_gpu_p_node") {
        muri(&mut table)?
    } else if has("sn") && has("gpu") {
        openb(&mut table)?
    } else if has("gpu_capacity_num") {
        spot(&mut table)?
    } else if has("ASW") && has("PSW") {
        lingjun(&mut table)?
    } else {
        let what = format!(
            "unknown kind of cluster file with the columns {}",
            table.header().join(", ")
        );
        return Err(ClusterError::Unsupported {
            file: file.to_owned(),
            what,
        });
    };
    let wrong = |what: String| {
        Err(ClusterError::Content {
            file: file.to_owned(),
            what,
        })
    };
    if cluster.nodes.is_empty() {
        return wrong("no machine with a GPU: expected at least one".to_owned());
    }
    if let Some(name) = repeated_name(&cluster.nodes) {
        return wrong(format!("duplicate machine name {name:?}"));
    }
    Ok(cluster)
}

/// Muri's and Tiresias' cluster_spec: switches, nodes per switch, GPUs, CPUs and GB of memory of a node.
fn muri(table: &mut Table<'_>) -> Result<ClusterSpec, TraceError> {
    let required = ["num_switch", "num_node_p_switch", "num_gpu_p_node"];
    let [switches, nodes, gpus] = table.require("Muri cluster_spec", required)?;
    let [cpus, memory] = ["num_cpu_p_node", "mem_p_node"].map(|c| table.column(c));
    let mut cluster = ClusterSpec::default();
    let gpu_type = cluster.gpu_type("gpu");
    while let Some(row) = table.next_row()? {
        let switches = row.cell(switches).whole(1, MAX_NODES.into())?;
        let room = u64::from(MAX_NODES).saturating_sub(cluster.nodes.len() as u64);
        let per_switch = row.cell(nodes).whole(1, (room / switches).max(1))?;
        let gpus = row.cell(gpus).whole(1, MAX_NODE_GPUS.into())? as u32;
        let cpu_milli = row.optional(cpus).map(cpu_milli).transpose()?;
        let memory_mib = row.optional(memory).map(|c| c.gib_as_mib()).transpose()?;
        for _ in 0..switches {
            let name = format!("switch-{}", cluster.zones.len());
            let zone = cluster.zones.push(Zone { name, parent: None });
            for _ in 0..per_switch {
                let name = format!("node-{}", cluster.nodes.len());
                let mut node = NodeSpec {
                    zone,
                    gpu_type,
                    ..NodeSpec::plain(name, gpus)
                };
                node.cpu_milli = cpu_milli.unwrap_or(node.cpu_milli);
                node.memory_mib = memory_mib.unwrap_or(node.memory_mib);
                cluster.nodes.push(node);
            }
        }
    }
    Ok(cluster)
}

/// openb's node list. Machines without a GPU are skipped.
fn openb(table: &mut Table<'_>) -> Result<ClusterSpec, TraceError> {
    let [name, cpu, memory, gpus] =
        table.require("openb node list", ["sn", "cpu_milli", "memory_mib", "gpu"])?;
    let model = table.column("model");
    let mut cluster = one_rack();
    while let Some(row) = table.next_row()? {
        let gpus = row.cell(gpus).whole(0, MAX_NODE_GPUS.into())? as u32;
        if gpus == 0 {
            continue;
        }
        let gpu_type = named_type(&mut cluster, row.text(model));
        let mut node = NodeSpec {
            gpu_type,
            ..NodeSpec::plain(row.cell(name).text.trim(), gpus)
        };
        node.cpu_milli = row.cell(cpu).whole(0, u32::MAX.into())? as u32;
        node.memory_mib = row.cell(memory).whole(0, 1 << 40)?;
        cluster.nodes.push(node);
    }
    Ok(cluster)
}

/// The nodes of Alibaba's 2026 spot trace. Machines without a GPU are skipped.
fn spot(table: &mut Table<'_>) -> Result<ClusterSpec, TraceError> {
    let [name, gpus] = table.require("spot node_info", ["node_name", "gpu_capacity_num"])?;
    let [model, cpus] = ["gpu_model", "cpu_num"].map(|c| table.column(c));
    let mut cluster = one_rack();
    while let Some(row) = table.next_row()? {
        let gpus = row.cell(gpus).whole(0, MAX_NODE_GPUS.into())? as u32;
        if gpus == 0 {
            continue;
        }
        let gpu_type = named_type(&mut cluster, row.text(model));
        let mut node = NodeSpec {
            gpu_type,
            ..NodeSpec::plain(row.cell(name).text.trim(), gpus)
        };
        if let Some(cell) = row.optional(cpus) {
            node.cpu_milli = cpu_milli(cell)?;
        }
        cluster.nodes.push(node);
    }
    Ok(cluster)
}

/// Lingjun's Clos network: each host is connected to an access switch, which is below an aggregation and a core switch.
fn lingjun(table: &mut Table<'_>) -> Result<ClusterSpec, TraceError> {
    let [host, core, aggregation, access] = table.require("Lingjun topo", ["ip", "DSW", "PSW", "ASW"])?;
    let mut cluster = ClusterSpec::default();
    let gpu_type = cluster.gpu_type("gpu");
    let mut zones: BTreeMap<String, ZoneId> = BTreeMap::new();
    while let Some(row) = table.next_row()? {
        let (mut path, mut parent) = (String::new(), None);
        for level in [core, aggregation, access] {
            path.push_str(if path.is_empty() { "" } else { "/" });
            path.push_str(row.cell(level).text.trim());
            let add = || {
                cluster.zones.push(Zone {
                    name: path.clone(),
                    parent,
                })
            };
            parent = Some(*zones.entry(path.clone()).or_insert_with(add));
        }
        let zone = parent.unwrap_or_default();
        cluster.nodes.push(NodeSpec {
            zone,
            gpu_type,
            ..NodeSpec::plain(row.cell(host).text.trim(), LINGJUN_GPUS)
        });
    }
    Ok(cluster)
}

fn one_rack() -> ClusterSpec {
    let mut cluster = ClusterSpec::default();
    cluster.zones.push(Zone {
        name: "rack-0".to_owned(),
        parent: None,
    });
    cluster
}

fn named_type(cluster: &mut ClusterSpec, name: &str) -> GpuTypeId {
    let name = name.trim();
    cluster.gpu_type(if name.is_empty() { "gpu" } else { name })
}

fn cpu_milli(cell: Cell<'_>) -> Result<u32, TraceError> {
    Ok(cell.scaled(3, u32::MAX.into(), "a number of CPUs of at least 0")? as u32)
}
