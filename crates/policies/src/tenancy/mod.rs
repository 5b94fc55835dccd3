//! What each tenant may use.

mod cell_explain;
mod cell_ledger;
mod cell_map;
mod cells;
mod group_placement;
mod quota;
mod quota_shares;

use dovetail_engine::{Part, Tenancy, TenancyLedger, TenantAccounts};

use crate::error::PolicyError;
use crate::overrides::Overrides;
use crate::registry::{self, Entry, Kind};

pub use cell_map::{CellMap, SharedCells};
pub use cells::VirtualClusters;
pub use quota::Quota;
pub use quota_shares::{QuotaShare, QuotaShares};

/// All tenancies.
pub const ALL: &[Entry<dyn Tenancy>] = &[NONE, quota::ENTRY, cells::ENTRY];

const NONE: Entry<dyn Tenancy> = Entry {
    name: "none",
    what: "every tenant may use every GPU",
    source: "rule",
    key: "no limits",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(NoLimits)),
};

/// Builds the tenancy of the overrides, with their names of tenants and their cells.
pub(crate) fn build(overrides: &Overrides) -> Result<Box<dyn Tenancy>, PolicyError> {
    let text = overrides.tenancy.as_deref().unwrap_or("none");
    match text.split_once(':') {
        Some(("quota", _)) if overrides.tenants.is_empty() => Err(PolicyError::NoTenants),
        Some(("quota", shares)) => Ok(Box::new(
            QuotaShares::parse(shares)?.for_tenants(&overrides.tenants)?,
        )),
        Some(("cells", file)) => match &overrides.cells {
            Some(cells) => Ok(Box::new(VirtualClusters::new(text.to_owned(), cells.clone()))),
            None => Err(PolicyError::NoCells {
                file: file.to_owned(),
            }),
        },
        _ => registry::build(Kind::Tenancy, ALL, text),
    }
}

/// No limits: one pool of GPUs for all tenants.
#[derive(Debug, Clone)]
struct NoLimits;

impl Part for NoLimits {
    fn name(&self) -> String {
        "none".to_owned()
    }
}

impl TenantAccounts for NoLimits {}

impl TenancyLedger for NoLimits {}

impl Tenancy for NoLimits {}
