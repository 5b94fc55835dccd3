//! Virtual clusters that own cells.
//!
//! A tenant that owns eight GPUs *on one machine* always gets eight GPUs on one machine, whatever the others do, and
//! lends them out while it sleeps. The idea, the configuration and the scheduling semantics are those of HiveD
//! (OSDI '20); the data structures are not: cells are numbers in regular trees, what is free is a set of bits, and a
//! decision is a transaction that leaves no trace unless it is kept.
//!
//! | word | meaning |
//! |---|---|
//! | chain | all top cells of one type with everything below them: leaves, switches, machines, racks |
//! | cell | a node of such a tree; level 0 is a leaf (a GPU, a share of CPU) |
//! | slot | a cell a virtual cluster owns: the promise of one physical cell of that level, or of one pinned cell |
//! | bound | a slot that is in use has a physical cell; which one is decided when it is needed |
//! | free list | the largest cells with nothing bound in them |
//! | slack | free cells of a level that nobody is promised; never below zero: that is the safety of virtual clusters |
//! | doomed | a slot for which only cells with bad machines are left |
//! | borrower | a group of priority −1, or one that was downgraded: it runs anywhere and can be thrown out |

mod adopt;
mod bits;
mod check;
mod compile;
mod config;
mod explain;
mod free;
mod group;
mod health;
pub mod hived;
mod layout;
mod leaves;
mod life;
mod look;
mod occupy;
mod place;
mod reconfigure;
mod request;
mod state;
mod types;
mod undo;

pub use adopt::Sighting;
pub use compile::{Compiled, Fault};
pub use config::{CellType, Config, PhysicalCell, Sku, VirtualCells, VirtualCluster};
pub use explain::{Explanation, Holder, LevelReport, Remedy};
pub use group::{Downgrade, GUARANTEED_MAX, GUARANTEED_MIN, Group, GroupId, GroupState, OPPORTUNISTIC, Pod};
pub use layout::{
    Cell, Chain, ChainId, Layout, LeafType, Level, Machine, MachineId, SlotId, SlotSpec, VcId, VcSpec,
    ViewId, ViewSpec,
};
pub use look::LeafUse;
pub use place::Attempt;
pub use reconfigure::{Carried, Fate};
pub use request::{Denied, Lost, MachineSet, Outcome, Part, Refusal, Request, Target, Terms, Wait};
pub use state::{Cells, Mark};
