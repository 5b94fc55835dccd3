//! Random policies: every preset, and presets with random parts.

use dovetail_policies::registry::ORDERS;
use dovetail_policies::{Overrides, build};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;

use crate::scenario::PolicyText;

/// Settings of orders other than the defaults, with which every registered order is generated.
const ORDER_SETTINGS: &[&str] = &[
    "fifo:priority=true",
    "fifo:priority=class",
    "srtf:by=holding",
    "las:quantum=20s",
    "las:dims=1,quantum=7s",
    "las:quantum=0",
    "tiresias:limits=30/200",
    "tiresias:limits=10/60,promote=2",
    "gittins:window=10",
    "drf:by=user",
];
const DISCIPLINES: &[&str] = &[
    "strict",
    "backfill",
    "backfill:patience=30s",
    "easy",
    "easy:patience=20s,depth=2",
    "preempt",
    "preempt:min_run=10s",
    "replan",
    "share",
    "share:preempt=true",
    "auction:lease=20s",
    "auction:lease=45s,f=0,min_lease=0",
];
const GROUPINGS: &[&str] = &[
    "muri",
    "muri:size=2",
    "muri:unequal=true",
    "muri:size=3,stable=0.1,unequal=true",
    "pair",
    "pair:by=ffs",
    "pair:by=ffs,consolidate=false",
    "pair:by=antman",
    "pair:mps=true,consolidate=false",
];
const SIZINGS: &[&str] = &[
    "proportional",
    "greedy",
    "tune",
    "tune:enough=0",
    "tune:by=speed,enough=60",
    "opt",
    "opt:budget=16,weight=jobs",
];
const ADMISSIONS: &[&str] = &[
    "feasible",
    "load:factor=0.5",
    "load",
    "caps:tenant=4",
    "caps:user=2",
    "caps:tenant=8,user=4",
];
const PLACEMENTS: &[&str] = &[
    "consolidate",
    "consolidate:strict=true",
    "spread",
    "first-free",
    "random:seed=7",
    "rack-aware",
];
/// Placements under which a job that could run may wait indefinitely, by design.
const UNFAIR_PLACEMENTS: &[&str] = &["rack-aware:strict=true", "blox-scatter"];

fn some_of(parts: &'static [&'static str], weight: f64) -> impl Strategy<Value = Option<String>> {
    weighted(weight, select(parts).prop_map(str::to_owned))
}

/// Generates every preset without replaced parts.
pub fn presets() -> impl Strategy<Value = PolicyText> {
    let names: Vec<&'static str> = dovetail_policies::presets().iter().map(|p| p.name).collect();
    select(names).prop_map(PolicyText::preset)
}

/// Returns the texts of every registered order, and of some with other settings.
pub fn order_texts() -> Vec<&'static str> {
    let registered = ORDERS.iter().map(|entry| entry.name);
    registered.chain(ORDER_SETTINGS.iter().copied()).collect()
}

/// Generates every registered order, with and without knobs.
pub fn orders() -> impl Strategy<Value = String> {
    select(order_texts()).prop_map(str::to_owned)
}

/// Removes a discipline that does not work with the other parts, so that another one is chosen for them.
fn composed(mut policy: PolicyText) -> PolicyText {
    if build(&policy.preset, &policy.overrides).is_err() {
        policy.overrides.discipline = None;
    }
    policy
}

/// Generates presets with random parts, under which every job that can run ends.
pub fn steady_policies() -> impl Strategy<Value = PolicyText> {
    let sizing = prop_oneof![3 => Just(None), 1 => elastic().prop_map(Some)];
    (
        presets(),
        weighted(0.6, orders()),
        some_of(DISCIPLINES, 0.6),
        some_of(ADMISSIONS, 0.4),
        some_of(PLACEMENTS, 0.7),
        sizing,
    )
        .prop_map(
            |(preset, order, discipline, admission, placement, sizing)| PolicyText {
                overrides: Overrides {
                    // Elastic jobs are not generated together with jobs that share GPUs.
                    grouping: sizing.as_ref().map(|_| "none".to_owned()),
                    order,
                    discipline,
                    admission,
                    placement,
                    sizing,
                    ..Overrides::default()
                },
                ..preset
            },
        )
        .prop_map(composed)
}

/// Generates policies that give CPU and memory by need, with random orders, disciplines and placements.
pub fn sizing_policies() -> impl Strategy<Value = PolicyText> {
    let walks: Vec<&str> = DISCIPLINES
        .iter()
        .copied()
        .filter(|d| !d.starts_with("share"))
        .collect();
    let places = [PLACEMENTS, &["complement"]].concat();
    (
        select(SIZINGS),
        weighted(0.8, orders()),
        select(walks),
        weighted(0.7, select(places)),
    )
        .prop_map(|(sizing, order, discipline, placement)| PolicyText {
            overrides: Overrides {
                order,
                discipline: Some(discipline.to_owned()),
                sizing: Some(sizing.to_owned()),
                placement: placement.map(str::to_owned),
                ..Overrides::default()
            },
            ..PolicyText::preset("fifo")
        })
}

/// Generates policies under which jobs share GPUs, with random orders and placements.
pub fn sharing_policies() -> impl Strategy<Value = PolicyText> {
    (
        weighted(0.8, orders()),
        select(GROUPINGS),
        any::<bool>(),
        some_of(PLACEMENTS, 0.5),
    )
        .prop_map(|(order, grouping, preempt, placement)| {
            let walk = match (grouping.starts_with("pair"), preempt) {
                (false, _) => "replan",
                (true, false) => "share",
                (true, true) => "share:preempt=true,min_left=5s",
            };
            PolicyText {
                overrides: Overrides {
                    order,
                    discipline: Some(walk.to_owned()),
                    grouping: Some(grouping.to_owned()),
                    placement,
                    ..Overrides::default()
                },
                ..PolicyText::preset("fifo")
            }
        })
}

/// Generates all policies, including those under which jobs may wait indefinitely.
pub fn policies() -> impl Strategy<Value = PolicyText> {
    let unfair = (steady_policies(), any::<bool>(), select(UNFAIR_PLACEMENTS)).prop_map(
        |(policy, blox, placement)| {
            let overrides = Overrides {
                admission: Some("accept-all".to_owned()),
                discipline: if blox && policy.overrides.sizing.is_none() {
                    Some("blox".to_owned())
                } else {
                    policy.overrides.discipline
                },
                placement: Some(placement.to_owned()),
                ..policy.overrides
            };
            composed(PolicyText { overrides, ..policy })
        },
    );
    prop_oneof![4 => steady_policies(), 1 => unfair, 1 => sharing_policies(), 1 => sizing_policies()]
}

fn elastic() -> impl Strategy<Value = String> {
    select(
        &[
            "elastic:interval=10s",
            "elastic:interval=0",
            "optimus:interval=10s",
        ][..],
    )
    .prop_map(str::to_owned)
}
