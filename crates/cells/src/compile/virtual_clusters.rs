//! Compiles the virtual clusters: the slots they own and the views in which requests are placed.

use std::collections::BTreeMap;

use super::{Findings, Pin};
use crate::cell_types::join_names;
use crate::config::{Config, VirtualCells};
use crate::layout::{ChainId, Layout, Level, SlotId, SlotSpec, VcId, VcSpec, ViewId, ViewSpec};

/// Longest name of a Kubernetes object that is a DNS label, in characters.
const MAX_DNS_LABEL: usize = 63;

/// Adds the virtual clusters to a layout.
pub(super) fn compile(
    config: &Config,
    pins: BTreeMap<String, Pin>,
    layout: &mut Layout,
    findings: &mut Findings,
) {
    let mut compiler = VirtualCompiler {
        pins,
        layout,
        findings,
    };
    if config.virtual_clusters.is_empty() {
        compiler
            .findings
            .note("virtualClusters", "empty: no group can be scheduled");
    }
    for (name, vc) in &config.virtual_clusters {
        let id = VcId(compiler.layout.vcs.len() as u32);
        let path = format!("virtualClusters.{name}");
        if !is_dns_label(name) {
            let what = "not a valid Kubernetes name: expected at most 63 lower-case letters, digits and '-'";
            compiler.findings.note(&path, what);
        }
        compiler.layout.vcs.push(VcSpec {
            name: name.clone(),
            leaves_per_user: vc.leaves_per_user,
            user_limits: vc.user_limits.clone(),
            ..VcSpec::default()
        });
        for (at, cells) in vc.cells.iter().enumerate() {
            compiler.cells(id, cells, &format!("{path}.virtualCells[{at}]"));
        }
        for (at, pin) in vc.pinned.iter().enumerate() {
            compiler.pinned_cell(id, name, pin, &format!("{path}.pinnedCells[{at}].pinnedCellId"));
        }
    }
    for (name, _) in compiler.pins.iter().filter(|(_, pin)| pin.owner.is_none()) {
        let what = format!("no virtual cluster owns the pinned cell {name:?}");
        compiler.findings.note("physicalCluster.physicalCells", what);
    }
}

struct VirtualCompiler<'a> {
    pins: BTreeMap<String, Pin>,
    layout: &'a mut Layout,
    findings: &'a mut Findings,
}

impl VirtualCompiler<'_> {
    /// Adds the slots of one `virtualCells` entry.
    fn cells(&mut self, vc: VcId, cells: &VirtualCells, path: &str) {
        if cells.number == 0 {
            let path = format!("{path}.cellNumber");
            self.findings
                .note(path, "0: this entry gives the virtual cluster no cells");
        }
        if let Some((chain, level)) = self.resolve(&cells.path, &format!("{path}.cellType")) {
            for _ in 0..cells.number {
                let view = self.view(vc, chain);
                self.slot(vc, chain, level, view, None);
            }
        }
    }

    /// Returns the chain and level that a dotted path names.
    fn resolve(&mut self, cell_path: &str, path: &str) -> Option<(ChainId, Level)> {
        let mut types = cell_path.split('.');
        let top = types.next().unwrap_or_default();
        let Some(id) = self.layout.chain_named(top) else {
            let chains = join_names(self.layout.chains.iter().map(|c| c.name.as_str()));
            self.findings.fault(
                path,
                format!("{top:?} is not the type of a cell in physicalCells; expected one of {chains}"),
            );
            return None;
        };
        let chain = self.layout.chain(id);
        let mut level = chain.top();
        for name in types {
            let Some(at) = chain.types[..level].iter().position(|t| t == name) else {
                let below = join_names(chain.types[..level].iter().rev().map(String::as_str));
                let parent = &chain.types[level];
                let what = if below.is_empty() {
                    format!("found {name:?} below {parent}, which has no children")
                } else {
                    format!("found {name:?} below {parent}, expected one of {below}")
                };
                self.findings.fault(path, what);
                return None;
            };
            level = at;
        }
        Some((id, level))
    }

    /// Returns the view of a virtual cluster for a chain, adding it if missing.
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

    fn slot(&mut self, vc: VcId, chain: ChainId, level: Level, view: ViewId, pinned: Option<u32>) {
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

    fn pinned_cell(&mut self, vc: VcId, owner: &str, name: &str, path: &str) {
        let Some(pin) = self.pins.get_mut(name) else {
            let known = join_names(self.pins.keys().map(String::as_str));
            let what = if known.is_empty() {
                format!("found {name:?}, but no physical cell has a pinnedCellId")
            } else {
                format!("found {name:?}, expected the pinnedCellId of a physical cell: {known}")
            };
            return self.findings.fault(path, what);
        };
        if let Some(other) = pin.owner.replace(owner.to_owned()) {
            let what = format!("{name:?} already belongs to virtual cluster {other:?}; expected one owner");
            return self.findings.fault(path, what);
        }
        let (chain, level, index) = (pin.chain, pin.level, pin.index);
        let view = ViewId(self.layout.views.len() as u32);
        self.layout.views.push(ViewSpec {
            vc,
            chain,
            pinned: Some(name.to_owned()),
            slots: Vec::new(),
            leaves: 0,
        });
        self.layout.vcs[vc.index()].pinned.insert(name.to_owned(), view);
        self.slot(vc, chain, level, view, Some(index));
    }
}

fn is_dns_label(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty()
        && name.len() <= MAX_DNS_LABEL
        && name.bytes().all(is_allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
