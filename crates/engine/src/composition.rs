//! What the parts of a policy require of one another, and what a policy as a whole must know.
//!
//! A part declares what it requires of the others ([`Part::requires`]) and what it provides ([`Part::provides`]), so rules
//! about combinations name no parts.

use std::fmt;

use crate::parts::{Knowledge, Part, Policy};

/// Something that one part of a policy does and that others may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// The discipline asks the sizing and the grouping about all jobs at once.
    JointPlanning,
    /// The discipline asks the grouping for GPUs beside running jobs.
    SharedStarts,
    /// The discipline asks the tenancy before it gives a job any GPU.
    TenancyLimits,
    /// The grouping puts one job on each GPU.
    ExclusiveGpus,
    /// The grouping lets jobs share either all of their GPUs or none.
    WholeGroups,
}

impl Feature {
    /// Returns the kind of part that provides it.
    pub fn provider(self) -> &'static str {
        match self {
            Self::JointPlanning | Self::SharedStarts | Self::TenancyLimits => "discipline",
            Self::ExclusiveGpus | Self::WholeGroups => "grouping",
        }
    }
}

/// Completes the sentence "requires a discipline (or grouping) that …".
impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::JointPlanning => "plans all jobs at once",
            Self::SharedStarts => "starts jobs beside running ones",
            Self::TenancyLimits => "asks the tenancy about every job",
            Self::ExclusiveGpus => "puts one job on each GPU",
            Self::WholeGroups => "lets jobs share either all of their GPUs or none",
        })
    }
}

/// A requirement of one part that the others do not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmetRequirement {
    /// The kind of the part that has the requirement.
    pub kind: &'static str,
    /// The name of that part.
    pub part: String,
    /// What it requires.
    pub feature: Feature,
    /// The name of the part of the kind [`Feature::provider`], which does not provide it.
    pub found: String,
}

impl Policy {
    /// Returns what the policy must know about remaining work: the most that any of its parts needs.
    pub fn knowledge(&self) -> Knowledge {
        let needs = self.parts().into_iter().map(|(_, part)| part.knowledge());
        needs.max().unwrap_or(Knowledge::None)
    }

    /// Returns the first requirement of a part that no other part meets, if there is one.
    pub fn unmet_requirement(&self) -> Option<UnmetRequirement> {
        let parts = self.parts();
        let provides = |feature: &Feature| parts.iter().any(|(_, part)| part.provides().contains(feature));
        let unmet = |(kind, part): &(&'static str, &dyn Part)| {
            let feature = *part.requires().iter().find(|feature| !provides(feature))?;
            let provider = parts.iter().find(|(kind, _)| *kind == feature.provider());
            Some(UnmetRequirement {
                kind,
                part: part.name(),
                feature,
                found: provider.map(|(_, part)| part.name()).unwrap_or_default(),
            })
        };
        parts.iter().find_map(unmet)
    }
}
