//! Every part there is, with what people want to know before they choose it.

use dovetail_engine::{Admission, Discipline, Grouping, Knowledge, Order, Placement, Sizing, Tenancy};
use dovetail_model::suggest::nearest;

use crate::knobs::{Knob, Knobs, PartSpec, PolicyError};

/// What kind of part it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Who gets in.
    Admission,
    /// Who is next.
    Order,
    /// How the line is walked.
    Discipline,
    /// How wide.
    Sizing,
    /// Who shares.
    Grouping,
    /// Which GPUs.
    Placement,
    /// What a tenant may use.
    Tenancy,
}

impl Kind {
    /// As flags and errors call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Order => "order",
            Self::Discipline => "discipline",
            Self::Sizing => "sizing",
            Self::Grouping => "grouping",
            Self::Placement => "placement",
            Self::Tenancy => "tenancy",
        }
    }
}

/// How a part is built from its knobs.
pub type Build<T> = fn(&Knobs) -> Result<Box<T>, PolicyError>;

/// What people want to know of a part, and how to build it.
#[derive(Debug)]
pub struct Entry<T: ?Sized> {
    /// Its name.
    pub name: &'static str,
    /// One sentence.
    pub what: &'static str,
    /// The paper or the rule it comes from.
    pub source: &'static str,
    /// For an order: the key, smaller first. For others: the rule in short.
    pub key: &'static str,
    /// What it must know of remaining work.
    pub knowledge: Knowledge,
    /// Its knobs, the most useful first.
    pub knobs: &'static [Knob],
    /// Builds it.
    pub build: Build<T>,
}

/// An [`Entry`] without the builder, to list parts of all kinds.
#[derive(Debug, Clone, Copy)]
pub struct Listing {
    /// The kind.
    pub kind: Kind,
    /// Its name.
    pub name: &'static str,
    /// One sentence.
    pub what: &'static str,
    /// The paper or the rule it comes from.
    pub source: &'static str,
    /// The ordering key, or the rule in short.
    pub key: &'static str,
    /// What it must know of remaining work.
    pub knowledge: Knowledge,
    /// Its knobs.
    pub knobs: &'static [Knob],
}

impl<T: ?Sized> Entry<T> {
    fn listing(&self, kind: Kind) -> Listing {
        let Self {
            name,
            what,
            source,
            key,
            knowledge,
            knobs,
            ..
        } = *self;
        Listing {
            kind,
            name,
            what,
            source,
            key,
            knowledge,
            knobs,
        }
    }
}

/// All admissions.
pub const ADMISSIONS: &[Entry<dyn Admission>] = crate::admission::ALL;
/// All orders.
pub const ORDERS: &[Entry<dyn Order>] = crate::order::ALL;
/// All disciplines.
pub const DISCIPLINES: &[Entry<dyn Discipline>] = crate::discipline::ALL;
/// All sizings.
pub const SIZINGS: &[Entry<dyn Sizing>] = crate::sizing::ALL;
/// All groupings.
pub const GROUPINGS: &[Entry<dyn Grouping>] = crate::grouping::ALL;
/// All placements.
pub const PLACEMENTS: &[Entry<dyn Placement>] = crate::placement::ALL;
/// All tenancies.
pub const TENANCIES: &[Entry<dyn Tenancy>] = crate::tenancy::ALL;

/// Every part of every kind.
pub fn all() -> Vec<Listing> {
    fn list<T: ?Sized>(kind: Kind, entries: &'static [Entry<T>]) -> impl Iterator<Item = Listing> {
        entries.iter().map(move |e| e.listing(kind))
    }
    list(Kind::Order, ORDERS)
        .chain(list(Kind::Discipline, DISCIPLINES))
        .chain(list(Kind::Admission, ADMISSIONS))
        .chain(list(Kind::Sizing, SIZINGS))
        .chain(list(Kind::Grouping, GROUPINGS))
        .chain(list(Kind::Placement, PLACEMENTS))
        .chain(list(Kind::Tenancy, TENANCIES))
        .collect()
}

/// Builds one part by name.
///
/// # Errors
/// Names the part or knob that does not exist, with the nearest that do.
pub fn build<T: ?Sized>(
    kind: Kind,
    entries: &'static [Entry<T>],
    text: &str,
) -> Result<(Box<T>, Knowledge), PolicyError> {
    let spec: PartSpec = text.parse()?;
    let Some(entry) = entries.iter().find(|e| e.name == spec.name) else {
        let near = nearest(&spec.name, entries.iter().map(|e| e.name));
        let near = near.into_iter().map(str::to_owned).collect();
        return Err(PolicyError::Unknown {
            kind: kind.name(),
            name: spec.name,
            near,
        });
    };
    let knobs = Knobs::new(kind.name(), entry.knobs, &spec)?;
    Ok(((entry.build)(&knobs)?, entry.knowledge))
}
