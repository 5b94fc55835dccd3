//! The machines of a HiveD configuration.

use std::collections::BTreeMap;

use dovetail_cells::{Chain, ChainId, Config, Layout, Sku};
use dovetail_hived::{ConfigError, config_of};
use dovetail_model::{ClusterSpec, NodeSpec, Zone, ZoneId};
use dovetail_yaml::Entry;

use super::ClusterError;

/// Returns one node for each machine and GPU type on it, and a zone for each cell above the machines. Leaves whose SKU has no
/// GPU are skipped.
pub(super) fn cluster(top: &Entry<'_>, file: &str) -> Result<ClusterSpec, ClusterError> {
    let config = config_of(top)?;
    let compiled = config.compile().map_err(|faults| ConfigError::Faults {
        file: file.to_owned(),
        faults,
    })?;
    let layout = &compiled.layout;
    let mut cluster = ClusterSpec::default();
    for (index, chain) in layout.chains.iter().enumerate() {
        let sku = config.sku_types.get(&chain.types[0]);
        if sku.is_none_or(|s| s.gpu > 0) {
            add_chain(&mut cluster, layout, ChainId(index as u32), sku, &config);
        }
    }
    if cluster.nodes.is_empty() {
        return Err(ClusterError::Content {
            file: file.to_owned(),
            what: "no machine has a GPU: expected at least one `skuTypes` entry with GPUs".to_owned(),
        });
    }
    Ok(cluster)
}

fn add_chain(cluster: &mut ClusterSpec, layout: &Layout, id: ChainId, sku: Option<&Sku>, config: &Config) {
    let chain = layout.chain(id);
    let gpu_type = cluster.gpu_type(&chain.types[0]);
    let gpus_each = sku.map_or(1, |s| s.gpu);
    let mut zones: BTreeMap<(usize, u32), ZoneId> = BTreeMap::new();
    for node in 0..chain.cells[chain.node_level] {
        let zone = zone(cluster, chain, &mut zones, node);
        let machine = &layout.machines[chain.machines[node as usize].index()];
        let kinds = machine.nodes.iter().filter(|(c, _)| {
            let kind = &layout.chain(*c).types[0];
            config.sku_types.get(kind).is_none_or(|s| s.gpu > 0)
        });
        let name = if kinds.count() > 1 {
            format!("{} ({})", machine.name, chain.types[0])
        } else {
            machine.name.clone()
        };
        let leaves = chain.node_leaves();
        let mut spec = NodeSpec::plain(name, leaves * gpus_each);
        spec.zone = zone;
        spec.gpu_type = gpu_type;
        if chain.node_level > 0 {
            spec.gpus_per_domain = chain.leaves[chain.node_level - 1].max(1) * gpus_each;
            if spec.gpus_per_domain == gpus_each {
                spec.gpus_per_domain = spec.gpus;
            }
        }
        if let Some(sku) = sku {
            spec.cpu_milli = u32::try_from(sku.cpu_milli * u64::from(leaves)).unwrap_or(u32::MAX);
            spec.memory_mib = sku.memory_mib * u64::from(leaves);
        }
        cluster.nodes.push(spec);
    }
}

/// Returns the zone of a machine, creating it and those above it if necessary.
fn zone(
    cluster: &mut ClusterSpec,
    chain: &Chain,
    zones: &mut BTreeMap<(usize, u32), ZoneId>,
    node: u32,
) -> ZoneId {
    let mut parent = None;
    for level in (chain.node_level + 1..=chain.top()).rev() {
        let cell = chain.ancestor(node, chain.node_level, level);
        let zone = *zones.entry((level, cell)).or_insert_with(|| {
            let name = format!("{} {}", chain.types[level], chain.address(level, cell));
            cluster.zones.push(Zone { name, parent })
        });
        parent = Some(zone);
    }
    parent.unwrap_or_else(|| {
        *zones.entry((chain.node_level, u32::MAX)).or_insert_with(|| {
            let name = chain.name.clone();
            cluster.zones.push(Zone { name, parent: None })
        })
    })
}
