//! What a tenant may use.

mod cell_books;
mod cell_explain;
mod cell_home;
mod cell_map;
mod cells;
mod quota;

use dovetail_engine::{Knowledge, Part, Tenancy};
use dovetail_model::Terms;

use crate::knobs::PolicyError;
use crate::presets::Overrides;
use crate::registry::{self, Entry, Kind};

pub use cell_map::{CellMap, SharedCells};
pub use cells::VirtualClusters;
pub use quota::{Quota, Share, Shares};

/// All of them.
pub const ALL: &[Entry<dyn Tenancy>] = &[
    Entry {
        name: "none",
        what: "every tenant may use every GPU",
        source: "rule",
        key: "no limits",
        knowledge: Knowledge::None,
        knobs: &[],
        build: |_| Ok(Box::new(Shared)),
    },
    quota::ENTRY,
    cells::ENTRY,
];

/// Disciplines under which a tenancy with limits keeps its promise. The others keep or share GPUs without asking it.
const DISCIPLINES: [&str; 4] = ["preempt", "backfill", "strict", "replan"];

/// Builds the tenancy that is asked for. One with limits also needs what else the overrides say of tenants.
pub(crate) fn build(
    overrides: &Overrides,
    discipline: &str,
    sharing: Terms,
) -> Result<(Box<dyn Tenancy>, Knowledge), PolicyError> {
    let text = overrides.tenancy.as_deref().unwrap_or("none");
    let tenancy: Box<dyn Tenancy> = match text.split_once(':') {
        Some(("quota", _)) if overrides.tenants.is_empty() => return Err(PolicyError::NoTenants),
        Some(("quota", shares)) => Box::new(Shares::parse(shares)?.of(&overrides.tenants)?),
        Some(("cells", file)) => {
            let cells = overrides.cells.as_ref().ok_or_else(|| PolicyError::NoCells {
                file: file.to_owned(),
            })?;
            Box::new(VirtualClusters::new(text.to_owned(), cells.clone()))
        }
        _ => return registry::build(Kind::Tenancy, ALL, text),
    };
    let walk = discipline.split(':').next().unwrap_or_default();
    if !DISCIPLINES.contains(&walk) {
        return Err(PolicyError::NeedsPlainWalk {
            discipline: walk.to_owned(),
        });
    }
    if sharing.most > 1 && text.starts_with("quota") {
        return Err(PolicyError::QuotaOfShared);
    }
    if sharing.overlap {
        return Err(PolicyError::CellsOverlap);
    }
    Ok((tenancy, Knowledge::None))
}

/// One pool for all.
#[derive(Debug, Clone)]
pub struct Shared;

impl Part for Shared {
    fn name(&self) -> String {
        "none".to_owned()
    }
}

impl Tenancy for Shared {}
