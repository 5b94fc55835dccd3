//! The parts a policy is composed of. Each part is a small trait with one file per implementation in the `policies` crate.
//!
//! A part reads jobs and the cluster, never a clock, and returns values. State that a part accumulates (a history of
//! finished jobs, a random generator) is saved and loaded with the engine.

mod admission;
mod discipline;
mod grouping;
mod order;
mod placement;
mod sizing;
mod tenancy;

use std::collections::BTreeMap;
use std::fmt::Debug;

use dovetail_model::JobSpec;
use serde_json::Value;

use crate::composition::Feature;
use crate::needs::PolicyNeeds;
use crate::needs::{Need, NeedSet};

pub use admission::{Admission, CloneAdmission, Verdict};
pub use discipline::{CloneDiscipline, Discipline};
pub use grouping::{Claim, CloneGrouping, Grouping};
pub use order::{CloneQueueOrder, Knowledge, QueueOrder};
pub use placement::{Ask, ClonePlacement, Placement};
pub use sizing::{CloneSizing, NodeFilling, NodeJob, Sizing, Widths};
pub use tenancy::{CloneTenancy, JobClass, Tenancy, TenancyLedger, TenantAccounts};

/// Saved state that a part does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot load the saved state of `{part}`: {problem}")]
pub struct LoadError {
    part: String,
    problem: String,
}

impl LoadError {
    /// Describes what is wrong with the state saved for `part`.
    pub fn new(part: impl Into<String>, problem: impl ToString) -> Self {
        Self {
            part: part.into(),
            problem: problem.to_string(),
        }
    }
}

/// Behaviour common to all parts: a name, and state that survives a snapshot.
pub trait Part: Debug + Send + Sync {
    /// Returns its name with the knobs that were set, as a user would write it: `tiresias:limits=3250/7200`.
    fn name(&self) -> String;

    /// Returns the data and mechanisms without which it does not do what it is for.
    fn needs(&self) -> NeedSet {
        NeedSet::EMPTY
    }

    /// Returns what it needs for one job; less than [`Part::needs`] where it treats jobs of tenants differently.
    fn needs_for(&self, _job: &JobSpec) -> NeedSet {
        self.needs()
    }

    /// Returns data that improve its decisions where they are known, and that it can do without.
    fn hints(&self) -> NeedSet {
        NeedSet::EMPTY
    }

    /// Returns the name of the part that has the need: its own, or that of an order that it wraps.
    fn name_with_need(&self, _need: Need) -> String {
        self.name()
    }

    /// Returns what happens to jobs without a datum that it needs: it completes "they are …".
    fn without(&self, need: Need) -> &'static str {
        need.without()
    }

    /// Returns what it must know about remaining work: an estimate if it needs remaining times. Only a part that needs the
    /// truth says more.
    fn knowledge(&self) -> Knowledge {
        match self.needs().contains(Need::RemainingTime) {
            true => Knowledge::Estimate,
            false => Knowledge::None,
        }
    }

    /// Returns what it requires of the other parts of the policy.
    fn requires(&self) -> &'static [Feature] {
        &[]
    }

    /// Returns what other parts of the policy may rely on it for.
    fn provides(&self) -> &'static [Feature] {
        &[]
    }

    /// Returns its accumulated state; `null` for most parts.
    fn save(&self) -> Value {
        Value::Null
    }

    /// Returns its accumulated state by the name of the part: its own, or those of the parts that it wraps.
    fn learned(&self) -> BTreeMap<String, Value> {
        let saved = Some(self.save()).filter(|saved| !saved.is_null());
        saved.into_iter().map(|saved| (self.name(), saved)).collect()
    }

    /// Continues with what a part of the same name has accumulated under an earlier policy. A state that it does not accept
    /// is ignored.
    fn adopt(&mut self, learned: &BTreeMap<String, Value>) {
        if let Some(saved) = learned.get(&self.name()) {
            let _ = self.load(saved);
        }
    }

    /// Restores the state that [`Part::save`] returned.
    ///
    /// # Errors
    /// Fails when the value was not saved by this part.
    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        match saved {
            Value::Null => Ok(()),
            other => Err(LoadError::new(
                self.name(),
                format!("expected none, found {other}"),
            )),
        }
    }
}

/// Declares the helper trait that makes a boxed part cloneable.
macro_rules! cloneable {
    ($part:ident, $clone:ident) => {
        /// Clones a boxed part; implemented for every part that is `Clone`.
        pub trait $clone {
            /// Returns a copy in a new box.
            fn clone_box(&self) -> Box<dyn $part>;
        }
        impl<T: $part + Clone + 'static> $clone for T {
            fn clone_box(&self) -> Box<dyn $part> {
                Box::new(self.clone())
            }
        }
        impl Clone for Box<dyn $part> {
            fn clone(&self) -> Self {
                (**self).clone_box()
            }
        }
    };
}
use cloneable;

/// A complete policy: one of each part.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Name of the preset, with the parts that were replaced in it.
    pub name: String,
    /// Which jobs enter the queue.
    pub admission: Box<dyn Admission>,
    /// In which order jobs are served.
    pub order: Box<dyn QueueOrder>,
    /// How the queue is walked.
    pub discipline: Box<dyn Discipline>,
    /// How many GPUs and how much CPU and memory a job gets.
    pub sizing: Box<dyn Sizing>,
    /// Which jobs share GPUs.
    pub grouping: Box<dyn Grouping>,
    /// Which GPUs a job gets.
    pub placement: Box<dyn Placement>,
    /// What each tenant may use.
    pub tenancy: Box<dyn Tenancy>,
}

impl Policy {
    /// Returns the parts with their kinds, in the order in which snapshots store them.
    pub fn parts(&self) -> [(&'static str, &dyn Part); 7] {
        [
            ("admission", &*self.admission),
            ("order", &*self.order),
            ("discipline", &*self.discipline),
            ("sizing", &*self.sizing),
            ("grouping", &*self.grouping),
            ("placement", &*self.placement),
            ("tenancy", &*self.tenancy),
        ]
    }

    /// Continues with what parts of the same names have accumulated under an earlier policy. The tenancy is excluded: it is
    /// told of all allocations.
    pub(crate) fn adopt(&mut self, earlier: &Self) {
        self.admission.adopt(&earlier.admission.learned());
        self.order.adopt(&earlier.order.learned());
        self.discipline.adopt(&earlier.discipline.learned());
        self.sizing.adopt(&earlier.sizing.learned());
        self.grouping.adopt(&earlier.grouping.learned());
        self.placement.adopt(&earlier.placement.learned());
    }

    /// Returns what its parts need.
    pub fn needs(&self) -> PolicyNeeds {
        PolicyNeeds::of(self)
    }

    /// Returns data that its parts use where they are known.
    pub fn hints(&self) -> NeedSet {
        let hints = self.parts().map(|(_, part)| part.hints());
        hints.into_iter().fold(NeedSet::EMPTY, NeedSet::union)
    }

    pub(crate) fn load(&mut self, saved: &[Value; 7]) -> Result<(), LoadError> {
        self.admission.load(&saved[0])?;
        self.order.load(&saved[1])?;
        self.discipline.load(&saved[2])?;
        self.sizing.load(&saved[3])?;
        self.grouping.load(&saved[4])?;
        self.placement.load(&saved[5])?;
        self.tenancy.load(&saved[6])
    }
}
