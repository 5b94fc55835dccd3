//! Guarantees of the disciplines, checked against simple reference implementations.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_engine::job::Stage;
use dovetail_engine::{Job, Rank};
use dovetail_model::{Allocation, JobKey, Time};
use dovetail_policies::Overrides;
use dovetail_testkit::any::{cases, orders, plain, pools};
use dovetail_testkit::{PolicyText, Scenario, World};
use proptest::prelude::*;

fn with(preset: &str, order: Option<String>, discipline: Option<&str>) -> PolicyText {
    PolicyText {
        preset: preset.to_owned(),
        overrides: Overrides {
            order,
            discipline: discipline.map(str::to_owned),
            ..Overrides::default()
        },
    }
}

/// Jobs that hold GPUs.
fn holders(world: &World) -> Vec<JobKey> {
    let holding = world.engine.jobs().filter(|j| j.allocation.is_some());
    holding.map(|j| j.spec.id).collect()
}

/// Orders whose keys do not depend on what is free: those of `tetris` change as soon as a job starts.
fn steady_orders() -> impl Strategy<Value = String> {
    orders().prop_filter("keys change with what is free", |order| order != "tetris")
}

/// Jobs that a walk over the empty pool would choose: best first, passing over jobs that do not fit.
fn greedy(world: &World) -> Vec<JobKey> {
    let (engine, now) = (&world.engine, world.now());
    let rank = |job: &Job| {
        let key = engine.policy().order.key_under_load(job, &engine.load(), now);
        Rank {
            band: key.band,
            value: key.value(now),
            place: job.spec.place,
            job: job.spec.id,
        }
    };
    let mut queue: Vec<(Rank, u32)> = engine
        .jobs()
        .filter(|j| j.stage == Stage::Admitted)
        .map(|j| (rank(j), j.spec.gpus))
        .collect();
    queue.sort_unstable();
    let mut free = world.scenario().cluster.gpus();
    let mut chosen = Vec::new();
    for (rank, gpus) in queue {
        if gpus <= free {
            free -= gpus;
            chosen.push(rank.job);
        }
    }
    chosen.sort_unstable();
    chosen
}

/// The latest time at which the head of the queue can start, from the exact ends of the jobs that ran before this moment or
/// are ahead of it. Jobs that passed it just now must not count.
fn reservation(world: &World) -> Option<(JobKey, Time)> {
    let (engine, now) = (&world.engine, world.now());
    let waiting = engine.jobs().filter(|j| j.is_queued());
    let head = waiting.min_by_key(|j| (j.sort_key.value(now), j.spec.id))?;
    let is_ahead = |j: &&Job| j.held_since < now || j.spec.id < head.spec.id;
    let running = engine.jobs().filter(|j| j.allocation.is_some()).filter(is_ahead);
    let mut ends: Vec<(Time, u32)> = running
        .map(|j| (j.expected_end(now).unwrap(), j.width()))
        .collect();
    ends.sort_unstable();
    let used: u32 = ends.iter().map(|(_, gpus)| gpus).sum();
    let mut free = engine.cluster().total_gpus(None) - used;
    let enough = ends.into_iter().find(|(_, gpus)| {
        free += gpus;
        free >= head.spec.gpus
    });
    Some((head.spec.id, enough?.0))
}

const LEASES: &[&str] = &[
    "themis:lease=20s",
    "themis:lease=60s,f=0",
    "themis:lease=7s,f=1,min_lease=1",
    "themis:lease=30s,gather=false",
];

/// The end of every lease, and the allocation that its holder has.
fn leases(world: &World) -> BTreeMap<JobKey, (Time, Option<Allocation>)> {
    let saved = world.engine.policy().discipline.save();
    let ends: BTreeMap<JobKey, Time> = serde_json::from_value(saved["leases"].clone()).unwrap();
    let held = |(id, end)| Some((id, (end, world.engine.job(id)?.allocation.clone())));
    ends.into_iter().filter_map(held).collect()
}

/// Jobs that ask for GPUs only, no CPU or memory, on one pool.
fn scenarios(policy: impl Strategy<Value = PolicyText>) -> impl Strategy<Value = Scenario> {
    plain(pools(), policy, 40, false).prop_map(|mut scenario| {
        for story in &mut scenario.jobs {
            (story.job.cpu_milli_per_gpu, story.job.memory_mib_per_gpu) = (0, 0);
        }
        scenario
    })
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn preemption_runs_the_jobs_a_walk_over_the_empty_pool_would_choose(
        scenario in scenarios(steady_orders().prop_map(|o| with("srsf", Some(o), None))),
    ) {
        let mut world = World::new(&scenario);
        let mut decisions = 0;
        while world.step() {
            if std::mem::replace(&mut decisions, world.engine.decisions()) != world.engine.decisions() {
                prop_assert_eq!(holders(&world), greedy(&world), "at {:?}\n{}", world.now(), world.trace());
            }
        }
        prop_assert!(decisions > 0);
    }

    #[test]
    fn the_engine_wakes_when_a_sort_key_expires(
        scenario in scenarios(steady_orders().prop_map(|o| with("srsf", Some(o), None))),
    ) {
        let mut world = World::new(&scenario);
        while world.step() {
            let (engine, now) = (&world.engine, world.now());
            // While no job waits, the order of the queue does not matter.
            if engine.idle().0 == 0 {
                continue;
            }
            let queued = engine.jobs().filter(|j| j.stage == Stage::Admitted && (j.holds_gpus() || j.is_queued()));
            if let Some(until) = queued.filter_map(|j| engine.policy().order.key(j, now).until).min() {
                let in_time = engine.wake_at().is_some_and(|at| at <= until);
                prop_assert!(in_time, "{:?} after {:?} at {:?}", engine.wake_at(), until, now);
            }
        }
    }

    #[test]
    fn easy_never_delays_the_head_beyond_its_reservation(
        scenario in scenarios(Just(with("fifo-easy", None, None))),
    ) {
        let mut world = World::new(&scenario);
        let mut reserved: BTreeMap<JobKey, Time> = BTreeMap::new();
        while world.step() {
            for job in holders(&world) {
                if let Some(at) = reserved.remove(&job) {
                    prop_assert!(world.now() <= at, "job {} was to start at {:?}\n{}", job, at, world.trace());
                }
            }
            if let Some((head, at)) = reservation(&world) {
                reserved.entry(head).or_insert(at);
            }
        }
        prop_assert!(reserved.is_empty());
    }

    #[test]
    fn without_preemption_no_job_is_stopped(
        scenario in (orders(), prop::sample::select(&["strict", "backfill", "backfill:patience=30s", "easy"][..]))
            .prop_flat_map(|(order, discipline)| scenarios(Just(with("fifo", Some(order), Some(discipline))))),
    ) {
        let mut world = World::new(&scenario);
        world.run();
        prop_assert!(!world.trace().contains("stop"), "{}", world.trace());
    }

    #[test]
    fn no_job_is_stopped_during_its_lease(
        scenario in scenarios(prop::sample::select(LEASES).prop_map(PolicyText::preset)),
    ) {
        let mut world = World::new(&scenario);
        let mut before = BTreeMap::new();
        while world.step() {
            let now = world.now();
            for (id, (end, place)) in &before {
                let Some(job) = world.engine.job(*id).filter(|_| *end > now) else { continue };
                prop_assert_eq!(&job.allocation, place, "job {} at {:?}\n{}", id, now, world.trace());
            }
            before = leases(&world);
        }
    }

    #[test]
    fn strict_starts_jobs_in_order_of_submission(scenario in scenarios(Just(PolicyText::preset("fifo")))) {
        let mut world = World::new(&scenario);
        world.run();
        let trace = world.trace();
        let launched: Vec<&str> = trace.lines().filter_map(|l| l.split_once("launch ")?.1.split(' ').next()).collect();
        let came: Vec<String> = scenario.jobs.iter().map(|j| j.name()).collect();
        prop_assert_eq!(launched, came);
    }
}
