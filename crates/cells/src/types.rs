//! The forest of cell types: how deep each is, how many leaves it has, where its machines are.

use std::collections::BTreeMap;

use crate::compile::Fault;
use crate::config::Config;

/// The largest number of leaves a cell or a cluster may have.
pub(crate) const MAX_LEAVES: u64 = 1 << 22;

/// What is below one type, leaf first.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) levels: Vec<String>,
    pub(crate) fanout: Vec<u32>,
    pub(crate) leaves: Vec<u32>,
    pub(crate) node_level: Option<usize>,
}

/// All types that are sound.
#[derive(Debug, Clone, Default)]
pub(crate) struct TypeTable(BTreeMap<String, Kind>);

impl TypeTable {
    pub(crate) fn new(config: &Config, faults: &mut Vec<Fault>) -> Self {
        let mut table = BTreeMap::new();
        for name in config.cell_types.keys() {
            match follow(config, name) {
                Ok(kind) => {
                    table.insert(name.clone(), kind);
                }
                Err(fault) if !faults.contains(&fault) => faults.push(fault),
                Err(_) => {}
            }
        }
        for name in config
            .sku_types
            .keys()
            .filter(|n| config.cell_types.contains_key(*n))
        {
            faults.push(Fault::new(
                format!("physicalCluster.skuTypes.{name}"),
                format!("{name} is also in cellTypes; expected the name of a leaf, which has no children"),
            ));
        }
        Self(table)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Kind> {
        self.0.get(name)
    }

    pub(crate) fn names(&self) -> String {
        let names = listed(self.0.keys().map(String::as_str));
        if names.is_empty() {
            "the names in cellTypes, of which there are none".to_owned()
        } else {
            names
        }
    }
}

/// Follows a type down to its leaves.
fn follow(config: &Config, top: &str) -> Result<Kind, Fault> {
    let path = |name: &str, key: &str| format!("physicalCluster.cellTypes.{name}.{key}");
    let mut down = vec![top.to_owned()];
    let mut fanout = Vec::new();
    let mut nodes = Vec::new();
    let mut name = top;
    while let Some(kind) = config.cell_types.get(name) {
        if kind.children == 0 {
            return Err(Fault::new(
                path(name, "childCellNumber"),
                "found 0, expected a whole number from 1",
            ));
        }
        if kind.is_node {
            nodes.push(name);
        }
        fanout.push(kind.children);
        name = &kind.child;
        if down.iter().any(|d| d == name) {
            let ring = down
                .iter()
                .skip_while(|d| *d != name)
                .cloned()
                .collect::<Vec<_>>();
            let first = ring.iter().min().map_or(name, String::as_str);
            return Err(Fault::new(
                path(first, "childCellType"),
                format!(
                    "{} go round in a ring; expected types that end in a leaf",
                    ring_text(&ring)
                ),
            ));
        }
        down.push(name.to_owned());
    }
    if let [upper, lower, ..] = nodes[..] {
        return Err(Fault::new(
            path(lower, "isNodeLevel"),
            format!("{upper} above it is a machine already; expected one level of machines on each way down"),
        ));
    }
    let levels: Vec<String> = down.iter().rev().cloned().collect();
    let fanout: Vec<u32> = std::iter::once(0).chain(fanout.into_iter().rev()).collect();
    let mut leaves = vec![1u32];
    for children in &fanout[1..] {
        let wide = u64::from(leaves[leaves.len() - 1]) * u64::from(*children);
        if wide > MAX_LEAVES {
            return Err(Fault::new(
                path(top, "childCellNumber"),
                format!("a cell would have {wide} leaves, expected at most {MAX_LEAVES}"),
            ));
        }
        leaves.push(wide as u32);
    }
    let node_level = nodes.first().and_then(|n| levels.iter().position(|l| l == n));
    Ok(Kind {
        levels,
        fanout,
        leaves,
        node_level,
    })
}

fn ring_text(ring: &[String]) -> String {
    let mut sorted = ring.to_vec();
    sorted.sort();
    sorted.join(", ")
}

/// Names for a message, not too many of them.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    let all = names.len();
    names.truncate(12);
    let mut text = names.join(", ");
    if all > names.len() {
        text += &format!(" and {} more", all - names.len());
    }
    text
}
