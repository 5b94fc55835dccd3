//! The native cluster description, a YAML file.
//!
//! ```yaml
//! defaults:              # for every node that does not override it; all keys are optional
//!   gpu_type: V100       # any name
//!   gpus: 8              # GPUs of a node
//!   cpus: 96
//!   memory_gb: 512
//!   gpu_memory_gb: 32    # per GPU; no limit if missing
//!   disk_mbps: 500       # disk bandwidth, MB/s
//!   network_gbps: 40
//!   gpus_per_domain: 4   # GPUs in one NUMA or NVLink domain
//!   numa: 2              # number of equal NUMA domains, or a list of them:
//!   # numa: [{cpus: "0-23,48-71", gpus: 0-3}, {cpus: "24-47,72-95", gpus: 4-7}]
//! racks:                 # "zones" is an alias
//!   - name: a            # racks and nodes without a name get a number
//!     count: 4           # number of equal racks: a-0 to a-3
//!     nodes: 8           # number of nodes in each
//!   - name: row-b
//!     gpu_type: A100     # applies to everything inside
//!     racks:             # zones nest to any depth
//!       - nodes:         # or a list
//!           - count: 2
//!             gpus: 4
//!           - name: big  # a node with this name; with a count: big-0, big-1
//!             gpus: 16
//! nodes: 2               # nodes outside of any rack share one of their own
//! ```

use dovetail_model::{ClusterSpec, NodeSpec, Zone, ZoneId};

use super::numa::Numa;
use super::{ClusterError, MAX_NODE_GPUS, MAX_NODES, repeated_name};
use dovetail_yaml::{Entry, YamlError, parse as parse_yaml};

const NODE_KEYS: [&str; 9] = [
    "gpu_type",
    "gpus",
    "cpus",
    "memory_gb",
    "gpu_memory_gb",
    "disk_mbps",
    "network_gbps",
    "gpus_per_domain",
    "numa",
];
/// Maximum depth of nested racks.
const MAX_DEPTH: usize = 16;

/// Parses a YAML text.
pub(super) fn parse(text: &str, file: &str) -> Result<ClusterSpec, ClusterError> {
    let value = parse_yaml(text, file)?;
    let top = Entry::top(file, &value);
    if top.get("physicalCluster")?.is_some() || top.get("virtualClusters")?.is_some() {
        return super::hived::cluster(&top, file);
    }
    top.entries(&["defaults", "racks", "zones", "nodes"])?;
    let mut settings = NodeSettings::default();
    if let Some(defaults) = top.get("defaults")? {
        defaults.entries(&NODE_KEYS)?;
        settings.add(&defaults)?;
    }
    let mut cluster = ClusterSpec::default();
    add_zones(&mut cluster, &top, None, &settings, 0)?;
    if let Some(nodes) = top.get("nodes")? {
        let name = format!("rack-{}", cluster.zones.len());
        let zone = cluster.zones.push(Zone { name, parent: None });
        add_nodes(&mut cluster, &nodes, zone, &settings)?;
    }
    if cluster.nodes.is_empty() {
        return Err(top.wrong("no nodes: expected `racks` or `nodes`").into());
    }
    if let Some(name) = repeated_name(&cluster.nodes) {
        return Err(top.wrong(format!("duplicate node name {name:?}")).into());
    }
    Ok(cluster)
}

/// The settings of a node so far, inherited from the top of the file.
#[derive(Debug, Clone, Default)]
struct NodeSettings {
    gpu_type: Option<String>,
    gpus: Option<u32>,
    cpu_milli: Option<u32>,
    memory_mib: Option<u64>,
    gpu_memory_mib: Option<u64>,
    disk_mbps: Option<u32>,
    network_mbps: Option<u32>,
    gpus_per_domain: Option<u32>,
    numa: Option<Numa>,
}

impl NodeSettings {
    /// Applies the settings of a map.
    fn add(&mut self, map: &Entry<'_>) -> Result<(), YamlError> {
        for (key, value) in map.all_entries()? {
            match key {
                "gpu_type" => self.gpu_type = Some(value.text()?),
                "gpus" => self.gpus = Some(value.whole(1, MAX_NODE_GPUS.into())? as u32),
                "cpus" => self.cpu_milli = Some((value.amount(0.0, 4e6)? * 1e3).round() as u32),
                "memory_gb" => self.memory_mib = Some((value.amount(0.0, 1e9)? * 1024.0).round() as u64),
                "gpu_memory_gb" => {
                    self.gpu_memory_mib = Some((value.amount(0.0, 1e9)? * 1024.0).round() as u64)
                }
                "disk_mbps" => self.disk_mbps = Some(value.amount(0.0, 4e9)?.round() as u32),
                "network_gbps" => self.network_mbps = Some((value.amount(0.0, 4e6)? * 1e3).round() as u32),
                "gpus_per_domain" => {
                    self.gpus_per_domain = Some(value.whole(1, MAX_NODE_GPUS.into())? as u32)
                }
                "numa" => self.numa = Some(Numa::read(&value)?),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Adds the racks of a map, under either key.
fn add_zones(
    cluster: &mut ClusterSpec,
    map: &Entry<'_>,
    parent: Option<ZoneId>,
    settings: &NodeSettings,
    depth: usize,
) -> Result<(), YamlError> {
    for word in ["racks", "zones"] {
        let Some(zones) = map.get(word)? else { continue };
        let items = zones.list().ok_or_else(|| zones.expected("a list of racks"))?;
        if depth >= MAX_DEPTH {
            return Err(zones.wrong(format!("racks are nested deeper than {MAX_DEPTH} levels")));
        }
        for item in items {
            add_zone(cluster, &item, parent, settings, depth)?;
        }
    }
    Ok(())
}

fn add_zone(
    cluster: &mut ClusterSpec,
    map: &Entry<'_>,
    parent: Option<ZoneId>,
    settings: &NodeSettings,
    depth: usize,
) -> Result<(), YamlError> {
    let own = ["name", "count", "nodes", "racks", "zones"];
    let entries = map.entries(&[&own[..], &NODE_KEYS].concat())?;
    if !entries
        .iter()
        .any(|(key, _)| ["nodes", "racks", "zones"].contains(key))
    {
        return Err(map.wrong("missing `nodes`: expected `nodes` (a number or a list) or `racks`"));
    }
    let mut settings = settings.clone();
    settings.add(map)?;
    let (name, count) = name_and_count(map)?;
    let nodes = map.get("nodes")?;
    for i in 0..count {
        if cluster.zones.len() >= MAX_NODES as usize {
            return Err(map.wrong(format!("more than {MAX_NODES} racks")));
        }
        let name =
            numbered(name.as_deref(), i, count).unwrap_or_else(|| format!("rack-{}", cluster.zones.len()));
        let zone = cluster.zones.push(Zone { name, parent });
        add_zones(cluster, map, Some(zone), &settings, depth + 1)?;
        if let Some(nodes) = &nodes {
            add_nodes(cluster, nodes, zone, &settings)?;
        }
    }
    Ok(())
}

/// Adds the nodes of a rack: a number of equal ones, or a list of groups.
fn add_nodes(
    cluster: &mut ClusterSpec,
    nodes: &Entry<'_>,
    zone: ZoneId,
    settings: &NodeSettings,
) -> Result<(), YamlError> {
    let Some(groups) = nodes.list() else {
        let count = nodes.whole(1, MAX_NODES.into())? as u32;
        return add_group(cluster, nodes, zone, settings, None, count);
    };
    for group in groups {
        group.entries(&[&["name", "count"][..], &NODE_KEYS].concat())?;
        let mut settings = settings.clone();
        settings.add(&group)?;
        let (name, count) = name_and_count(&group)?;
        add_group(cluster, &group, zone, &settings, name.as_deref(), count)?;
    }
    Ok(())
}

fn add_group(
    cluster: &mut ClusterSpec,
    at: &Entry<'_>,
    zone: ZoneId,
    settings: &NodeSettings,
    name: Option<&str>,
    count: u32,
) -> Result<(), YamlError> {
    let Some(gpus) = settings.gpus else {
        return Err(at.wrong("missing `gpus`: expected the number of GPUs of a node, here or above"));
    };
    if cluster.nodes.len() + count as usize > MAX_NODES as usize {
        return Err(at.wrong(format!("more than {MAX_NODES} nodes")));
    }
    let mut like = NodeSpec::plain("", gpus);
    like.cpu_milli = settings.cpu_milli.unwrap_or(like.cpu_milli);
    if let Some(numa) = &settings.numa {
        like.numa = numa.domains(at, like.cpu_milli, gpus)?;
        let in_domains = like.numa.iter().map(|d| d.gpus.count()).max();
        like.gpus_per_domain = in_domains.unwrap_or(gpus).max(1);
    }
    let gpu_type = cluster.gpu_type(settings.gpu_type.as_deref().unwrap_or("gpu"));
    for i in 0..count {
        let name = numbered(name, i, count).unwrap_or_else(|| format!("node-{}", cluster.nodes.len()));
        cluster.nodes.push(NodeSpec {
            name,
            zone,
            gpu_type,
            memory_mib: settings.memory_mib.unwrap_or(like.memory_mib),
            gpu_memory_mib: settings.gpu_memory_mib.unwrap_or(like.gpu_memory_mib),
            disk_mbps: settings.disk_mbps.unwrap_or(like.disk_mbps),
            network_mbps: settings.network_mbps.unwrap_or(like.network_mbps),
            gpus_per_domain: settings.gpus_per_domain.unwrap_or(like.gpus_per_domain).min(gpus),
            ..like.clone()
        });
    }
    Ok(())
}

fn name_and_count(map: &Entry<'_>) -> Result<(Option<String>, u32), YamlError> {
    let name = map.get("name")?.map(|entry| entry.text()).transpose()?;
    let count = map
        .get("count")?
        .map_or(Ok(1), |entry| entry.whole(1, MAX_NODES.into()))?;
    Ok((name, count as u32))
}

/// Returns the name, with a number if there are several.
fn numbered(name: Option<&str>, i: u32, count: u32) -> Option<String> {
    name.map(|name| {
        if count == 1 {
            name.to_owned()
        } else {
            format!("{name}-{i}")
        }
    })
}
