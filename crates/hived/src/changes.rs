//! What a new configuration changes: machines, chains, and the cells of virtual clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dovetail_cells::{Chain, ChainId, Layout};

/// A difference between two configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutChange {
    /// A machine is new.
    MachineAdded {
        /// The machine.
        name: String,
        /// Its places in the chains.
        places: BTreeSet<String>,
    },
    /// A machine has another place.
    MachineMoved {
        /// The machine.
        name: String,
        /// Its places in the chains.
        from: BTreeSet<String>,
        /// Its new places.
        to: BTreeSet<String>,
    },
    /// A machine is removed.
    MachineRemoved {
        /// The machine.
        name: String,
        /// Its places in the chains.
        places: BTreeSet<String>,
    },
    /// A chain is new.
    ChainAdded {
        /// The chain.
        name: String,
        /// Its levels.
        shape: String,
    },
    /// A chain has other levels.
    ChainChanged {
        /// The chain.
        name: String,
        /// Its levels.
        from: String,
        /// Its new levels.
        to: String,
    },
    /// A chain is removed.
    ChainRemoved {
        /// The chain.
        name: String,
    },
    /// A virtual cluster is new.
    VirtualClusterAdded {
        /// The virtual cluster.
        name: String,
    },
    /// A virtual cluster is removed.
    VirtualClusterRemoved {
        /// The virtual cluster.
        name: String,
    },
    /// A virtual cluster owns more or fewer cells of a kind.
    CellsChanged {
        /// The virtual cluster.
        virtual_cluster: String,
        /// The cells.
        cells: String,
        /// Their number.
        from: u32,
        /// Their new number.
        to: u32,
    },
}

impl fmt::Display for LayoutChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MachineAdded { name, places } => write!(f, "+ machine {name} ({})", join(places)),
            Self::MachineMoved { name, from, to } => {
                write!(f, "~ machine {name} moves from {} to {}", join(from), join(to))
            }
            Self::MachineRemoved { name, places } => write!(f, "- machine {name} ({})", join(places)),
            Self::ChainAdded { name, shape } => write!(f, "+ chain {name}: {shape}"),
            Self::ChainChanged { name, from, to } => write!(f, "~ chain {name}: {from} becomes {to}"),
            Self::ChainRemoved { name } => write!(f, "- chain {name}"),
            Self::VirtualClusterAdded { name } => write!(f, "+ virtual cluster {name}"),
            Self::VirtualClusterRemoved { name } => write!(f, "- virtual cluster {name}"),
            Self::CellsChanged {
                virtual_cluster,
                cells,
                from,
                to,
            } => write!(f, "~ virtual cluster {virtual_cluster}: {cells} {from} → {to}"),
        }
    }
}

fn join(names: &BTreeSet<String>) -> String {
    names.iter().cloned().collect::<Vec<_>>().join(", ")
}

/// Returns the differences between two configurations: machines, then chains, then virtual clusters.
pub fn layout_changes(before: &Layout, after: &Layout) -> Vec<LayoutChange> {
    let mut changes = machine_changes(before, after);
    changes.extend(chain_changes(before, after));
    changes.extend(virtual_cluster_changes(before, after));
    changes
}

fn machine_changes(before: &Layout, after: &Layout) -> Vec<LayoutChange> {
    let (old, new) = (machines(before), machines(after));
    let mut changes = Vec::new();
    for (name, places) in &new {
        let (name, to) = (name.clone(), places.clone());
        match old.get(&name) {
            None => changes.push(LayoutChange::MachineAdded { name, places: to }),
            Some(from) if from != places => changes.push(LayoutChange::MachineMoved {
                from: from.clone(),
                name,
                to,
            }),
            Some(_) => {}
        }
    }
    let removed = old.into_iter().filter(|(name, _)| !new.contains_key(name));
    changes.extend(removed.map(|(name, places)| LayoutChange::MachineRemoved { name, places }));
    changes
}

/// Returns the places of each machine.
fn machines(layout: &Layout) -> BTreeMap<String, BTreeSet<String>> {
    let place = |(chain, node): &(ChainId, u32)| {
        let chain = layout.chain(*chain);
        format!("{} {}", chain.name, chain.address(chain.node_level, *node))
    };
    let each = layout
        .machines
        .iter()
        .map(|m| (m.name.clone(), m.nodes.iter().map(place).collect()));
    each.collect()
}

fn chain_changes(before: &Layout, after: &Layout) -> Vec<LayoutChange> {
    let shapes = |layout: &Layout| -> BTreeMap<String, String> {
        layout.chains.iter().map(|c| (c.name.clone(), shape(c))).collect()
    };
    let (old, new) = (shapes(before), shapes(after));
    let mut changes = Vec::new();
    for (name, shape) in &new {
        let (name, to) = (name.clone(), shape.clone());
        match old.get(&name) {
            None => changes.push(LayoutChange::ChainAdded { name, shape: to }),
            Some(from) if from != shape => changes.push(LayoutChange::ChainChanged {
                from: from.clone(),
                name,
                to,
            }),
            Some(_) => {}
        }
    }
    let removed = old.into_keys().filter(|name| !new.contains_key(name));
    changes.extend(removed.map(|name| LayoutChange::ChainRemoved { name }));
    changes
}

/// Returns the levels of a chain: `RACK of 2 · NODE of 4 · GPU`.
fn shape(chain: &Chain) -> String {
    let levels = (0..chain.types.len()).rev().map(|l| match chain.fanout[l] {
        0 => chain.types[l].clone(),
        n => format!("{} of {n}", chain.types[l]),
    });
    levels.collect::<Vec<_>>().join(" · ")
}

fn virtual_cluster_changes(before: &Layout, after: &Layout) -> Vec<LayoutChange> {
    let (old, new) = (owned_cells(before), owned_cells(after));
    let mut changes = Vec::new();
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let (was, is) = (old.get(name), new.get(name));
        if was.is_none() {
            changes.push(LayoutChange::VirtualClusterAdded { name: name.clone() });
        }
        let Some(is) = is else {
            changes.push(LayoutChange::VirtualClusterRemoved { name: name.clone() });
            continue;
        };
        let empty = BTreeMap::new();
        let was = was.unwrap_or(&empty);
        let kinds: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        for kind in kinds {
            let (from, to) = (was.get(kind).unwrap_or(&0), is.get(kind).unwrap_or(&0));
            if from != to {
                changes.push(LayoutChange::CellsChanged {
                    virtual_cluster: name.clone(),
                    cells: kind.clone(),
                    from: *from,
                    to: *to,
                });
            }
        }
    }
    changes
}

/// Returns the number of cells of each kind by virtual cluster.
fn owned_cells(layout: &Layout) -> BTreeMap<String, BTreeMap<String, u32>> {
    let mut all: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
    for vc in &layout.vcs {
        let cells = all.entry(vc.name.clone()).or_default();
        for slot in &vc.slots {
            let spec = &layout.slots[slot.index()];
            let kind = match &layout.views[spec.view.index()].pinned {
                Some(pin) => format!("pinned cell {pin}"),
                None => format!("{}.{}", layout.chain(spec.chain).name, layout.slot_type(*slot)),
            };
            *cells.entry(kind).or_default() += 1;
        }
    }
    all
}
