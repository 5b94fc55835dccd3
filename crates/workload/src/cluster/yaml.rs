//! The native cluster description, a YAML file.
//!
//! ```yaml
//! defaults:              # for every node that does not say otherwise; all of it may be left out
//!   gpu_type: V100       # any name
//!   gpus: 8              # GPUs of a node
//!   cpus: 96
//!   memory_gb: 512
//!   disk_mbps: 500       # disk bandwidth, MB/s
//!   network_gbps: 40
//!   gpus_per_domain: 4   # GPUs in one NUMA or NVLink domain
//! racks:                 # "zones" is another word for it
//!   - name: a            # racks and nodes without a name get a number
//!     count: 4           # so many equal racks: a-0 to a-3
//!     nodes: 8           # so many nodes in each
//!   - name: row-b
//!     gpu_type: A100     # holds for everything inside
//!     racks:             # zones nest to any depth
//!       - nodes:         # or a list
//!           - count: 2
//!             gpus: 4
//!           - name: big  # a node of this very name; with a count: big-0, big-1
//!             gpus: 16
//! nodes: 2               # nodes outside of any rack share one of their own
//! ```

use dovetail_model::suggest::nearest;
use dovetail_model::{ClusterSpec, NodeSpec, Zone, ZoneId};
use serde_json::{Map, Value};

use super::{ClusterError, MAX_NODE_GPUS, MAX_NODES, repeated_name};

const NODE_KEYS: [&str; 7] = [
    "gpu_type",
    "gpus",
    "cpus",
    "memory_gb",
    "disk_mbps",
    "network_gbps",
    "gpus_per_domain",
];
/// Racks in racks, at most.
const MAX_DEPTH: usize = 16;

/// The cluster a YAML text describes.
pub(super) fn parse(text: &str, file: &str) -> Result<ClusterSpec, ClusterError> {
    let value: Value = serde_saphyr::from_str(text).map_err(|e| ClusterError::Yaml {
        file: file.to_owned(),
        reason: crate::error::first_line(&e.to_string()),
    })?;
    let mut reader = Reader {
        file,
        cluster: ClusterSpec::default(),
    };
    let top = reader.map(&value, "top level")?;
    if top.contains_key("physicalCluster") || top.contains_key("virtualClusters") {
        let what = "this is a HiveD configuration, which is not read yet".to_owned();
        return Err(ClusterError::Unsupported {
            file: file.to_owned(),
            what,
        });
    }
    reader.known_keys(top, "", &["defaults", "racks", "zones", "nodes"])?;
    let mut kind = Kind::default();
    if let Some(defaults) = top.get("defaults") {
        let defaults = reader.map(defaults, "defaults")?;
        reader.known_keys(defaults, "defaults", &NODE_KEYS)?;
        kind = reader.kind(defaults, "defaults", &kind)?;
    }
    reader.zones(top, "", None, &kind, 0)?;
    if let Some(nodes) = top.get("nodes") {
        let zone = reader.cluster.zones.push(Zone {
            name: format!("rack-{}", reader.cluster.zones.len()),
            parent: None,
        });
        reader.nodes(nodes, "nodes", zone, &kind)?;
    }
    let cluster = reader.cluster;
    if cluster.nodes.is_empty() {
        let what = "there is no node in it, expected racks or nodes".to_owned();
        return Err(ClusterError::Key {
            file: file.to_owned(),
            path: "top level".to_owned(),
            what,
        });
    }
    if let Some(name) = repeated_name(&cluster.nodes) {
        let what = format!("two nodes are called {name:?}, expected each name once");
        return Err(ClusterError::Key {
            file: file.to_owned(),
            path: "nodes".to_owned(),
            what,
        });
    }
    Ok(cluster)
}

/// What is said of a node so far, from the top of the file down to it.
#[derive(Debug, Clone, Default)]
struct Kind {
    gpu_type: Option<String>,
    gpus: Option<u32>,
    cpu_milli: Option<u32>,
    memory_mib: Option<u64>,
    disk_mbps: Option<u32>,
    network_mbps: Option<u32>,
    gpus_per_domain: Option<u32>,
}

struct Reader<'f> {
    file: &'f str,
    cluster: ClusterSpec,
}

impl Reader<'_> {
    /// The racks of a map, under either word.
    fn zones(
        &mut self,
        map: &Map<String, Value>,
        path: &str,
        parent: Option<ZoneId>,
        kind: &Kind,
        depth: usize,
    ) -> Result<(), ClusterError> {
        for word in ["racks", "zones"] {
            let Some(value) = map.get(word) else { continue };
            let path = join(path, word);
            let Value::Array(items) = value else {
                return Err(self.wrong(&path, format!("found {}, expected a list of racks", shown(value))));
            };
            if depth >= MAX_DEPTH {
                return Err(self.wrong(&path, format!("racks are nested deeper than {MAX_DEPTH} levels")));
            }
            for (i, item) in items.iter().enumerate() {
                self.zone(item, &format!("{path}[{i}]"), parent, kind, depth)?;
            }
        }
        Ok(())
    }

    fn zone(
        &mut self,
        value: &Value,
        path: &str,
        parent: Option<ZoneId>,
        kind: &Kind,
        depth: usize,
    ) -> Result<(), ClusterError> {
        let map = self.map(value, path)?;
        let own = ["name", "count", "nodes", "racks", "zones"];
        self.known_keys(map, path, &[&own[..], &NODE_KEYS].concat())?;
        let kind = self.kind(map, path, kind)?;
        let (name, count) = self.name_and_count(map, path)?;
        if !["nodes", "racks", "zones"]
            .iter()
            .any(|key| map.contains_key(*key))
        {
            return Err(self.wrong(
                path,
                "found no nodes, expected nodes (a number or a list) or racks inside".to_owned(),
            ));
        }
        for i in 0..count {
            let name = match &name {
                Some(name) if count == 1 => name.clone(),
                Some(name) => format!("{name}-{i}"),
                None => format!("rack-{}", self.cluster.zones.len()),
            };
            if self.cluster.zones.len() >= MAX_NODES as usize {
                return Err(self.wrong(path, format!("more than {MAX_NODES} racks")));
            }
            let zone = self.cluster.zones.push(Zone { name, parent });
            self.zones(map, path, Some(zone), &kind, depth + 1)?;
            if let Some(nodes) = map.get("nodes") {
                self.nodes(nodes, &join(path, "nodes"), zone, &kind)?;
            }
        }
        Ok(())
    }

    /// The nodes of a rack: a number of equal ones, or a list of groups.
    fn nodes(&mut self, value: &Value, path: &str, zone: ZoneId, kind: &Kind) -> Result<(), ClusterError> {
        let Value::Array(groups) = value else {
            let count = self.whole(value, path, 1, MAX_NODES.into())? as u32;
            return self.add(path, zone, kind, None, count);
        };
        for (i, group) in groups.iter().enumerate() {
            let path = format!("{path}[{i}]");
            let map = self.map(group, &path)?;
            self.known_keys(map, &path, &[&["name", "count"][..], &NODE_KEYS].concat())?;
            let kind = self.kind(map, &path, kind)?;
            let (name, count) = self.name_and_count(map, &path)?;
            self.add(&path, zone, &kind, name.as_deref(), count)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        path: &str,
        zone: ZoneId,
        kind: &Kind,
        name: Option<&str>,
        count: u32,
    ) -> Result<(), ClusterError> {
        let Some(gpus) = kind.gpus else {
            return Err(self.wrong(
                path,
                "found no gpus, expected the number of GPUs of a node here or above".to_owned(),
            ));
        };
        if self.cluster.nodes.len() + count as usize > MAX_NODES as usize {
            return Err(self.wrong(path, format!("more than {MAX_NODES} nodes")));
        }
        let gpu_type = self.cluster.gpu_type(kind.gpu_type.as_deref().unwrap_or("gpu"));
        for i in 0..count {
            let name = match name {
                Some(name) if count == 1 => name.to_owned(),
                Some(name) => format!("{name}-{i}"),
                None => format!("node-{}", self.cluster.nodes.len()),
            };
            let plain = NodeSpec::plain(name, gpus);
            self.cluster.nodes.push(NodeSpec {
                zone,
                gpu_type,
                cpu_milli: kind.cpu_milli.unwrap_or(plain.cpu_milli),
                memory_mib: kind.memory_mib.unwrap_or(plain.memory_mib),
                disk_mbps: kind.disk_mbps.unwrap_or(plain.disk_mbps),
                network_mbps: kind.network_mbps.unwrap_or(plain.network_mbps),
                gpus_per_domain: kind.gpus_per_domain.unwrap_or(plain.gpus_per_domain).min(gpus),
                ..plain
            });
        }
        Ok(())
    }

    /// What a map says of its nodes, on top of what is known.
    fn kind(&self, map: &Map<String, Value>, path: &str, known: &Kind) -> Result<Kind, ClusterError> {
        let mut kind = known.clone();
        for (key, value) in map {
            let path = join(path, key);
            let amount = |most: f64| self.amount(value, &path, most);
            match key.as_str() {
                "gpu_type" => kind.gpu_type = Some(self.text(value, &path)?),
                "gpus" => kind.gpus = Some(self.whole(value, &path, 1, MAX_NODE_GPUS.into())? as u32),
                "cpus" => kind.cpu_milli = Some((amount(4e6)? * 1e3).round() as u32),
                "memory_gb" => kind.memory_mib = Some((amount(1e9)? * 1024.0).round() as u64),
                "disk_mbps" => kind.disk_mbps = Some(amount(4e9)?.round() as u32),
                "network_gbps" => kind.network_mbps = Some((amount(4e6)? * 1e3).round() as u32),
                "gpus_per_domain" => {
                    kind.gpus_per_domain = Some(self.whole(value, &path, 1, MAX_NODE_GPUS.into())? as u32);
                }
                _ => {}
            }
        }
        Ok(kind)
    }

    fn name_and_count(
        &self,
        map: &Map<String, Value>,
        path: &str,
    ) -> Result<(Option<String>, u32), ClusterError> {
        let name = map
            .get("name")
            .map(|v| self.text(v, &join(path, "name")))
            .transpose()?;
        let count = map.get("count").map_or(Ok(1), |v| {
            self.whole(v, &join(path, "count"), 1, MAX_NODES.into())
        })?;
        Ok((name, count as u32))
    }

    fn known_keys(&self, map: &Map<String, Value>, path: &str, known: &[&str]) -> Result<(), ClusterError> {
        let Some(key) = map.keys().find(|k| !known.contains(&k.as_str())) else {
            return Ok(());
        };
        let near = nearest(key, known.iter().copied());
        let hint = near
            .first()
            .map(|n| format!(" (did you mean {n}?)"))
            .unwrap_or_default();
        Err(self.wrong(
            &join(path, key),
            format!("unknown key{hint}; known are {}", known.join(", ")),
        ))
    }

    fn map<'v>(&self, value: &'v Value, path: &str) -> Result<&'v Map<String, Value>, ClusterError> {
        let expected = || self.wrong(path, format!("found {}, expected keys with values", shown(value)));
        value.as_object().ok_or_else(expected)
    }

    fn text(&self, value: &Value, path: &str) -> Result<String, ClusterError> {
        match value {
            Value::String(text) if !text.trim().is_empty() => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err(self.wrong(path, format!("found {}, expected a name", shown(value)))),
        }
    }

    fn whole(&self, value: &Value, path: &str, least: u64, most: u64) -> Result<u64, ClusterError> {
        let number = value.as_u64().filter(|n| (least..=most).contains(n));
        let expected = || {
            format!(
                "found {}, expected a whole number from {least} to {most}",
                shown(value)
            )
        };
        number.ok_or_else(|| self.wrong(path, expected()))
    }

    fn amount(&self, value: &Value, path: &str, most: f64) -> Result<f64, ClusterError> {
        let number = value.as_f64().filter(|n| (0.0..=most).contains(n));
        number.ok_or_else(|| {
            self.wrong(
                path,
                format!("found {}, expected a number from 0 to {most}", shown(value)),
            )
        })
    }

    fn wrong(&self, path: &str, what: String) -> ClusterError {
        ClusterError::Key {
            file: self.file.to_owned(),
            path: path.to_owned(),
            what,
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

fn shown(value: &Value) -> String {
    crate::error::shorten(&value.to_string())
}
