//! The forest of cell types: depth, leaves and machine level of each type.

use std::collections::BTreeMap;

use crate::compile::Fault;
use crate::config::Config;

/// Most leaves a cell or a cluster may have.
pub(crate) const MAX_LEAVES: u64 = 1 << 22;

/// Most names that [`join_names`] lists.
const MAX_NAMES: usize = 12;

/// A cell type with all types below it; each list starts at the leaf.
#[derive(Debug, Clone)]
pub(crate) struct TypeTree {
    /// Names of the types.
    pub(crate) levels: Vec<String>,
    /// Children of a cell; 0 for the leaf.
    pub(crate) fanout: Vec<u32>,
    /// Leaves of a cell.
    pub(crate) leaves: Vec<u32>,
    /// Level of machines.
    pub(crate) node_level: Option<usize>,
}

/// All valid cell types, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct TypeTable(BTreeMap<String, TypeTree>);

impl TypeTable {
    pub(crate) fn new(config: &Config, faults: &mut Vec<Fault>) -> Self {
        let mut table = BTreeMap::new();
        for name in config.cell_types.keys() {
            match type_tree(config, name) {
                Ok(tree) => {
                    table.insert(name.clone(), tree);
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
                format!("{name} is also in cellTypes; expected a leaf type, which has no children"),
            ));
        }
        Self(table)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&TypeTree> {
        self.0.get(name)
    }

    /// Lists the types for an error message.
    pub(crate) fn names(&self) -> String {
        let names = join_names(self.0.keys().map(String::as_str));
        if names.is_empty() {
            "the types in cellTypes, which is empty".to_owned()
        } else {
            names
        }
    }
}

/// Follows a type down to its leaf.
fn type_tree(config: &Config, top: &str) -> Result<TypeTree, Fault> {
    let path = |name: &str, key: &str| format!("physicalCluster.cellTypes.{name}.{key}");
    let mut down = vec![top.to_owned()];
    let mut fanout = Vec::new();
    let mut nodes = Vec::new();
    let mut name = top;
    while let Some(cell_type) = config.cell_types.get(name) {
        if cell_type.children == 0 {
            return Err(Fault::new(
                path(name, "childCellNumber"),
                "found 0, expected a whole number from 1",
            ));
        }
        if cell_type.is_node {
            nodes.push(name);
        }
        fanout.push(cell_type.children);
        name = &cell_type.child;
        if let Some(at) = down.iter().position(|d| d == name) {
            let mut cycle = down[at..].to_vec();
            cycle.sort();
            return Err(Fault::new(
                path(&cycle[0], "childCellType"),
                format!(
                    "{} form a cycle; expected types that end in a leaf",
                    cycle.join(", ")
                ),
            ));
        }
        down.push(name.to_owned());
    }
    if let [upper, lower, ..] = nodes[..] {
        return Err(Fault::new(
            path(lower, "isNodeLevel"),
            format!("{upper} above it has isNodeLevel too; expected one machine level between top and leaf"),
        ));
    }
    let levels: Vec<String> = down.into_iter().rev().collect();
    let fanout: Vec<u32> = std::iter::once(0).chain(fanout.into_iter().rev()).collect();
    let mut leaves = vec![1u32];
    for children in &fanout[1..] {
        let product = u64::from(leaves[leaves.len() - 1]) * u64::from(*children);
        if product > MAX_LEAVES {
            return Err(Fault::new(
                path(top, "childCellNumber"),
                format!("a cell has {product} leaf cells, expected at most {MAX_LEAVES}"),
            ));
        }
        leaves.push(product as u32);
    }
    let node_level = nodes.first().and_then(|n| levels.iter().position(|l| l == n));
    Ok(TypeTree {
        levels,
        fanout,
        leaves,
        node_level,
    })
}

/// Joins names for a message; after the first twelve it gives only the number of the others.
pub fn join_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    let all = names.len();
    names.truncate(MAX_NAMES);
    let mut text = names.join(", ");
    if all > names.len() {
        text += &format!(" and {} more", all - names.len());
    }
    text
}
