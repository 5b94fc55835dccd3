//! Virtual clusters that own cells of the topology.
//!
//! A virtual cluster that owns eight GPUs *on one machine* always gets eight GPUs on one machine, whatever runs in other
//! virtual clusters; while it does not use them, opportunistic jobs borrow them. The idea, the configuration and the
//! scheduling semantics are those of HiveD (OSDI '20). The data structures differ: cells are indices into regular trees,
//! free cells are bit sets, and a decision is a transaction that can be rolled back.
//!
//! | word | meaning |
//! |---|---|
//! | chain | all top cells of one type with everything below them: racks, machines, switches, leaves |
//! | cell | a node of such a tree; level 0 is a leaf (a GPU or a share of CPU) |
//! | slot | a cell that a virtual cluster owns: some physical cell of that level, or one pinned cell |
//! | bound | a slot in use is bound to a physical cell, which is chosen when it is needed |
//! | free list | the largest cells with nothing bound in them |
//! | slack | free cells of a level beyond those owned; never negative, which is the guarantee to virtual clusters |
//! | doomed | a slot for which only cells with bad machines are left |
//! | borrower | an opportunistic group (priority −1) or a downgraded one: it runs anywhere and can be preempted |
//!
//! Each layer knows only those above it in this table:
//!
//! | layer | holds |
//! |---|---|
//! | `BuddyAllocator` | bound, split and free cells of one chain |
//! | `ChainState` | the groups on the leaves of a chain, and its machines |
//! | `Occupancy` | all chains, the slots bound to cells, and the room in each view |
//! | `Ledger` | the cells, the `GroupTable` and the `UndoLog`; every change can be rolled back |
//! | `Placer`, `GroupLifecycle`, `Restoration`, `DoomedSlots` | one operation on a borrowed ledger |
//! | [`Cells`] | the operations that callers use |

mod adopt;
mod bits;
mod buddy;
mod cell_types;
mod cells;
mod chain;
mod check;
mod compile;
mod config;
mod explain;
mod group;
mod group_table;
mod health;
mod inspect;
mod layout;
mod ledger;
mod level;
mod lifecycle;
mod occupancy;
mod occupy;
mod place;
mod reconfigure;
mod request;
mod restore;
mod undo;
mod view;

pub use adopt::RunningPod;
pub use cell_types::join_names;
pub use cells::Cells;
pub use check::Inconsistency;
pub use compile::{CompiledConfig, Fault};
pub use config::{CellType, Config, PhysicalCell, Sku, VirtualCells, VirtualCluster};
pub use explain::{Explanation, Holder, LevelReport, Remedy};
pub use group::{Downgrade, GUARANTEED_MAX, GUARANTEED_MIN, Group, GroupId, GroupState, OPPORTUNISTIC, Pod};
pub use inspect::LeafUse;
pub use layout::{
    Cell, Chain, ChainId, Layout, LeafType, Level, Machine, MachineId, SlotId, SlotSpec, VcId, VcSpec,
    ViewId, ViewSpec,
};
pub use place::TentativePlacement;
pub use reconfigure::{Fate, ReconfiguredGroup};
pub use request::{
    MachineSet, Outcome, PlacementError, PlacementOptions, PodSet, PreemptionCost, Refusal, Request, Target,
    WaitReason,
};
pub use undo::Savepoint;

/// No group, no slot, no cell.
pub(crate) const NONE: u32 = u32::MAX;
