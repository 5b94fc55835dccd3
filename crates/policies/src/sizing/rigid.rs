//! Rigid: exactly what was asked for.

use dovetail_engine::{Part, Sizing};

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "rigid",
    what: "every job gets exactly the GPUs, CPU and memory it asked for",
    source: "rule",
    key: "GPUs asked for",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(Rigid)),
};

/// No elasticity.
#[derive(Debug, Clone)]
struct Rigid;

impl Part for Rigid {
    fn name(&self) -> String {
        "rigid".to_owned()
    }
}

impl Sizing for Rigid {}
