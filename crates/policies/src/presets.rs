//! Whole policies by name, and how one part of a preset is replaced.

use dovetail_engine::{Knowledge, Policy};
use dovetail_model::suggest::nearest;

use crate::knobs::{PartSpec, PolicyError};
use crate::registry::{self, Kind};
use crate::tenancy::SharedCells;

/// A named policy: one of each part that matters; the rest are the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// One sentence.
    pub what: &'static str,
    /// The order.
    pub order: &'static str,
    /// The discipline.
    pub discipline: &'static str,
    /// The sizing.
    pub sizing: &'static str,
    /// The grouping.
    pub grouping: &'static str,
}

const fn preset(
    name: &'static str,
    what: &'static str,
    order: &'static str,
    discipline: &'static str,
) -> Preset {
    Preset {
        name,
        what,
        order,
        discipline,
        sizing: "rigid",
        grouping: "none",
    }
}

const PRESETS: &[Preset] = &[
    preset(
        "fifo",
        "first in, first out; the head of the line blocks",
        "fifo",
        "strict",
    ),
    preset(
        "fifo-backfill",
        "first in, first out, passing over what does not fit",
        "fifo",
        "backfill",
    ),
    preset(
        "fifo-easy",
        "first in, first out with EASY backfill: GPUs are kept for the head",
        "fifo",
        "easy",
    ),
    preset("sjf", "shortest job first, without preemption", "sjf", "backfill"),
    preset("sjf-easy", "shortest job first with EASY backfill", "sjf", "easy"),
    preset(
        "srtf",
        "shortest remaining time first, preemptive",
        "srtf",
        "preempt",
    ),
    preset(
        "srsf",
        "shortest remaining service (time × GPUs) first, preemptive",
        "srsf",
        "preempt",
    ),
    preset("las", "least attained service, preemptive", "las", "preempt"),
    preset(
        "tiresias",
        "discretised 2-D LAS with queues, preemptive",
        "tiresias",
        "preempt",
    ),
    preset(
        "gittins",
        "2-D Gittins index learnt from finished jobs, preemptive",
        "gittins",
        "preempt",
    ),
    preset(
        "themis",
        "finish-time fairness: leases, and auctions among those who are worst off",
        "themis",
        "auction",
    ),
    preset(
        "ftf",
        "finish-time fairness against running alone, preemptive",
        "ftf",
        "preempt",
    ),
    preset(
        "drf",
        "dominant resource fairness between tenants, preemptive",
        "drf",
        "preempt",
    ),
    preset(
        "tetris",
        "little work left and well aligned with what is free, preemptive",
        "tetris",
        "preempt",
    ),
    Preset {
        name: "synergy",
        what: "shortest remaining time first; CPU and memory go where they speed up most",
        order: "srtf",
        discipline: "preempt",
        sizing: "tune",
        grouping: "none",
    },
    Preset {
        name: "optimus",
        what: "elastic: GPUs go where they shorten remaining time most",
        order: "srtf",
        discipline: "replan",
        sizing: "optimus",
        grouping: "none",
    },
    Preset {
        name: "elastic-fifo",
        what: "elastic: jobs shrink to start sooner and grow on idle GPUs, first in, first out",
        order: "fifo",
        discipline: "replan",
        sizing: "elastic",
        grouping: "none",
    },
    Preset {
        name: "muri-s",
        what: "jobs with complementary stages share GPUs; shortest remaining service first",
        order: "srsf",
        discipline: "replan",
        sizing: "rigid",
        grouping: "muri",
    },
    Preset {
        name: "muri-l",
        what: "jobs with complementary stages share GPUs; least attained service first, in growing queues",
        order: "tiresias:limits=3250*3",
        discipline: "replan",
        sizing: "rigid",
        grouping: "muri",
    },
    Preset {
        name: "antman",
        what: "guaranteed jobs first; opportunistic ones fill idle GPUs and what guaranteed jobs leave of theirs",
        order: "fifo:priority=class",
        discipline: "share",
        sizing: "rigid",
        grouping: "pair:by=antman",
    },
    Preset {
        name: "sjf-bsbf",
        what: "shortest job first, preemptive; who finds no GPUs shares where both gain most",
        order: "sjf",
        discipline: "share:preempt=true",
        sizing: "rigid",
        grouping: "pair:by=bsbf",
    },
    Preset {
        name: "sjf-bsbf-no-preempt",
        what: "shortest job first; who finds no GPUs shares where both gain most",
        order: "sjf",
        discipline: "share",
        sizing: "rigid",
        grouping: "pair:by=bsbf",
    },
    Preset {
        name: "sjf-ffs",
        what: "shortest job first, preemptive; who finds no GPUs shares the least loaded ones",
        order: "sjf",
        discipline: "share:preempt=true",
        sizing: "rigid",
        grouping: "pair:by=ffs",
    },
    Preset {
        name: "sjf-ffs-no-preempt",
        what: "shortest job first; who finds no GPUs shares the least loaded ones",
        order: "sjf",
        discipline: "share",
        sizing: "rigid",
        grouping: "pair:by=ffs",
    },
];

/// All presets.
pub fn presets() -> &'static [Preset] {
    PRESETS
}

/// The preset with this name.
///
/// # Errors
/// Names the nearest ones if there is none.
pub fn find(name: &str) -> Result<&'static Preset, PolicyError> {
    PRESETS.iter().find(|p| p.name == name).ok_or_else(|| {
        let near = nearest(name, PRESETS.iter().map(|p| p.name))
            .into_iter()
            .map(str::to_owned)
            .collect();
        PolicyError::Unknown {
            kind: "policy",
            name: name.to_owned(),
            near,
        }
    })
}

/// Parts that replace those of a preset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    /// Who gets in.
    pub admission: Option<String>,
    /// Who is next.
    pub order: Option<String>,
    /// How the line is walked.
    pub discipline: Option<String>,
    /// How wide.
    pub sizing: Option<String>,
    /// Who shares.
    pub grouping: Option<String>,
    /// Which GPUs.
    pub placement: Option<String>,
    /// What a tenant may use.
    pub tenancy: Option<String>,
    /// The names of the tenants in the order of their ids, for a tenancy that knows them by name.
    pub tenants: Vec<String>,
    /// The cells of the file that tenancy `cells` names.
    pub cells: Option<SharedCells>,
}

impl Overrides {
    /// What was replaced, for the name of the policy.
    fn suffix(&self) -> String {
        let all = [
            &self.order,
            &self.discipline,
            &self.admission,
            &self.sizing,
            &self.grouping,
            &self.placement,
            &self.tenancy,
        ];
        all.into_iter().flatten().map(|o| format!("+{o}")).collect()
    }
}

/// The parts of a preset with the knobs it was given.
struct Parts {
    order: String,
    discipline: String,
    sizing: String,
    grouping: String,
}

impl Parts {
    /// Each knob goes to the first part that has it, the one that gives the preset its name before all others; a knob
    /// that none has goes there too, where it is refused.
    fn of(preset: &Preset, spec: &PartSpec) -> Self {
        let names = [preset.order, preset.discipline, preset.sizing, preset.grouping];
        let mut parts = names.map(str::to_owned);
        let main = match preset {
            p if p.grouping != "none" => 3,
            p if p.sizing != "rigid" => 2,
            _ => 0,
        };
        let kinds = [Kind::Order, Kind::Discipline, Kind::Sizing, Kind::Grouping];
        let all = registry::all();
        let has = |i: usize, knob: &str| {
            let name = names[i].split(':').next();
            all.iter()
                .any(|p| p.kind == kinds[i] && Some(p.name) == name && p.knobs.iter().any(|k| k.name == knob))
        };
        // What is given takes the place of what the preset says.
        let mut add = |i: usize, setting: String| {
            let (name, settings) = parts[i].split_once(':').unwrap_or((&parts[i], ""));
            let knob = |s: &str| s.split_once('=').map(|(knob, _)| knob.to_owned());
            let others = settings
                .split(',')
                .filter(|s| !s.is_empty() && (knob(s).is_none() || knob(s) != knob(&setting)));
            let all: Vec<&str> = others.chain([setting.as_str()]).collect();
            parts[i] = format!("{name}:{}", all.join(","));
        };
        if let Some(value) = &spec.positional {
            add(main, value.clone());
        }
        for (knob, value) in &spec.knobs {
            let place = std::iter::once(main)
                .chain(0..4)
                .find(|i| has(*i, knob))
                .unwrap_or(main);
            add(place, format!("{knob}={value}"));
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

/// The discipline: the preset's, or the one a sizing or grouping needs that takes the place of the preset's.
fn walk(overrides: &Overrides, plain: String) -> Result<String, PolicyError> {
    let name = |part: &Option<String>| {
        let text = part.as_deref().unwrap_or_default();
        text.split(':').next().unwrap_or_default().to_owned()
    };
    let (sizing, grouping, given) = (
        name(&overrides.sizing),
        name(&overrides.grouping),
        name(&overrides.discipline),
    );
    // Only those that change how many GPUs a job has; CPU and memory are given job by job.
    let resizes = ["elastic", "optimus"].contains(&sizing.as_str());
    if grouping == "pair" {
        if resizes || !["", "share", "antman-muri"].contains(&given.as_str()) {
            let discipline = if resizes { "replan".to_owned() } else { given };
            return Err(PolicyError::NeedsShare { discipline });
        }
        let preempts = ["preempt", "replan", "share:preempt=true"];
        let preempts = preempts.iter().any(|p| plain.starts_with(p));
        return Ok(if preempts { "share:preempt=true" } else { "share" }.to_owned());
    }
    // A sizing or grouping that looks at all jobs at once needs a walk that asks it.
    if !resizes && ["", "none"].contains(&grouping.as_str()) {
        return Ok(plain);
    }
    match given.as_str() {
        "" | "replan" | "afresh" => Ok("replan".to_owned()),
        _ => Err(PolicyError::NeedsReplan { discipline: given }),
    }
}

/// Builds a policy: a preset, with knobs for its order (`tiresias:limits=3600`), and some parts replaced. Also tells
/// the least it must know of remaining work.
///
/// # Errors
/// Names the preset, part or knob that does not exist, with the nearest that do.
pub fn build(text: &str, overrides: &Overrides) -> Result<(Policy, Knowledge), PolicyError> {
    let spec: PartSpec = text.parse()?;
    let preset = find(&spec.name)?;
    let parts = Parts::of(preset, &spec);
    let walk = walk(overrides, parts.discipline)?;
    let pick = |over: &Option<String>, default: String| over.clone().unwrap_or(default);
    let (admission, a) = registry::build(
        Kind::Admission,
        registry::ADMISSIONS,
        &pick(&overrides.admission, "feasible".to_owned()),
    )?;
    let (order, o) = registry::build(
        Kind::Order,
        registry::ORDERS,
        &pick(&overrides.order, parts.order),
    )?;
    let walk = pick(&overrides.discipline, walk);
    let (discipline, d) = registry::build(Kind::Discipline, registry::DISCIPLINES, &walk)?;
    let (sizing, s) = registry::build(
        Kind::Sizing,
        registry::SIZINGS,
        &pick(&overrides.sizing, parts.sizing),
    )?;
    let (grouping, g) = registry::build(
        Kind::Grouping,
        registry::GROUPINGS,
        &pick(&overrides.grouping, parts.grouping),
    )?;
    // What is left over on a node is worth most where hungry jobs stand beside modest ones.
    let suiting = match sizing.name().split(':').next() {
        Some("tune" | "opt") => "complement",
        _ => "consolidate",
    };
    let (placement, p) = registry::build(
        Kind::Placement,
        registry::PLACEMENTS,
        &pick(&overrides.placement, suiting.to_owned()),
    )?;
    let (tenancy, t) = crate::tenancy::build(overrides, &walk, grouping.terms())?;
    let name = format!("{text}{}", overrides.suffix());
    let knowledge = [a, o, d, s, g, p, t].into_iter().max().unwrap_or(Knowledge::None);
    Ok((
        Policy {
            name,
            admission,
            order,
            discipline,
            sizing,
            grouping,
            placement,
            tenancy,
        },
        knowledge,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sizing_of_cpu_and_memory_leaves_the_walk_as_it_is() {
        for (preset, discipline) in [
            ("fifo-backfill", "backfill"),
            ("srtf", "preempt"),
            ("themis", "auction"),
        ] {
            for sizing in ["proportional", "greedy", "tune"] {
                let overrides = Overrides {
                    sizing: Some(sizing.to_owned()),
                    ..Overrides::default()
                };
                let (policy, _) = build(preset, &overrides).unwrap();
                assert_eq!(policy.discipline.name(), discipline, "{preset} {sizing}");
                assert_eq!(policy.sizing.name(), sizing);
            }
        }
    }

    #[test]
    fn every_preset_builds() {
        for preset in presets() {
            let (policy, _) = build(preset.name, &Overrides::default()).unwrap();
            assert_eq!(policy.name, preset.name);
        }
    }

    #[test]
    fn unknown_names_get_a_hint() {
        let say = |text: &str, over: Overrides| build(text, &over).unwrap_err().to_string();
        assert_eq!(
            say("tiresas", Overrides::default()),
            "unknown policy `tiresas`, did you mean `tiresias`?; `dovetail policies` lists all of them"
        );
        let over = Overrides {
            placement: Some("consolidated".to_owned()),
            ..Overrides::default()
        };
        assert!(say("fifo", over).contains("did you mean `consolidate`?"));
        assert!(say("tiresias:limit=3", Overrides::default()).contains("did you mean `limits`?"));
    }

    #[test]
    fn knobs_find_the_part_that_has_them() {
        let names = |text: &str| {
            let (policy, _) = build(text, &Overrides::default()).unwrap();
            policy.parts().map(|(_, part)| part.name()).join(" ")
        };
        assert!(names("fifo-easy:patience=2h,priority=true").contains("fifo:priority=true easy:patience=2h"));
        assert!(names("muri-s:size=2,autopack=false").contains("muri:autopack=false,size=2"));
        assert!(names("themis:lease=5m,f=0").contains("themis auction:f=0,lease=5m"));
        assert!(names("srsf:min_run=1h").contains("preempt:min_run=1h"));
        assert!(names("muri-l:limits=1/2,size=2").contains("tiresias:limits=1/2 replan"));
        let over = Overrides {
            grouping: Some("muri".to_owned()),
            ..Overrides::default()
        };
        let (policy, _) = build("tiresias", &over).unwrap();
        assert_eq!(policy.discipline.name(), "replan");
        let over = Overrides {
            discipline: Some("strict".to_owned()),
            ..over
        };
        let say = |over: &Overrides| build("tiresias", over).unwrap_err().to_string();
        assert!(say(&over).contains("needs discipline `replan`"));
        let over = Overrides {
            grouping: Some("pair:by=ffs".to_owned()),
            ..over
        };
        assert!(say(&over).contains("needs discipline `share`"));
    }

    #[test]
    fn pairs_walk_as_their_preset_does() {
        let over = Overrides {
            grouping: Some("pair".to_owned()),
            ..Overrides::default()
        };
        let walk = |preset: &str| build(preset, &over).unwrap().0.discipline.name();
        assert_eq!(
            (walk("fifo"), walk("srtf")),
            ("share".to_owned(), "share:preempt=true".to_owned())
        );
        let (policy, _) = build("sjf-bsbf:mps=true,min_left=10s", &Overrides::default()).unwrap();
        assert_eq!(policy.grouping.name(), "pair:by=bsbf,mps=true");
        assert_eq!(policy.discipline.name(), "share:min_left=10s,preempt=true");
    }

    #[test]
    fn knowledge_is_the_most_any_part_needs() {
        let knowledge = |name: &str| build(name, &Overrides::default()).unwrap().1;
        assert_eq!(knowledge("tiresias"), Knowledge::None);
        assert_eq!(knowledge("srsf"), Knowledge::Estimate);
        assert_eq!(knowledge("optimus"), Knowledge::Estimate);
        assert_eq!(knowledge("themis"), Knowledge::Estimate);
    }
}
