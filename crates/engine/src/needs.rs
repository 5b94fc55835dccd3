//! What a policy needs to work as described: data about jobs, and mechanisms of the runtime that runs them.
//!
//! A part declares its needs ([`Part::needs`](crate::Part::needs)), a runtime declares what it can do
//! ([`Runtime::capabilities`](crate::Runtime::capabilities)). A missing mechanism is a reason to refuse the policy. Missing
//! data is not: the part decides without it, and the job is named in a warning.

use std::fmt;

use dovetail_model::{JobSpec, Scaling, Slowdowns};

use crate::parts::Policy;

/// Something that a part of a policy needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// The work that is left of each job, at least as an estimate.
    RemainingTime,
    /// How far each job is, and how fast it runs.
    Rate,
    /// The stages of an iteration of each job.
    Stages,
    /// The speed of each job as a function of its CPU and memory.
    CpuCurve,
    /// How much jobs slow one another down on shared GPUs.
    Slowdowns,
    /// The speed of each elastic job as a function of its number of GPUs.
    Scaling,
    /// Several jobs on one GPU.
    Sharing,
    /// CPU and memory of a job other than it asks for, changed while it runs.
    Resize,
    /// A number of GPUs of a job other than it asks for, changed while it exists.
    Width,
}

impl Need {
    /// All needs: data first, then mechanisms.
    pub const ALL: [Self; 9] = [
        Self::RemainingTime,
        Self::Rate,
        Self::Stages,
        Self::CpuCurve,
        Self::Slowdowns,
        Self::Scaling,
        Self::Sharing,
        Self::Resize,
        Self::Width,
    ];

    /// Whether it is a mechanism of the runtime, not data about jobs.
    pub fn is_mechanism(self) -> bool {
        matches!(self, Self::Sharing | Self::Resize | Self::Width)
    }

    /// Returns the name that programs see.
    pub fn code(self) -> &'static str {
        match self {
            Self::RemainingTime => "remaining-time",
            Self::Rate => "rate",
            Self::Stages => "stages",
            Self::CpuCurve => "cpu-curve",
            Self::Slowdowns => "slowdowns",
            Self::Scaling => "scaling",
            Self::Sharing => "sharing",
            Self::Resize => "resize",
            Self::Width => "width",
        }
    }

    /// Whether a queued job lacks the datum, with these slowdowns of pairs. No queued job lacks progress.
    pub fn is_missing_in(self, job: &JobSpec, slowdowns: &Slowdowns) -> bool {
        match self {
            Self::RemainingTime => job.expected.is_none(),
            Self::Stages => job.stages.is_none(),
            Self::CpuCurve => job.sensitivity.is_none(),
            // Stage times predict the slowdown of a pair that was not measured.
            Self::Slowdowns => job.stages.is_none() && !job.model.is_some_and(|model| slowdowns.has(model)),
            Self::Scaling => job.min_gpus < job.max_gpus && job.scaling == Scaling::Linear,
            Self::Rate | Self::Sharing | Self::Resize | Self::Width => false,
        }
    }

    /// Returns what happens to jobs without the datum, unless the part says otherwise: it completes "they are …".
    pub fn without(self) -> &'static str {
        match self {
            Self::RemainingTime => "ordered last",
            Self::Rate => "assumed to run at full speed",
            Self::Stages => "never grouped with other jobs",
            Self::CpuCurve => "given what is asked for, or a proportional share of CPU and memory",
            Self::Slowdowns => "assumed to run at half speed on shared GPUs",
            Self::Scaling => "assumed to speed up linearly",
            Self::Sharing | Self::Resize | Self::Width => "not scheduled",
        }
    }

    /// Returns what a job without the datum lacks: it completes "no … known".
    pub fn datum(self) -> &'static str {
        match self {
            Self::RemainingTime => "run time",
            Self::Rate => "progress",
            Self::Stages => "stage times",
            Self::CpuCurve => "CPU curve",
            Self::Slowdowns => "slowdowns on shared GPUs",
            Self::Scaling => "speed-up curve",
            Self::Sharing | Self::Resize | Self::Width => "mechanism",
        }
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// A noun: "remaining time".
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RemainingTime => "remaining time",
            Self::Rate => "progress",
            Self::Stages => "stage times",
            Self::CpuCurve => "CPU curve",
            Self::Slowdowns => "slowdowns",
            Self::Scaling => "speed-up curve",
            Self::Sharing => "GPU sharing",
            Self::Resize => "resizing of CPU and memory",
            Self::Width => "change of width",
        })
    }
}

/// A set of needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NeedSet(u16);

impl NeedSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Whether it has no needs.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the need is in the set.
    pub fn contains(self, need: Need) -> bool {
        self.0 & need.bit() != 0
    }

    /// Returns the needs of both sets.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the set with one more need if `condition` holds.
    pub fn and_if(self, condition: bool, need: Need) -> Self {
        match condition {
            true => Self(self.0 | need.bit()),
            false => self,
        }
    }

    /// Returns the needs in the order of [`Need::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Need> {
        Need::ALL.into_iter().filter(move |need| self.contains(*need))
    }
}

impl<const N: usize> From<[Need; N]> for NeedSet {
    fn from(needs: [Need; N]) -> Self {
        needs.into_iter().collect()
    }
}

impl From<Need> for NeedSet {
    fn from(need: Need) -> Self {
        Self(need.bit())
    }
}

impl FromIterator<Need> for NeedSet {
    fn from_iter<I: IntoIterator<Item = Need>>(needs: I) -> Self {
        Self(needs.into_iter().fold(0, |set, need| set | need.bit()))
    }
}

/// A list: "remaining time, GPU sharing".
impl fmt::Display for NeedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, need) in self.iter().enumerate() {
            write!(f, "{}{need}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A need, and the part of the policy that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartNeed {
    /// The kind of the part.
    pub kind: &'static str,
    /// The name of the part.
    pub part: String,
    /// What it needs.
    pub need: Need,
}

/// The needs of all parts of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyNeeds(Vec<PartNeed>);

impl PolicyNeeds {
    /// Returns the needs of the parts of a policy.
    pub fn of(policy: &Policy) -> Self {
        let mut needs = Vec::new();
        for (kind, part) in policy.parts() {
            needs.extend(part.needs().iter().map(|need| PartNeed {
                kind,
                part: part.name_with_need(need),
                need,
            }));
        }
        Self(needs)
    }

    /// Returns the union over all parts.
    pub fn union(&self) -> NeedSet {
        self.0.iter().map(|need| need.need).collect()
    }

    /// Returns each need with the part that has it.
    pub fn iter(&self) -> impl Iterator<Item = &PartNeed> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_each_need_once_in_order() {
        let set = NeedSet::from([Need::Sharing, Need::RemainingTime, Need::Sharing]);
        assert_eq!(set.to_string(), "remaining time, GPU sharing");
        assert!(set.contains(Need::Sharing) && !set.contains(Need::Width));
        assert_eq!(
            set.union(Need::Width.into()).iter().collect::<Vec<_>>(),
            [Need::RemainingTime, Need::Sharing, Need::Width]
        );
        assert!(NeedSet::EMPTY.is_empty() && !set.is_empty());
        assert_eq!(set.and_if(false, Need::Rate), set);
    }
}
