//! Compiles the physical cells: chains of regular trees and the machines in them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Findings, Pin};
use crate::cell_types::{MAX_LEAVES, TypeTable};
use crate::config::{Config, PhysicalCell};
use crate::layout::{AddressPart, Chain, ChainId, Layout, LeafType, Machine, MachineId};

/// Returns a layout with chains and machines, and the pinned cells by name.
pub(super) fn compile(
    config: &Config,
    types: &TypeTable,
    findings: &mut Findings,
) -> (Layout, BTreeMap<String, Pin>) {
    let mut compiler = PhysicalCompiler {
        config,
        types,
        layout: Layout::default(),
        pins: BTreeMap::new(),
        findings,
    };
    let tops = compiler.top_cells();
    if compiler.fits(&tops) {
        compiler.chains(tops);
        compiler.machines();
    }
    (compiler.layout, compiler.pins)
}

struct PhysicalCompiler<'a> {
    config: &'a Config,
    types: &'a TypeTable,
    layout: Layout,
    pins: BTreeMap<String, Pin>,
    findings: &'a mut Findings,
}

/// Position of a cell: its chain and level, and its number if it has no address.
#[derive(Clone, Copy)]
struct Position {
    chain: ChainId,
    level: usize,
    number: u32,
}

impl<'a> PhysicalCompiler<'a> {
    /// Groups the top cells by type; each type is a chain.
    fn top_cells(&mut self) -> BTreeMap<&'a str, Vec<usize>> {
        let mut tops: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, cell) in self.config.physical_cells.iter().enumerate() {
            let path = format!("physicalCluster.physicalCells[{at}].cellType");
            let Some(name) = &cell.cell_type else {
                let what = format!("missing; expected one of {}", self.types.names());
                self.findings.fault(path, what);
                continue;
            };
            match self.types.get(name) {
                None => {
                    let what = format!("found {name:?}, expected one of {}", self.types.names());
                    self.findings.fault(path, what);
                }
                Some(tree) if tree.node_level.is_none() => {
                    let what = format!(
                        "{name} contains no machine; expected a type with isNodeLevel, or one above it"
                    );
                    self.findings.fault(path, what);
                }
                Some(_) => tops.entry(name).or_default().push(at),
            }
        }
        if self.config.physical_cells.is_empty() {
            self.findings.fault(
                "physicalCluster.physicalCells",
                "empty; expected at least one cell",
            );
        }
        tops
    }

    /// Checks that the cluster does not exceed the largest number of leaves.
    fn fits(&mut self, tops: &BTreeMap<&str, Vec<usize>>) -> bool {
        let leaves = |name: &str, cells: &[usize]| {
            let tree = self.types.get(name);
            let each = tree.and_then(|t| t.leaves.last().copied()).unwrap_or(0);
            u64::from(each) * cells.len() as u64
        };
        let all: u64 = tops.iter().map(|(name, cells)| leaves(name, cells)).sum();
        if all > MAX_LEAVES {
            let what = format!("the cluster has {all} leaf cells, expected at most {MAX_LEAVES}");
            self.findings.fault("physicalCluster.physicalCells", what);
        }
        all <= MAX_LEAVES
    }

    fn chains(&mut self, tops: BTreeMap<&str, Vec<usize>>) {
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
    }

    fn chain(&mut self, name: &str, tops: &[usize]) {
        let Some(tree) = self.types.get(name) else { return };
        let id = ChainId(self.layout.chains.len() as u32);
        let leaf = self.layout.leaf_type_named(&tree.levels[0]).unwrap_or_default();
        let levels = tree.levels.len();
        self.layout.chains.push(Chain {
            name: name.to_owned(),
            types: tree.levels.clone(),
            leaf_type: LeafType(leaf.0),
            node_level: tree.node_level.unwrap_or(0),
            fanout: tree.fanout.clone(),
            leaves: tree.leaves.clone(),
            cells: vec![0; levels],
            machines: Vec::new(),
            leaf_indices: Vec::new(),
            addresses: vec![Vec::new(); levels],
        });
        self.layout.chains_of[leaf.index()].push(id);
        for at in tops {
            let position = Position {
                chain: id,
                level: levels - 1,
                number: *at as u32,
            };
            let path = format!("physicalCluster.physicalCells[{at}]");
            self.cell(position, &self.config.physical_cells[*at], &path, None);
        }
        let chain = &mut self.layout.chains[id.index()];
        chain.cells = chain.addresses.iter().map(|a| a.len() as u32).collect();
    }

    /// Adds a cell and everything below it. `pinned_above` is the pinned cell around it.
    fn cell(&mut self, position: Position, cell: &PhysicalCell, path: &str, pinned_above: Option<&str>) {
        let Position { chain, level, number } = position;
        let addresses = &mut self.layout.chains[chain.index()].addresses[level];
        let index = addresses.len() as u32;
        addresses.push(match cell.address.as_deref() {
            Some(address) => AddressPart::Name(address.into()),
            None => AddressPart::Number(number),
        });
        self.check_type_and_address(position, cell, path);
        let mut pinned = pinned_above;
        if let Some(name) = &cell.pinned {
            let pin = Pin {
                chain,
                level,
                index,
                owner: None,
            };
            self.pin(name, pin, path, pinned_above);
            pinned = Some(name);
        }
        if level == 0 {
            self.leaf(position, cell, path);
        } else {
            self.children(position, cell, path, pinned);
        }
    }

    fn check_type_and_address(&mut self, position: Position, cell: &PhysicalCell, path: &str) {
        let chain = self.layout.chain(position.chain);
        let expected = &chain.types[position.level];
        if let Some(found) = cell.cell_type.as_ref().filter(|t| *t != expected) {
            self.findings.fault(
                format!("{path}.cellType"),
                format!("found {found:?}, expected {expected}, the child type of its parent"),
            );
        }
        if position.level == chain.node_level && cell.address.is_none() {
            self.findings.fault(
                format!("{path}.cellAddress"),
                format!("missing; expected the name of the machine, because {expected} has isNodeLevel"),
            );
        }
    }

    fn leaf(&mut self, position: Position, cell: &PhysicalCell, path: &str) {
        let chain = &mut self.layout.chains[position.chain.index()];
        let address = cell.address.as_deref();
        let index = address.map_or(Ok(position.number as i32), |a| a.trim().parse::<i32>());
        let index = index.ok().filter(|v| *v >= 0);
        chain.leaf_indices.push(index.unwrap_or(0));
        let leaf_type = &chain.types[0];
        if index.is_none() {
            self.findings.fault(
                format!("{path}.cellAddress"),
                format!(
                    "found {:?}, expected the index of the {leaf_type} on its machine, a whole number from 0",
                    address.unwrap_or_default()
                ),
            );
        }
        if !cell.children.is_empty() {
            self.findings.fault(
                format!("{path}.cellChildren"),
                format!("{leaf_type} is a leaf type; expected no children"),
            );
        }
    }

    fn children(&mut self, position: Position, cell: &PhysicalCell, path: &str, pinned: Option<&str>) {
        let chain = self.layout.chain(position.chain);
        let fanout = chain.fanout[position.level];
        let is_node = position.level == chain.node_level;
        let given = cell.children.len() as u32;
        if given != 0 && given != fanout {
            let plural = if given == 1 { "" } else { "s" };
            let name = &chain.types[position.level];
            let what =
                format!("found {given} cell{plural}, expected {fanout}, the childCellNumber of {name}");
            self.findings.fault(format!("{path}.cellChildren"), what);
        }
        // Numbers start again in each machine, as in HiveD.
        let base = if is_node { 0 } else { position.number };
        let empty = PhysicalCell::default();
        for child in 0..fanout {
            let written = cell.children.get(child as usize);
            let below = match written {
                Some(_) => format!("{path}.cellChildren[{child}]"),
                None => path.to_owned(),
            };
            let position = Position {
                level: position.level - 1,
                number: base.saturating_mul(fanout).saturating_add(child),
                ..position
            };
            self.cell(position, written.unwrap_or(&empty), &below, pinned);
        }
    }

    fn pin(&mut self, name: &str, pin: Pin, path: &str, above: Option<&str>) {
        let path = format!("{path}.pinnedCellId");
        if let Some(above) = above {
            self.findings.fault(
                &path,
                format!("{name:?} is inside the pinned cell {above:?}; pinned cells must not be nested"),
            );
        }
        if self.pins.insert(name.to_owned(), pin).is_some() {
            self.findings.fault(
                &path,
                format!("duplicate {name:?}; expected each pinnedCellId once"),
            );
        }
    }

    /// Collects the machines behind the nodes of all chains, and finds machines and leaves that are listed twice.
    fn machines(&mut self) {
        let mut seen: BTreeMap<(u32, u32, i32), String> = BTreeMap::new();
        for at in 0..self.layout.chains.len() {
            let chain = &self.layout.chains[at];
            for node in 0..chain.cells[chain.node_level] {
                self.machine(ChainId(at as u32), node, &mut seen);
            }
        }
    }

    fn machine(&mut self, id: ChainId, node: u32, seen: &mut BTreeMap<(u32, u32, i32), String>) {
        let Layout {
            chains,
            machines,
            machine_by_name,
            leaf_types,
            ..
        } = &mut self.layout;
        let chain = &mut chains[id.index()];
        let name = chain.addresses[chain.node_level][node as usize].to_string();
        let next = MachineId(machines.len() as u32);
        let machine = *machine_by_name.entry(name.clone()).or_insert(next);
        if machine == next {
            machines.push(Machine {
                name: name.clone(),
                nodes: Default::default(),
            });
        }
        let nodes = &mut machines[machine.index()].nodes;
        let is_duplicate = nodes.iter().any(|(c, _)| *c == id);
        nodes.push((id, node));
        chain.machines.push(machine);
        let address = chain.address(chain.node_level, node);
        let path = format!("physicalCluster.physicalCells (cell {address})");
        if is_duplicate {
            let what = format!("duplicate machine {name:?}; expected each machine once in a chain");
            return self.findings.fault(path, what);
        }
        for leaf in chain.inside(node, chain.node_level, 0) {
            let index = chain.leaf_indices[leaf as usize];
            let place = (chain.leaf_type.0, machine.0, index);
            if let Some(other) = seen.insert(place, address.clone()) {
                let what = format!(
                    "{} {index} of machine {name:?} is also in cell {other}; expected each leaf cell once",
                    leaf_types[chain.leaf_type.index()]
                );
                self.findings.fault(path.clone(), what);
            }
        }
    }
}
