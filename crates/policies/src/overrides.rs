//! Parts that replace those of a preset.

use crate::registry::Kind;
use crate::tenancy::SharedCells;

/// Parts that replace those of a preset, and what they need to know of tenants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    /// Which jobs are admitted to the queue.
    pub admission: Option<String>,
    /// Which job is next.
    pub order: Option<String>,
    /// What happens when the next job does not fit.
    pub discipline: Option<String>,
    /// How many GPUs, and how much CPU and memory a job gets.
    pub sizing: Option<String>,
    /// Which jobs share GPUs.
    pub grouping: Option<String>,
    /// Which GPUs a job gets.
    pub placement: Option<String>,
    /// What each tenant may use.
    pub tenancy: Option<String>,
    /// The names of the tenants in the order of their ids, for a tenancy that refers to them by name.
    pub tenants: Vec<String>,
    /// The cells of the file that tenancy `cells` names.
    pub cells: Option<SharedCells>,
}

impl Overrides {
    /// The part of a kind, to be replaced.
    pub fn part_mut(&mut self, kind: Kind) -> &mut Option<String> {
        match kind {
            Kind::Admission => &mut self.admission,
            Kind::Order => &mut self.order,
            Kind::Discipline => &mut self.discipline,
            Kind::Sizing => &mut self.sizing,
            Kind::Grouping => &mut self.grouping,
            Kind::Placement => &mut self.placement,
            Kind::Tenancy => &mut self.tenancy,
        }
    }

    /// The parts that were replaced, as they are appended to the name of the policy: `+backfill+rack-aware`.
    pub(crate) fn suffix(&self) -> String {
        let all = [
            &self.order,
            &self.discipline,
            &self.admission,
            &self.sizing,
            &self.grouping,
            &self.placement,
            &self.tenancy,
        ];
        all.into_iter().flatten().map(|part| format!("+{part}")).collect()
    }
}
