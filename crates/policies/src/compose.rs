//! Builds a policy from a preset and the parts that replace some of its own, and checks that its parts work together.

use dovetail_engine::{Capabilities, Discipline, Feature, Grouping, Knowledge, Policy, Sizing};

use crate::error::PolicyError;
use crate::knobs::PartSpec;
use crate::overrides::Overrides;
use crate::presets::{self, Preset};
use crate::registry::{self, DISCIPLINES, Kind};

/// The admission of a policy that names none.
const DEFAULT_ADMISSION: &str = "feasible";
/// The placement of a policy that names none and whose sizing has no companion.
const DEFAULT_PLACEMENT: &str = "consolidate";
/// The discipline that preempts borrowers so that owners get their GPUs back.
const RECLAIMING_DISCIPLINE: &str = "preempt";

/// Builds a policy: a preset with knobs (`tiresias:limits=3600`), some of its parts replaced. Also returns what it must
/// know of remaining work.
///
/// # Errors
/// Names the preset, part or knob that does not exist, with the nearest that do, or the parts that do not work together.
pub fn build(text: &str, overrides: &Overrides) -> Result<(Policy, Knowledge), PolicyError> {
    let spec: PartSpec = text.parse()?;
    let parts = PresetParts::new(presets::find(&spec.name)?, &spec);
    let pick = |replaced: &Option<String>, own: &str| replaced.clone().unwrap_or_else(|| own.to_owned());
    let admission = pick(&overrides.admission, DEFAULT_ADMISSION);
    let order = pick(&overrides.order, &parts.order);
    let sizing = pick(&overrides.sizing, &parts.sizing);
    let grouping = pick(&overrides.grouping, &parts.grouping);
    let sizing_part = registry::build(Kind::Sizing, registry::SIZINGS, &sizing)?;
    let grouping_part = registry::build(Kind::Grouping, registry::GROUPINGS, &grouping)?;
    let discipline = match &overrides.discipline {
        Some(text) => registry::build(Kind::Discipline, DISCIPLINES, text)?,
        None => {
            let own = registry::build(Kind::Discipline, DISCIPLINES, &parts.discipline)?;
            let companions = registry::companions(registry::GROUPINGS, &grouping, Kind::Discipline);
            let companions =
                companions.chain(registry::companions(registry::SIZINGS, &sizing, Kind::Discipline));
            suitable(own, &*sizing_part, &*grouping_part, companions)?
        }
    };
    let mut companions = registry::companions(registry::SIZINGS, &sizing, Kind::Placement);
    let placement = pick(
        &overrides.placement,
        companions.next().unwrap_or(DEFAULT_PLACEMENT),
    );
    let policy = Policy {
        name: format!("{text}{}", overrides.suffix()),
        admission: registry::build(Kind::Admission, registry::ADMISSIONS, &admission)?,
        order: registry::build(Kind::Order, registry::ORDERS, &order)?,
        discipline,
        sizing: sizing_part,
        grouping: grouping_part,
        placement: registry::build(Kind::Placement, registry::PLACEMENTS, &placement)?,
        tenancy: crate::tenancy::build(overrides)?,
    };
    check(&policy)?;
    let knowledge = policy.knowledge();
    Ok((policy, knowledge))
}

/// Builds a policy as [`build`] does, for a runtime.
///
/// # Errors
/// As [`build`] and [`check_runtime`].
pub fn build_for(
    runtime: &Capabilities,
    text: &str,
    overrides: &Overrides,
) -> Result<(Policy, Knowledge), PolicyError> {
    let built = build(text, overrides)?;
    check_runtime(&built.0, runtime)?;
    Ok(built)
}

/// Checks that the runtime has every mechanism that a part of the policy needs.
///
/// # Errors
/// Names the part, what it needs, the runtime that does not have it, and another part of the same kind.
pub fn check_runtime(policy: &Policy, runtime: &Capabilities) -> Result<(), PolicyError> {
    match runtime.first_unsupported(&policy.needs()) {
        None => Ok(()),
        Some(unsupported) => {
            let instead = registry::alternative(unsupported.need.kind, runtime);
            Err(PolicyError::unsupported(unsupported, instead))
        }
    }
}

/// Checks that every part of a policy has what it requires of the others.
///
/// # Errors
/// Names the part whose requirement is not met, the part that should meet it, and the parts that would.
pub fn check(policy: &Policy) -> Result<(), PolicyError> {
    match policy.unmet_requirement() {
        None => Ok(()),
        Some(unmet) => {
            let accepted = registry::providers(unmet.feature);
            Err(PolicyError::incompatible(unmet, accepted))
        }
    }
}

/// Returns the discipline to use instead of the preset's where owners must get back GPUs that others borrow; `None` if the
/// preset's own discipline preempts, or does not work with tenancies at all.
///
/// # Errors
/// Names the nearest presets if the preset does not exist.
pub fn reclaiming_discipline(policy: &str) -> Result<Option<&'static str>, PolicyError> {
    let spec: PartSpec = policy.parse()?;
    let own = registry::build(
        Kind::Discipline,
        DISCIPLINES,
        presets::find(&spec.name)?.discipline,
    )?;
    let keeps_borrowers = own.provides().contains(&Feature::TenancyLimits) && !own.preempts();
    Ok(keeps_borrowers.then_some(RECLAIMING_DISCIPLINE))
}

/// Returns the preset's own discipline if it provides what sizing and grouping require; else the first of their companions
/// that preempts if and only if the preset's own discipline does, or simply the first one.
fn suitable(
    own: Box<dyn Discipline>,
    sizing: &dyn Sizing,
    grouping: &dyn Grouping,
    companions: impl Iterator<Item = &'static str>,
) -> Result<Box<dyn Discipline>, PolicyError> {
    let required = || sizing.requires().iter().chain(grouping.requires());
    if required().all(|feature| own.provides().contains(feature)) {
        return Ok(own);
    }
    let mut first = None;
    for text in companions {
        let companion = registry::build(Kind::Discipline, DISCIPLINES, text)?;
        if companion.preempts() == own.preempts() {
            return Ok(companion);
        }
        first = first.or(Some(companion));
    }
    Ok(first.unwrap_or(own))
}

/// The four parts that a preset names, with the knobs it was given.
struct PresetParts {
    order: String,
    discipline: String,
    sizing: String,
    grouping: String,
}

impl PresetParts {
    /// Gives each knob to the first part that has it, starting with the part that distinguishes the preset. A knob that no
    /// part has goes to that part too, which reports it.
    fn new(preset: &Preset, spec: &PartSpec) -> Self {
        let names = [preset.order, preset.discipline, preset.sizing, preset.grouping];
        let mut parts = names.map(str::to_owned);
        let main = match preset {
            p if p.grouping != "none" => 3,
            p if p.sizing != "rigid" => 2,
            _ => 0,
        };
        let kinds = [Kind::Order, Kind::Discipline, Kind::Sizing, Kind::Grouping];
        let has = |i: usize, knob: &str| {
            let name = names[i].split(':').next();
            let parts = registry::of_kind(kinds[i]);
            let part = parts.iter().find(|part| Some(part.name) == name);
            part.is_some_and(|part| part.knobs.iter().any(|k| k.name == knob))
        };
        if let Some(value) = &spec.positional {
            set(&mut parts[main], value);
        }
        for (knob, value) in &spec.knobs {
            let mut order = std::iter::once(main).chain(0..4);
            let part = order.find(|i| has(*i, knob)).unwrap_or(main);
            set(&mut parts[part], &format!("{knob}={value}"));
        }
        let [order, discipline, sizing, grouping] = parts;
        Self {
            order,
            discipline,
            sizing,
            grouping,
        }
    }
}

/// Adds a setting to the text of a part, in place of an earlier one of the same knob.
fn set(part: &mut String, setting: &str) {
    let (name, settings) = part.split_once(':').unwrap_or((part, ""));
    let knob = |setting: &str| setting.split_once('=').map(|(knob, _)| knob.to_owned());
    let others = settings
        .split(',')
        .filter(|other| !other.is_empty() && (knob(other).is_none() || knob(other) != knob(setting)));
    let all: Vec<&str> = others.chain([setting]).collect();
    *part = format!("{name}:{}", all.join(","));
}

#[cfg(test)]
mod tests;
