//! The topologies that HiveD was measured with.

use std::fmt;

use dovetail_cells::{CellType, Config, Layout, PhysicalCell, VirtualCells, VirtualCluster};

/// Virtual clusters, which own equal parts.
pub(super) const VIRTUAL_CLUSTERS: u32 = 5;
/// Machines of a rack.
const RACK: u32 = 10;

/// Machines with eight GPUs (2-4-8), flat or in racks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Topology {
    pub(super) machines: u32,
    has_racks: bool,
}

impl Topology {
    /// All machines below one cell.
    pub(super) const fn pool(machines: u32) -> Self {
        Self {
            machines,
            has_racks: false,
        }
    }

    /// Machines in racks of ten.
    pub(super) const fn racks(machines: u32) -> Self {
        Self {
            machines,
            has_racks: true,
        }
    }

    /// Returns the configuration with five virtual clusters that own all machines.
    pub(super) fn config(self) -> Config {
        let (top, width) = if self.has_racks {
            ("RACK", RACK)
        } else {
            ("POOL", self.machines)
        };
        let mut config = Config::default();
        for (name, child, children, is_node) in [
            ("G2", "GPU", 2, false),
            ("G4", "G2", 2, false),
            ("NODE", "G4", 2, true),
            (top, "NODE", width, false),
        ] {
            let child = child.to_owned();
            let cell_type = CellType {
                child,
                children,
                is_node,
            };
            config.cell_types.insert(name.to_owned(), cell_type);
        }
        for first in (0..self.machines).step_by(width as usize) {
            let machines = (first..first + width).map(|machine| PhysicalCell {
                address: Some(format!("node-{machine:05}")),
                ..PhysicalCell::default()
            });
            config.physical_cells.push(PhysicalCell {
                cell_type: Some(top.to_owned()),
                children: machines.collect(),
                ..PhysicalCell::default()
            });
        }
        for vc in 0..VIRTUAL_CLUSTERS {
            let virtual_cluster = VirtualCluster {
                cells: self.owned_cells(),
                ..VirtualCluster::default()
            };
            config.virtual_clusters.insert(format!("vc{vc}"), virtual_cluster);
        }
        config
    }

    /// Returns the cells of one virtual cluster: half of them whole racks, if there are racks.
    fn owned_cells(self) -> Vec<VirtualCells> {
        let cells = |path: &str, number| VirtualCells {
            path: path.to_owned(),
            number,
        };
        if self.has_racks {
            let racks = self.machines / RACK / VIRTUAL_CLUSTERS;
            let whole = racks.div_ceil(2);
            vec![cells("RACK", whole), cells("RACK.NODE", (racks - whole) * RACK)]
        } else {
            vec![cells("POOL.NODE", self.machines / VIRTUAL_CLUSTERS)]
        }
    }

    /// Returns the compiled configuration.
    pub(super) fn layout(self) -> Layout {
        let compiled = self.config().compile();
        compiled.expect("the configuration is valid").layout
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.has_racks { "rack" } else { "pool" };
        write!(f, "{kind} {}", self.machines)
    }
}
