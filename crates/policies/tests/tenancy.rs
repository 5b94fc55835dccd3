//! Properties of quotas: a tenant gets what it is guaranteed, whatever other tenants do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_engine::{Engine, Job, Snapshot};
use dovetail_model::TenantId;
use dovetail_policies::{Overrides, build};
use dovetail_testkit::any::{Fit, cases, histories_of, orders, plain, pools, presets};
use dovetail_testkit::{PolicyText, Scenario, World, check, find_needless_preemption, replay};
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

/// Generates orders and disciplines under shares that may exceed the cluster; the ledger must be consistent all the same.
fn under_quota() -> impl Strategy<Value = PolicyText> {
    let disciplines = select(&["preempt", "preempt:min_run=7s", "backfill", "strict", "replan"][..]);
    (orders(), disciplines, [0..9u32, 0..9, 0..9], 0..9u32).prop_map(
        |(order, discipline, [a, b, c], borrow)| {
            policy(
                order,
                discipline,
                format!("quota:default={a},x={b}+{borrow},y={c}+0"),
            )
        },
    )
}

/// Generates orders under disciplines that preempt.
fn preempting() -> impl Strategy<Value = PolicyText> {
    let disciplines = select(&["preempt", "replan"][..]);
    (orders(), disciplines).prop_map(|(order, discipline)| policy(order, discipline, String::new()))
}

/// Makes every third job a borrower.
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

/// Returns jobs that wait although their tenants are guaranteed enough GPUs for them.
fn needlessly_waiting(engine: &Engine, shares: &BTreeMap<TenantId, u32>) -> Vec<String> {
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

/// Generates every preset that works with a quota.
fn presets_under_quota() -> impl Strategy<Value = PolicyText> {
    let shares = ([0..9u32, 0..9, 0..9], 0..9u32);
    (presets(), shares).prop_filter_map(
        "the preset does not work with a quota",
        |(mut policy, ([a, b, c], borrow))| {
            policy.overrides.tenancy = Some(format!("quota:default={a},x={b}+{borrow},y={c}"));
            policy.overrides.tenants = TENANTS.map(str::to_owned).to_vec();
            build(&policy.preset, &policy.overrides).is_ok().then_some(policy)
        },
    )
}

#[test]
fn a_queued_borrower_waits_for_running_ones() {
    for discipline in ["preempt", "replan"] {
        check(
            &format!(
                "cluster 1x8
                 policy srtf discipline={discipline} tenancy=quota:x=4,y=4
                 0 submit a gpus=8 work=100s tenant=y priority=-1
                 10 submit b gpus=4 work=10s tenant=x priority=-1
                 20 submit c gpus=2 work=10s tenant=y priority=-1"
            ),
            "0 launch a on 0:[0-7]
             100 done a
             100 launch b on 0:[0-3]
             100 launch c on 0:[4-5]
             110 done b
             110 done c",
        );
    }
}

proptest! {
    #![proptest_config(cases(192))]

    #[test]
    fn under_every_preset_borrowers_are_preempted_only_for_guaranteed_jobs(
        history in histories_of(presets_under_quota(), 25, Fit::Any).prop_map(with_borrowers),
    ) {
        let mut world = World::new(&history);
        let preempted = find_needless_preemption(&mut world);
        prop_assert_eq!(preempted, None, "at {:?}\n{}", world.now(), world.trace());
    }

    #[test]
    fn the_ledger_of_a_quota_is_consistent_after_every_step(
        history in histories_of(under_quota(), 25, Fit::Any),
        chaos: Option<u64>,
    ) {
        let mut history = with_borrowers(history);
        history.behaviour.chaos = chaos;
        run(&history);
    }

    #[test]
    fn a_snapshot_under_a_quota_continues_like_the_original(
        history in histories_of(under_quota(), 20, Fit::Any),
        cut: prop::sample::Index,
    ) {
        let history = with_borrowers(history);
        let world = run(&history);
        let cut = cut.index(world.calls().len());
        let mut original = history.engine();
        replay(&mut original, &world.calls()[..cut])?;
        let snapshot: Snapshot = serde_json::from_str(&text(&original)).unwrap();
        let mut restored = Engine::restore(snapshot, history.policy.build().0).unwrap();
        prop_assert_eq!(restored.check(), Ok(()));
        replay(&mut original, &world.calls()[cut..])?;
        replay(&mut restored, &world.calls()[cut..])?;
        prop_assert_eq!(text(&restored), text(&original));
    }

    /// Holds on a cluster of one node, where GPUs cannot be fragmented.
    #[test]
    fn a_job_within_its_guarantee_never_waits_for_borrowers(
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
            let waiting = needlessly_waiting(&world.engine, &shares);
            prop_assert!(waiting.is_empty(), "{waiting:?} waits\n{}", world.trace());
        }
    }
}
