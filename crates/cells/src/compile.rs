//! From what is written to what is used: fills in what was left out, and finds everything that is wrong.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Config, PhysicalCell};
use crate::layout::{
    Chain, ChainId, Layout, LeafType, Machine, MachineId, Part, SlotId, SlotSpec, VcId, VcSpec, ViewId,
    ViewSpec,
};
use crate::types::{MAX_LEAVES, TypeTable, listed};

/// Something that is wrong in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{path}: {what}")]
pub struct Fault {
    /// Where, from the top of the document.
    pub path: String,
    /// What was found and what would be right.
    pub what: String,
}

impl Fault {
    pub(crate) fn new(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            what: what.into(),
        }
    }
}

/// A configuration that can be used.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The trees and the slots.
    pub layout: Layout,
    /// What is allowed but perhaps not meant.
    pub notes: Vec<Fault>,
}

impl Config {
    /// Fills in what was left out and checks everything.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place.
    pub fn compile(&self) -> Result<Compiled, Vec<Fault>> {
        let mut faults = Vec::new();
        let types = TypeTable::new(self, &mut faults);
        let mut work = Compiler {
            config: self,
            types: &types,
            layout: Layout::default(),
            pins: BTreeMap::new(),
            faults,
            notes: Vec::new(),
        };
        work.physical();
        work.virtual_clusters();
        if work.faults.is_empty() {
            work.capacity();
        }
        if work.faults.is_empty() {
            Ok(Compiled {
                layout: work.layout,
                notes: work.notes,
            })
        } else {
            work.faults.sort();
            Err(work.faults)
        }
    }
}

/// A pinned cell: chain, level, number, and who owns it.
struct Pin {
    chain: ChainId,
    level: usize,
    index: u32,
    owner: Option<String>,
}

struct Compiler<'a> {
    config: &'a Config,
    types: &'a TypeTable,
    layout: Layout,
    pins: BTreeMap<String, Pin>,
    faults: Vec<Fault>,
    notes: Vec<Fault>,
}

impl Compiler<'_> {
    fn fault(&mut self, path: impl Into<String>, what: impl Into<String>) {
        self.faults.push(Fault::new(path, what));
    }

    fn physical(&mut self) {
        let mut tops: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, cell) in self.config.physical_cells.iter().enumerate() {
            let path = format!("physicalCluster.physicalCells[{at}].cellType");
            match &cell.cell_type {
                None => self.fault(
                    path,
                    format!(
                        "it is missing; expected the type of the cell, one of {}",
                        self.types.names()
                    ),
                ),
                Some(name) => match self.types.get(name) {
                    None => {
                        let what = format!("found {name:?}, expected one of {}", self.types.names());
                        self.fault(path, what);
                    }
                    Some(known) if known.node_level.is_none() => {
                        let what = format!(
                            "{name} is not a machine and holds none; expected a type with isNodeLevel, or one above it"
                        );
                        self.fault(path, what);
                    }
                    Some(_) => tops.entry(name).or_default().push(at),
                },
            }
        }
        if self.config.physical_cells.is_empty() {
            self.fault(
                "physicalCluster.physicalCells",
                "there is no cell; expected at least one",
            );
        }
        let leaves = |name: &str, cells: &[usize]| {
            let each = self
                .types
                .get(name)
                .and_then(|t| t.leaves.last().copied())
                .unwrap_or(0);
            u64::from(each) * cells.len() as u64
        };
        let all: u64 = tops.iter().map(|(name, cells)| leaves(name, cells)).sum();
        if all > MAX_LEAVES {
            let what = format!("the cluster would have {all} leaves, expected at most {MAX_LEAVES}");
            return self.fault("physicalCluster.physicalCells", what);
        }
        let mut leaf_types: BTreeSet<&str> = BTreeSet::new();
        for name in tops.keys() {
            leaf_types.extend(self.types.get(name).map(|t| t.levels[0].as_str()));
        }
        self.layout.leaf_types = leaf_types.iter().map(|s| (*s).to_owned()).collect();
        self.layout.chains_of = vec![Vec::new(); leaf_types.len()];
        for (name, cells) in tops {
            self.chain(name, &cells);
        }
        for chains in &mut self.layout.chains_of {
            chains.reverse();
        }
        self.machines();
    }

    fn chain(&mut self, name: &str, tops: &[usize]) {
        let Some(kind) = self.types.get(name) else { return };
        let id = ChainId(self.layout.chains.len() as u32);
        let leaf = self.layout.leaf_type_named(&kind.levels[0]).unwrap_or_default();
        let levels = kind.levels.len();
        let chain = Chain {
            name: name.to_owned(),
            types: kind.levels.clone(),
            leaf_type: LeafType(leaf.0),
            node_level: kind.node_level.unwrap_or(0),
            fanout: kind.fanout.clone(),
            leaves: kind.leaves.clone(),
            cells: vec![0; levels],
            machines: Vec::new(),
            leaf_indices: Vec::new(),
            parts: vec![Vec::new(); levels],
        };
        self.layout.chains.push(chain);
        self.layout.chains_of[leaf.index()].push(id);
        for at in tops {
            let cell = &self.config.physical_cells[*at];
            let path = format!("physicalCluster.physicalCells[{at}]");
            self.cell(id, levels - 1, cell, *at as u32, &path, None);
        }
        let chain = &mut self.layout.chains[id.index()];
        chain.cells = chain.parts.iter().map(|p| p.len() as u32).collect();
    }

    /// Adds one cell and all below it; `number` is what its address is if none is given.
    fn cell(
        &mut self,
        id: ChainId,
        level: usize,
        cell: &PhysicalCell,
        number: u32,
        path: &str,
        pinned_above: Option<&str>,
    ) {
        let chain = &mut self.layout.chains[id.index()];
        let kind = chain.types[level].clone();
        let (node_level, fanout) = (chain.node_level, chain.fanout[level]);
        let index = chain.parts[level].len() as u32;
        let part = cell
            .address
            .as_deref()
            .map_or(Part::Number(number), |a| Part::Name(a.into()));
        chain.parts[level].push(part);
        if let Some(given) = cell.cell_type.as_ref().filter(|t| **t != kind) {
            self.fault(
                format!("{path}.cellType"),
                format!("found {given:?}, expected {kind}, which is what its parent is made of"),
            );
        }
        let mut pinned = pinned_above;
        if let Some(pin) = &cell.pinned {
            self.pin(pin, id, level, index, path, pinned_above);
            pinned = Some(pin);
        }
        if level == node_level && cell.address.is_none() {
            self.fault(
                format!("{path}.cellAddress"),
                format!("it is missing; a {kind} is a machine, and its cellAddress is the machine's name"),
            );
        }
        if level == 0 {
            let found = cell.address.as_deref();
            let value = found.map_or(Ok(number as i32), |a| a.trim().parse::<i32>());
            let value = value.ok().filter(|v| *v >= 0);
            if value.is_none() {
                self.fault(
                    format!("{path}.cellAddress"),
                    format!(
                        "found {:?}, expected the index of the {kind} on its machine, a whole number from 0",
                        found.unwrap_or_default()
                    ),
                );
            }
            let chain = &mut self.layout.chains[id.index()];
            chain.leaf_indices.push(value.unwrap_or(0));
            if !cell.children.is_empty() {
                self.fault(
                    format!("{path}.cellChildren"),
                    format!("{kind} is a leaf and has no children"),
                );
            }
            return;
        }
        let given = cell.children.len() as u32;
        if given != 0 && given != fanout {
            self.fault(
                format!("{path}.cellChildren"),
                format!("found {given} cells, expected {fanout}: that is childCellNumber of {kind}"),
            );
        }
        let base = if level == node_level { 0 } else { number };
        let empty = PhysicalCell::default();
        for child in 0..fanout {
            let inner = cell.children.get(child as usize);
            let below = match inner {
                Some(_) => format!("{path}.cellChildren[{child}]"),
                None => path.to_owned(),
            };
            let number = base.saturating_mul(fanout).saturating_add(child);
            self.cell(id, level - 1, inner.unwrap_or(&empty), number, &below, pinned);
        }
    }

    fn pin(&mut self, pin: &str, chain: ChainId, level: usize, index: u32, path: &str, above: Option<&str>) {
        let here = format!("{path}.pinnedCellId");
        if let Some(above) = above {
            self.fault(
                &here,
                format!("{pin:?} is inside the pinned cell {above:?}; a pinned cell cannot hold another one"),
            );
        }
        let owner = None;
        let entry = Pin {
            chain,
            level,
            index,
            owner,
        };
        if self.pins.insert(pin.to_owned(), entry).is_some() {
            self.fault(
                &here,
                format!("{pin:?} is there twice; expected each pinnedCellId once"),
            );
        }
    }

    /// The machines behind the nodes, and whether anything is counted twice.
    fn machines(&mut self) {
        let mut seen: BTreeMap<(u32, u32, i32), String> = BTreeMap::new();
        for at in 0..self.layout.chains.len() {
            let id = ChainId(at as u32);
            let nodes = self.layout.chains[at].cells[self.layout.chains[at].node_level];
            for node in 0..nodes {
                let chain = &self.layout.chains[at];
                let name = match &chain.parts[chain.node_level][node as usize] {
                    Part::Number(number) => number.to_string(),
                    Part::Name(name) => name.to_string(),
                };
                let machines = &mut self.layout.machines;
                let next = MachineId(machines.len() as u32);
                let machine = *self.layout.machine_by_name.entry(name.clone()).or_insert(next);
                if machine == next {
                    machines.push(Machine {
                        name: name.clone(),
                        nodes: Default::default(),
                    });
                }
                let twice = machines[machine.index()].nodes.iter().any(|(c, _)| *c == id);
                machines[machine.index()].nodes.push((id, node));
                let chain = &mut self.layout.chains[at];
                chain.machines.push(machine);
                let address = chain.address(chain.node_level, node);
                let leaves = chain.inside(node, chain.node_level, 0);
                let kind = chain.leaf_type;
                let indices: Vec<i32> = leaves.map(|l| chain.leaf_indices[l as usize]).collect();
                if twice {
                    let what =
                        format!("machine {name:?} is there twice in the chain; expected each machine once");
                    self.fault(format!("physicalCluster.physicalCells (cell {address})"), what);
                    continue;
                }
                for index in indices {
                    let place = (kind.0, machine.0, index);
                    if let Some(other) = seen.insert(place, address.clone()) {
                        let what = format!(
                            "{} {index} of machine {name:?} is also in cell {other}; expected each leaf once",
                            self.layout.leaf_types[kind.index()]
                        );
                        self.fault(format!("physicalCluster.physicalCells (cell {address})"), what);
                    }
                }
            }
        }
    }

    fn virtual_clusters(&mut self) {
        if self.config.virtual_clusters.is_empty() {
            self.notes.push(Fault::new(
                "virtualClusters",
                "there is none, so nobody can ask for anything",
            ));
        }
        for (name, vc) in &self.config.virtual_clusters {
            let id = VcId(self.layout.vcs.len() as u32);
            let path = format!("virtualClusters.{name}");
            if !is_dns_label(name) {
                self.notes.push(Fault::new(
                    &path,
                    "Kubernetes wants lower-case letters, digits and '-' in the name of a virtual cluster",
                ));
            }
            self.layout.vcs.push(VcSpec {
                name: name.clone(),
                leaves_per_user: vc.leaves_per_user,
                user_limits: vc.user_limits.clone(),
                ..VcSpec::default()
            });
            for (at, cells) in vc.cells.iter().enumerate() {
                let path = format!("{path}.virtualCells[{at}]");
                if cells.number == 0 {
                    self.notes.push(Fault::new(
                        format!("{path}.cellNumber"),
                        "it is 0, so this line gives nothing",
                    ));
                }
                if let Some((chain, level)) = self.resolve(&cells.path, &path) {
                    for _ in 0..cells.number {
                        let view = self.view(id, chain);
                        self.slot(id, chain, level, view, None);
                    }
                }
            }
            for (at, pin) in vc.pinned.iter().enumerate() {
                self.own_pinned(id, name, pin, &format!("{path}.pinnedCells[{at}].pinnedCellId"));
            }
        }
        for (pin, owner) in &self.pins {
            if owner.owner.is_none() {
                let what = format!("no virtual cluster owns the pinned cell {pin:?}");
                self.notes.push(Fault::new("physicalCluster.physicalCells", what));
            }
        }
    }

    /// The chain and level a dotted path names.
    fn resolve(&mut self, cell_path: &str, path: &str) -> Option<(ChainId, usize)> {
        let path = format!("{path}.cellType");
        let mut parts = cell_path.split('.');
        let first = parts.next().unwrap_or_default();
        let Some(id) = self.layout.chain_named(first) else {
            let chains = listed(self.layout.chains.iter().map(|c| c.name.as_str()));
            self.fault(
                path,
                format!("{first:?} is not the type of a cell in physicalCells; expected one of {chains}"),
            );
            return None;
        };
        let chain = self.layout.chain(id);
        let mut level = chain.top();
        for part in parts {
            let Some(at) = chain.types[..level].iter().position(|t| t == part) else {
                let below = listed(chain.types[..level].iter().rev().map(String::as_str));
                let what = if below.is_empty() {
                    format!(
                        "there is nothing below {}, but {part:?} follows",
                        chain.types[level]
                    )
                } else {
                    format!(
                        "found {part:?} below {}, expected one of {below}",
                        chain.types[level]
                    )
                };
                self.fault(path, what);
                return None;
            };
            level = at;
        }
        Some((id, level))
    }

    fn view(&mut self, vc: VcId, chain: ChainId) -> ViewId {
        let views = &mut self.layout.views;
        let next = ViewId(views.len() as u32);
        let view = *self.layout.vcs[vc.index()].views.entry(chain).or_insert(next);
        if view == next {
            views.push(ViewSpec {
                vc,
                chain,
                pinned: None,
                slots: Vec::new(),
                leaves: 0,
            });
        }
        view
    }

    fn slot(&mut self, vc: VcId, chain: ChainId, level: usize, view: ViewId, pinned: Option<u32>) {
        let slot = SlotId(self.layout.slots.len() as u32);
        let owned = &mut self.layout.vcs[vc.index()].slots;
        let number = owned.len() as u32;
        owned.push(slot);
        self.layout.views[view.index()].slots.push(slot);
        self.layout.views[view.index()].leaves += self.layout.chains[chain.index()].leaves[level];
        self.layout.slots.push(SlotSpec {
            vc,
            number,
            chain,
            level,
            view,
            pinned,
        });
    }

    fn own_pinned(&mut self, vc: VcId, name: &str, pin: &str, path: &str) {
        let Some(entry) = self.pins.get_mut(pin) else {
            let known = listed(self.pins.keys().map(String::as_str));
            let what = if known.is_empty() {
                format!("found {pin:?}, but no physical cell has a pinnedCellId")
            } else {
                format!("found {pin:?}, expected the pinnedCellId of a physical cell: {known}")
            };
            return self.fault(path, what);
        };
        if let Some(other) = entry.owner.replace(name.to_owned()) {
            let what = format!("{pin:?} already belongs to virtual cluster {other:?}; expected one owner");
            return self.fault(path, what);
        }
        let (chain, level, index) = (entry.chain, entry.level, entry.index);
        let view = ViewId(self.layout.views.len() as u32);
        self.layout.views.push(ViewSpec {
            vc,
            chain,
            pinned: Some(pin.to_owned()),
            slots: Vec::new(),
            leaves: 0,
        });
        self.layout.vcs[vc.index()].pinned.insert(pin.to_owned(), view);
        self.slot(vc, chain, level, view, Some(index));
    }

    /// Whether everything that is promised can be had at once: pinned cells where they are, then all others from the
    /// top level down.
    fn capacity(&mut self) {
        for at in 0..self.layout.chains.len() {
            let chain = &self.layout.chains[at];
            let mut promised: Vec<(u64, BTreeMap<&str, u64>)> = vec![Default::default(); chain.types.len()];
            let mut pinned: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); chain.types.len()];
            for slot in self.layout.slots.iter().filter(|s| s.chain.index() == at) {
                if let Some(cell) = slot.pinned {
                    pinned[slot.level].insert(cell);
                    continue;
                }
                let (sum, by) = &mut promised[slot.level];
                *sum += 1;
                *by.entry(&self.layout.vcs[slot.vc.index()].name).or_default() += 1;
            }
            let free = free_beside(chain, &pinned);
            let mut above = 0;
            let mut short = None;
            for level in (0..=chain.top()).rev() {
                let (sum, by) = &promised[level];
                let available = above + free[level];
                if *sum > available {
                    let who = by.iter().map(|(vc, n)| format!("{vc} {n}"));
                    short = Some(format!(
                        "chain {}, level {} ({}): {sum} cells are promised ({}), but {available} can be had beside \
                         pinned and larger cells; expected at most {available}",
                        chain.name,
                        level + 1,
                        chain.types[level],
                        who.collect::<Vec<_>>().join(", ")
                    ));
                    break;
                }
                above = (available - sum) * u64::from(chain.fanout[level]);
            }
            if let Some(what) = short {
                self.fault("virtualClusters", what);
            }
        }
    }
}

/// The largest cells without a pinned one in them, by level.
fn free_beside(chain: &Chain, pinned: &[BTreeSet<u32>]) -> Vec<u64> {
    let mut split: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); pinned.len()];
    for (level, cells) in pinned.iter().enumerate() {
        for cell in cells {
            for (above, split) in split.iter_mut().enumerate().skip(level + 1) {
                split.insert(chain.ancestor(*cell, level, above));
            }
        }
    }
    let mut free = vec![0; pinned.len()];
    for level in 0..pinned.len() {
        let taken = (split[level].len() + pinned[level].len()) as u64;
        let offered = match split.get(level + 1) {
            Some(above) => above.len() as u64 * u64::from(chain.fanout[level + 1]),
            None => u64::from(chain.cells[level]),
        };
        free[level] = offered - taken;
    }
    free
}

fn is_dns_label(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
