//! Compiles a configuration into a layout: fills in what is left out and reports everything that is wrong.

mod capacity;
mod physical;
mod virtual_clusters;

use crate::cell_types::TypeTable;
use crate::config::Config;
use crate::layout::{ChainId, Layout};

/// An error or a note about a configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{path}: {what}")]
pub struct Fault {
    /// Path of the key, from the top of the document.
    pub path: String,
    /// What was found and what is expected.
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

/// A valid configuration in the form that scheduling uses.
#[derive(Debug, Clone)]
pub struct CompiledConfig {
    /// Trees of cells, and the slots of virtual clusters.
    pub layout: Layout,
    /// Settings that are allowed but may be mistakes.
    pub notes: Vec<Fault>,
}

/// Errors and notes found so far.
#[derive(Default)]
struct Findings {
    faults: Vec<Fault>,
    notes: Vec<Fault>,
}

impl Findings {
    fn fault(&mut self, path: impl Into<String>, what: impl Into<String>) {
        self.faults.push(Fault::new(path, what));
    }

    fn note(&mut self, path: impl Into<String>, what: impl Into<String>) {
        self.notes.push(Fault::new(path, what));
    }
}

/// A pinned cell.
struct Pin {
    chain: ChainId,
    level: usize,
    index: u32,
    /// Name of the virtual cluster that owns it.
    owner: Option<String>,
}

impl Config {
    /// Fills in what is left out and checks everything.
    ///
    /// # Errors
    /// Everything that is wrong, each with its path.
    pub fn compile(&self) -> Result<CompiledConfig, Vec<Fault>> {
        let mut findings = Findings::default();
        let types = TypeTable::new(self, &mut findings.faults);
        let (mut layout, pins) = physical::compile(self, &types, &mut findings);
        virtual_clusters::compile(self, pins, &mut layout, &mut findings);
        if findings.faults.is_empty() {
            capacity::check(&layout, &mut findings);
        }
        if findings.faults.is_empty() {
            Ok(CompiledConfig {
                layout,
                notes: findings.notes,
            })
        } else {
            findings.faults.sort();
            Err(findings.faults)
        }
    }
}
