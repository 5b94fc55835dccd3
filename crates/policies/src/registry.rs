//! All parts, with what a user wants to know before choosing one, and how each is built from its text.
//!
//! The module of each kind lists its parts in `ALL`. Command line, docs, property tests and shell completion take their
//! lists from here.

use dovetail_engine::{
    Admission, Capabilities, Discipline, Feature, Grouping, Knowledge, NeedSet, Part, Placement, QueueOrder,
    Sizing, Tenancy,
};
use dovetail_model::suggest::nearest;

use crate::error::PolicyError;
use crate::knobs::{Knob, Knobs, PartSpec};

/// The kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Which jobs are admitted to the queue.
    Admission,
    /// Which job is next.
    Order,
    /// What happens when the next job does not fit.
    Discipline,
    /// How many GPUs, and how much CPU and memory a job gets.
    Sizing,
    /// Which jobs share GPUs.
    Grouping,
    /// Which GPUs a job gets.
    Placement,
    /// What each tenant may use.
    Tenancy,
}

impl Kind {
    /// All kinds, in the order in which they are listed.
    pub const ALL: [Self; 7] = [
        Self::Order,
        Self::Discipline,
        Self::Admission,
        Self::Sizing,
        Self::Grouping,
        Self::Placement,
        Self::Tenancy,
    ];

    /// Name of the kind in flags and errors.
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

/// Builds a part from its knobs.
pub type Build<T> = fn(&Knobs) -> Result<Box<T>, PolicyError>;

/// A part in the registry.
#[derive(Debug)]
pub struct Entry<T: ?Sized> {
    /// Name of the part.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub what: &'static str,
    /// The paper or rule it comes from.
    pub source: &'static str,
    /// For an order: the sort key, smaller first. For other parts: the rule in short.
    pub key: &'static str,
    /// Parts that it is combined with unless the user names others. Of several of one kind, the first one is used that
    /// preempts if and only if the preset does.
    pub companions: &'static [(Kind, &'static str)],
    /// Its knobs, the most useful one first.
    pub knobs: &'static [Knob],
    /// Builds the part.
    pub build: Build<T>,
}

/// An [`Entry`] without its builder, for lists of parts of all kinds.
#[derive(Debug, Clone, Copy)]
pub struct Listing {
    /// Kind of the part.
    pub kind: Kind,
    /// Name of the part.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub what: &'static str,
    /// The paper or rule it comes from.
    pub source: &'static str,
    /// The sort key, or the rule in short.
    pub key: &'static str,
    /// What it needs to know of remaining work.
    pub knowledge: Knowledge,
    /// The data and mechanisms it needs.
    pub needs: NeedSet,
    /// Data that it uses where they are known.
    pub hints: NeedSet,
    /// Its knobs.
    pub knobs: &'static [Knob],
}

impl<T: Part + ?Sized> Entry<T> {
    /// Builds the part with the default of each knob; `None` where a knob has no useful default.
    fn with_defaults(&self, kind: Kind) -> Option<Box<T>> {
        let knobs = Knobs::new(kind.name(), self.knobs, &PartSpec::named(self.name));
        (self.build)(&knobs.ok()?).ok()
    }

    fn listing(&self, kind: Kind) -> Listing {
        let part = self.with_defaults(kind);
        let part = part.as_deref();
        Listing {
            kind,
            name: self.name,
            what: self.what,
            source: self.source,
            key: self.key,
            knowledge: part.map_or(Knowledge::None, Part::knowledge),
            needs: part.map_or(NeedSet::EMPTY, Part::needs),
            hints: part.map_or(NeedSet::EMPTY, Part::hints),
            knobs: self.knobs,
        }
    }
}

/// All admissions.
pub const ADMISSIONS: &[Entry<dyn Admission>] = crate::admission::ALL;
/// All orders.
pub const ORDERS: &[Entry<dyn QueueOrder>] = crate::order::ALL;
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

/// Lists all parts of one kind.
pub fn of_kind(kind: Kind) -> Vec<Listing> {
    fn list<T: Part + ?Sized>(kind: Kind, entries: &[Entry<T>]) -> Vec<Listing> {
        entries.iter().map(|entry| entry.listing(kind)).collect()
    }
    match kind {
        Kind::Admission => list(kind, ADMISSIONS),
        Kind::Order => list(kind, ORDERS),
        Kind::Discipline => list(kind, DISCIPLINES),
        Kind::Sizing => list(kind, SIZINGS),
        Kind::Grouping => list(kind, GROUPINGS),
        Kind::Placement => list(kind, PLACEMENTS),
        Kind::Tenancy => list(kind, TENANCIES),
    }
}

/// Lists all parts of all kinds.
pub fn all() -> Vec<Listing> {
    Kind::ALL.into_iter().flat_map(of_kind).collect()
}

/// Builds one part from its text.
///
/// # Errors
/// Names the part or knob that does not exist, with the nearest that do.
pub fn build<T: ?Sized>(kind: Kind, entries: &'static [Entry<T>], text: &str) -> Result<Box<T>, PolicyError> {
    let spec: PartSpec = text.parse()?;
    let entry = find(kind, entries, &spec.name)?;
    (entry.build)(&Knobs::new(kind.name(), entry.knobs, &spec)?)
}

fn find<T: ?Sized>(
    kind: Kind,
    entries: &'static [Entry<T>],
    name: &str,
) -> Result<&'static Entry<T>, PolicyError> {
    let entry = entries.iter().find(|entry| entry.name == name);
    entry.ok_or_else(|| PolicyError::Unknown {
        kind: kind.name(),
        name: name.to_owned(),
        near: nearest(name, entries.iter().map(|entry| entry.name))
            .into_iter()
            .map(str::to_owned)
            .collect(),
    })
}

/// The companions of one kind that the part with this text declares.
pub(crate) fn companions<T: ?Sized>(
    entries: &'static [Entry<T>],
    text: &str,
    kind: Kind,
) -> impl Iterator<Item = &'static str> {
    let name = text.split(':').next().unwrap_or_default().trim();
    let entry = entries.iter().find(|entry| entry.name == name);
    let companions = entry.map_or(&[][..], |entry| entry.companions);
    companions
        .iter()
        .filter(move |(of, _)| *of == kind)
        .map(|(_, part)| *part)
}

/// Returns the first part of a kind that needs no mechanism that the runtime does not have.
pub(crate) fn alternative(kind: &str, runtime: &Capabilities) -> Option<&'static str> {
    let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
    let is_supported = |part: &Listing| {
        let mut mechanisms = part.needs.iter().filter(|need| need.is_mechanism());
        mechanisms.all(|need| runtime.missing(need).is_none())
    };
    of_kind(kind).into_iter().find(is_supported).map(|part| part.name)
}

/// Names of the parts that provide a feature, with the default of each knob.
pub(crate) fn providers(feature: Feature) -> Vec<&'static str> {
    fn names<T: Part + ?Sized>(kind: Kind, entries: &[Entry<T>], feature: Feature) -> Vec<&'static str> {
        let provides = |entry: &&Entry<T>| {
            let part = entry.with_defaults(kind);
            part.is_some_and(|part| part.provides().contains(&feature))
        };
        entries.iter().filter(provides).map(|entry| entry.name).collect()
    }
    match feature.provider() {
        "grouping" => names(Kind::Grouping, GROUPINGS, feature),
        _ => names(Kind::Discipline, DISCIPLINES, feature),
    }
}
