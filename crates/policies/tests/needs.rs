//! What parts declare to need is what they use: every part runs on random jobs, with and without each datum, and its commands
//! are examined for mechanisms.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_engine::{Engine, Knowledge, Need, NeedSet, Part, Policy};
use dovetail_model::{Allocation, Command, Event, JobKey, JobSpec, Rate, Scaling, Slowdowns, Work};
use dovetail_policies::registry::{self, Kind};
use dovetail_policies::{Overrides, build, presets};
use dovetail_testkit::any::{cases, measured_slowdowns, profiled};
use dovetail_testkit::{Call, PolicyText, Scenario, World, replay};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Parts with shorter spans than their defaults, so that more happens in a short scenario.
const SHORT: &[&str] = &[
    "las:quantum=20s",
    "auction:lease=20s",
    "easy:patience=20s",
    "elastic:interval=0",
    "optimus:interval=0",
];

/// Settings that change what a part needs.
const SETTINGS: &[(Kind, &str)] = &[
    (Kind::Order, "srtf:by=holding"),
    (Kind::Order, "drf:by=user"),
    (Kind::Discipline, "share:preempt=true,min_left=5s"),
    (Kind::Sizing, "tune:by=speed"),
    (Kind::Grouping, "pair:by=ffs"),
    (Kind::Grouping, "pair:by=antman"),
    (Kind::Grouping, "muri:unequal=true"),
];

/// Scenarios in which each part is observed; more if it has not used all that it declares.
const SCENARIOS: u32 = 60;
const MOST_SCENARIOS: u32 = 1200;

/// A policy in which only this part can need anything; none for parts that work only in one simulation or with a file.
fn policy_with(kind: Kind, part: &str) -> Option<PolicyText> {
    let preset = match kind {
        // Jobs of these presets are preempted, so that their progress matters.
        Kind::Order | Kind::Sizing => "las:quantum=20s",
        Kind::Placement => "fifo-backfill",
        Kind::Admission | Kind::Discipline | Kind::Grouping => "fifo",
        Kind::Tenancy => return None,
    };
    let mut overrides = Overrides::default();
    // The records of `antman-muri` are those of one simulator: it works only with its own grouping and no other nodes.
    if part == "antman-muri" {
        return None;
    }
    if kind == Kind::Sizing {
        overrides.placement = Some("first-free".to_owned());
    }
    *overrides.part_mut(kind) = Some(part.to_owned());
    Some(PolicyText {
        preset: preset.to_owned(),
        overrides,
    })
}

/// Returns every registered part, and those of [`SETTINGS`].
fn parts() -> Vec<(Kind, String)> {
    let short = |name: &str| SHORT.iter().find(|text| text.split(':').next() == Some(name));
    let text = |name: &'static str| (*short(name).unwrap_or(&name)).to_owned();
    let registered = registry::all().into_iter().map(|p| (p.kind, text(p.name)));
    let set = SETTINGS.iter().map(|(kind, text)| (*kind, (*text).to_owned()));
    registered.chain(set).collect()
}

fn part_of(policy: &Policy, kind: Kind) -> &dyn Part {
    let parts = policy.parts().into_iter();
    let mut parts = parts.filter(|(name, _)| *name == kind.name());
    parts.next().unwrap().1
}

fn engine(scenario: &Scenario, slowdowns: Slowdowns) -> Engine {
    let mut engine = scenario.engine();
    engine.set_slowdowns(slowdowns);
    engine
}

/// Returns what a runtime without the datum would report instead of an event.
fn without(datum: Need, event: &Event) -> Event {
    let mut event = event.clone();
    match (&mut event, datum) {
        (Event::Submitted(spec), _) => remove(datum, spec),
        (Event::Started { rate, .. } | Event::Progressed { rate, .. }, Need::Rate) => {
            *rate = Rate(rate.0 / 2);
        }
        (Event::Stopped { done, .. }, Need::Rate) => *done = Work(0),
        _ => {}
    }
    event
}

fn remove(datum: Need, spec: &mut JobSpec) {
    match datum {
        Need::RemainingTime => spec.expected = None,
        Need::Stages => spec.stages = None,
        Need::CpuCurve => spec.sensitivity = None,
        Need::Scaling => spec.scaling = Scaling::Linear,
        Need::Slowdowns => spec.model = None,
        Need::Rate | Need::Sharing | Need::Resize | Need::Width => {}
    }
}

/// Whether the policy gives other commands without the datum.
fn depends_on(datum: Need, scenario: &Scenario, calls: &[Call]) -> bool {
    let changed: Vec<Call> = calls
        .iter()
        .map(|call| match call {
            Call::Handle(now, event) => Call::Handle(*now, without(datum, event)),
            Call::Poll(command) => Call::Poll(command.clone()),
        })
        .collect();
    replay(&mut engine(scenario, measured_slowdowns()), &changed).is_err()
}

/// The mechanisms that a run needs, as its commands show.
#[derive(Default)]
struct Mechanisms {
    specs: BTreeMap<JobKey, JobSpec>,
    held: BTreeMap<JobKey, Allocation>,
    used: NeedSet,
}

impl Mechanisms {
    fn of(calls: &[Call]) -> NeedSet {
        let mut mechanisms = Self::default();
        for call in calls {
            mechanisms.follow(call);
        }
        mechanisms.used
    }

    fn follow(&mut self, call: &Call) {
        match call {
            Call::Handle(_, Event::Submitted(spec)) => drop(self.specs.insert(spec.id, spec.clone())),
            Call::Handle(_, Event::Exited { job, .. } | Event::Stopped { job, .. }) => {
                self.held.remove(job);
            }
            Call::Poll(Some(Command::Launch { job, allocation, .. })) => self.launch(*job, allocation),
            Call::Poll(Some(Command::Resize { .. })) => self.add(Need::Resize),
            _ => {}
        }
    }

    fn launch(&mut self, job: JobKey, allocation: &Allocation) {
        let spec = &self.specs[&job];
        let gpus = allocation.gpus();
        let cpu: u32 = allocation.shares.iter().map(|share| share.cpu_milli).sum();
        let memory: u64 = allocation.shares.iter().map(|share| share.memory_mib).sum();
        let asked = (
            spec.cpu_milli_per_gpu * gpus,
            spec.memory_mib_per_gpu * u64::from(gpus),
        );
        if gpus != spec.gpus {
            self.add(Need::Width);
        } else if (cpu, memory) != asked {
            self.add(Need::Resize);
        }
        if self.held.values().any(|other| overlap(other, allocation)) {
            self.add(Need::Sharing);
        }
        self.held.insert(job, allocation.clone());
    }

    fn add(&mut self, need: Need) {
        self.used = self.used.union(need.into());
    }
}

fn overlap(a: &Allocation, b: &Allocation) -> bool {
    let on_same_gpu = |x: &dovetail_model::NodeShare, y: &dovetail_model::NodeShare| {
        x.node == y.node && x.gpus.iter().any(|gpu| y.gpus.contains(gpu))
    };
    a.shares
        .iter()
        .any(|x| b.shares.iter().any(|y| on_same_gpu(x, y)))
}

/// Runs a part on random jobs and returns the data and mechanisms that it used.
fn observe(policy: &PolicyText, declared: NeedSet) -> NeedSet {
    let mut runner = TestRunner::new(cases(1));
    let mut used = NeedSet::EMPTY;
    let data: Vec<Need> = Need::ALL
        .into_iter()
        .filter(|need| !need.is_mechanism())
        .collect();
    for scenario in 0..MOST_SCENARIOS {
        if scenario >= SCENARIOS && used.union(declared) == used {
            break;
        }
        let scenario = profiled(Just(policy.clone()), 16)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        let mut world = World::new(&scenario);
        world.engine = engine(&scenario, measured_slowdowns());
        world.run();
        let calls = world.calls();
        used = used.union(Mechanisms::of(calls));
        for datum in &data {
            if !used.contains(*datum) && depends_on(*datum, &scenario, calls) {
                used = used.union((*datum).into());
            }
        }
    }
    used
}

#[test]
fn every_part_declares_exactly_what_it_uses() {
    let mut wrong = Vec::new();
    for (kind, text) in parts() {
        let Some(policy) = policy_with(kind, &text) else {
            continue;
        };
        let (built, _) = policy.build();
        let part = part_of(&built, kind);
        let declared = part.needs().union(part.hints());
        let used = observe(&policy, declared);
        if used != declared {
            wrong.push(format!(
                "{} {text}: declares [{declared}], uses [{used}]",
                kind.name()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn mechanisms_follow_from_the_traits_of_parts() {
    for preset in presets() {
        let (mut policy, knowledge) = build(preset.name, &Overrides::default()).unwrap();
        let needs = policy.needs();
        let has = |kind: &str, need: Need| needs.iter().any(|n| n.kind == kind && n.need == need);
        assert_eq!(
            policy.grouping.shares(),
            has("grouping", Need::Sharing),
            "{}",
            preset.name
        );
        let fills = policy.sizing.filling().is_some();
        assert!(!fills || has("sizing", Need::Resize), "{}", preset.name);
        let knows = needs.union().contains(Need::RemainingTime);
        assert_eq!(knowledge != Knowledge::None, knows, "{}", preset.name);
    }
}

#[test]
fn a_policy_remembers_which_part_needs_what() {
    let (policy, _) = build("synergy", &Overrides::default()).unwrap();
    let needs: Vec<String> = policy
        .needs()
        .iter()
        .map(|n| format!("{} {}: {}", n.kind, n.part, n.need))
        .collect();
    assert_eq!(
        needs,
        [
            "order srtf: remaining time",
            "order srtf: progress",
            "sizing tune: CPU curve",
            "sizing tune: resizing of CPU and memory",
        ]
    );
    assert_eq!(
        policy.needs().union().to_string(),
        "remaining time, progress, CPU curve, resizing of CPU and memory"
    );
}
