//! What a tenant may use.

use dovetail_engine::{Knowledge, Part, Tenancy};

use crate::registry::Entry;

/// All of them.
pub const ALL: &[Entry<dyn Tenancy>] = &[Entry {
    name: "none",
    what: "every tenant may use every GPU",
    source: "rule",
    key: "no limits",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| Ok(Box::new(Shared)),
}];

/// One pool for all.
#[derive(Debug, Clone)]
pub struct Shared;

impl Part for Shared {
    fn name(&self) -> String {
        "none".to_owned()
    }
}

impl Tenancy for Shared {}
