//! The promise of a tenancy: what is a tenant's own is there when it wants it, whatever the others do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_engine::{Engine, Job, Snapshot};
use dovetail_model::TenantId;
use dovetail_policies::Overrides;
use dovetail_testkit::any::{Fit, cases, histories_of, orders, plain, pools};
use dovetail_testkit::{PolicyText, Scenario, World, replay};
use proptest::prelude::*;
use proptest::sample::select;

const TENANTS: [&str; 3] = ["default", "x", "y"];

fn policy(order: String, discipline: &str, tenancy: String) -> PolicyText {
    PolicyText {
        preset: "fifo".to_owned(),
        overrides: Overrides {
            order: Some(order),
            discipline: Some(discipline.to_owned()),
            tenancy: Some(tenancy),
            tenants: TENANTS.map(str::to_owned).to_vec(),
            ..Overrides::default()
        },
    }
}

/// Any order and walk under shares that may promise more than there is: the books have to be right all the same.
fn under_quota() -> impl Strategy<Value = PolicyText> {
    let walks = select(&["preempt", "preempt:min_run=7s", "backfill", "strict", "replan"][..]);
    (orders(), walks, [0..9u32, 0..9, 0..9], 0..9u32).prop_map(|(order, walk, [a, b, c], borrow)| {
        policy(order, walk, format!("quota:default={a},x={b}+{borrow},y={c}+0"))
    })
}

/// Any order under a walk that makes others give way.
fn preempting() -> impl Strategy<Value = PolicyText> {
    let walks = select(&["preempt", "replan"][..]);
    (orders(), walks).prop_map(|(order, walk)| policy(order, walk, String::new()))
}

/// Gives every third job a negative priority: it borrows.
fn with_borrowers(mut scenario: Scenario) -> Scenario {
    for (i, story) in scenario.jobs.iter_mut().enumerate() {
        story.job.priority = if i % 3 == 2 { -1 } else { 0 };
    }
    scenario
}

fn run(scenario: &Scenario) -> World {
    let mut world = World::new(scenario);
    world.run();
    world
}

fn text(engine: &Engine) -> String {
    serde_json::to_string(engine).unwrap()
}

/// Jobs that wait although what their tenants are guaranteed has room for them.
fn wronged(engine: &Engine, shares: &BTreeMap<TenantId, u32>) -> Vec<String> {
    let guaranteed = |j: &&Job| j.spec.priority >= 0 && j.stage == dovetail_engine::job::Stage::Admitted;
    let held = |tenant: TenantId| -> u32 {
        let jobs = engine
            .jobs()
            .filter(guaranteed)
            .filter(|j| j.spec.tenant == tenant);
        jobs.map(Job::width).sum()
    };
    let waiting = engine
        .jobs()
        .filter(guaranteed)
        .filter(|j| j.allocation.is_none());
    waiting
        .filter(|j| held(j.spec.tenant) + j.spec.gpus <= shares[&j.spec.tenant])
        .map(|j| format!("job {} of tenant {}", j.spec.id, j.spec.tenant))
        .collect()
}

proptest! {
    #![proptest_config(cases(192))]

    #[test]
    fn the_books_of_a_quota_are_right_after_every_step(
        history in histories_of(under_quota(), 25, Fit::Any),
        chaos: Option<u64>,
    ) {
        let mut history = with_borrowers(history);
        history.behaviour.chaos = chaos;
        run(&history);
    }

    #[test]
    fn a_snapshot_under_a_quota_goes_on_as_the_original_would_have(
        history in histories_of(under_quota(), 20, Fit::Any),
        cut: prop::sample::Index,
    ) {
        let history = with_borrowers(history);
        let world = run(&history);
        let cut = cut.index(world.calls().len());
        let mut original = history.engine();
        replay(&mut original, &world.calls()[..cut]).map_err(TestCaseError::fail)?;
        let snapshot: Snapshot = serde_json::from_str(&text(&original)).unwrap();
        let mut restored = Engine::restore(snapshot, history.policy.build().0).unwrap();
        prop_assert_eq!(restored.check(), Ok(()));
        replay(&mut original, &world.calls()[cut..]).map_err(TestCaseError::fail)?;
        replay(&mut restored, &world.calls()[cut..]).map_err(TestCaseError::fail)?;
        prop_assert_eq!(text(&restored), text(&original));
    }

    /// On a pool, where GPUs are GPUs, nobody below the guarantee is refused because others borrow.
    #[test]
    fn a_guaranteed_job_with_room_never_waits_under_preemption(
        scenario in plain(pools(), preempting(), 25, false),
        cuts in [0..=100u32, 0..=100],
    ) {
        let gpus = scenario.cluster.gpus();
        let (a, b) = (gpus * cuts[0] / 100, gpus * cuts[1] / 100);
        let (a, b) = (a.min(b), a.max(b));
        let shares = [a, b - a, gpus - b];
        let mut scenario = with_borrowers(scenario);
        scenario.policy.overrides.tenancy =
            Some(format!("quota:default={},x={},y={}", shares[0], shares[1], shares[2]));
        let shares = (0..3).map(|i| (TenantId(i), shares[i as usize])).collect();
        let mut world = World::new(&scenario);
        while world.step() {
            let wronged = wronged(&world.engine, &shares);
            prop_assert!(wronged.is_empty(), "{wronged:?} waits\n{}", world.trace());
        }
    }
}
