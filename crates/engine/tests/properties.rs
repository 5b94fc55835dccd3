//! Promises of the engine over random clusters, jobs, policies and histories.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_engine::{Engine, Snapshot};
use dovetail_model::{Event, JobId, Past, Returned};
use dovetail_testkit::any::{Fit, cases, histories, histories_of, sizing_policies, steady_policies};
use dovetail_testkit::{Happening, Op, Scenario, World, replay};
use proptest::prelude::*;

fn text(engine: &Engine) -> String {
    serde_json::to_string(engine).unwrap()
}

/// The same engine, through the text of a snapshot.
fn through_text(engine: &Engine, scenario: &Scenario) -> Engine {
    let snapshot: Snapshot = serde_json::from_str(&text(engine)).unwrap();
    Engine::restore(snapshot, scenario.policy.build().0).unwrap()
}

/// Runs the scenario to its end. The world checks the engine after every step, and keeps books of its own.
fn run(scenario: &Scenario) -> World {
    let mut world = World::new(scenario);
    world.run();
    world
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn no_gpu_is_given_twice_and_gangs_are_whole(history in histories(30, Fit::Any)) {
        run(&history);
    }

    #[test]
    fn no_node_gives_more_cpu_or_memory_than_it_has(history in histories_of(sizing_policies(), 30, Fit::Any)) {
        run(&history);
    }

    #[test]
    fn every_job_ends_where_cpu_and_memory_go_by_need(history in histories_of(sizing_policies(), 20, Fit::Feasible)) {
        let world = run(&history);
        let cancelled = |job| history.happenings.iter().any(|(_, h)| *h == Happening::Cancel(job));
        for job in (0..history.jobs.len() as u32).map(JobId) {
            prop_assert!(cancelled(job) || world.ended(job).is_some(), "job {} never ends\n{}", job, world.trace());
        }
    }

    #[test]
    fn a_network_that_delays_repeats_and_reorders_changes_no_promise(
        mut history in histories(20, Fit::Any),
        seed: u64,
    ) {
        history.manner.chaos = Some(seed);
        run(&history);
    }

    #[test]
    fn every_job_that_can_run_ends(mut history in histories_of(steady_policies(), 20, Fit::Feasible), chaos: Option<u64>) {
        history.manner.chaos = chaos;
        let world = run(&history);
        let cancelled = |job| history.happenings.iter().any(|(_, h)| *h == Happening::Cancel(job));
        for job in (0..history.jobs.len() as u32).map(JobId) {
            prop_assert!(cancelled(job) || world.ended(job).is_some(), "job {} never ends\n{}", job, world.trace());
        }
        prop_assert_eq!(world.engine.jobs().count(), 0);
        prop_assert_eq!(world.engine.cluster().free_gpus(None), history.cluster.gpus());
        prop_assert_eq!(world.engine.cluster().lingering_gpus(), 0);
    }

    #[test]
    fn the_same_calls_give_the_same_commands_and_the_same_bytes(history in histories(20, Fit::Any)) {
        let (one, two) = (run(&history), run(&history));
        prop_assert_eq!(one.ops(), two.ops());
        prop_assert_eq!(text(&one.engine), text(&two.engine));
        let mut again = history.engine();
        replay(&mut again, one.ops()).map_err(TestCaseError::fail)?;
        prop_assert_eq!(text(&again), text(&one.engine));
    }

    #[test]
    fn a_snapshot_goes_on_as_the_original_would_have(
        mut history in histories(25, Fit::Any),
        chaos: Option<u64>,
        cut: prop::sample::Index,
    ) {
        history.manner.chaos = chaos;
        let world = run(&history);
        let cut = cut.index(world.ops().len());
        let mut original = history.engine();
        replay(&mut original, &world.ops()[..cut]).map_err(TestCaseError::fail)?;
        let mut restored = through_text(&original, &history);
        prop_assert_eq!(restored.check(), Ok(()));
        prop_assert_eq!(text(&restored), text(&original));
        for op in &world.ops()[cut..] {
            prop_assert_eq!(restored.wake_at(), original.wake_at());
            for engine in [&mut restored, &mut original] {
                replay(engine, std::slice::from_ref(op)).map_err(TestCaseError::fail)?;
            }
        }
        prop_assert_eq!(restored.check(), Ok(()));
        prop_assert_eq!(text(&restored), text(&original));
    }

    #[test]
    fn a_snapshot_has_the_same_books_of_what_is_free(history in histories(20, Fit::Any), cut: prop::sample::Index) {
        let world = run(&history);
        let mut original = history.engine();
        replay(&mut original, &world.ops()[..cut.index(world.ops().len())]).map_err(TestCaseError::fail)?;
        let restored = through_text(&original, &history);
        let books = |engine: &Engine| {
            let cluster = engine.cluster();
            let kinds = cluster.types(None).map(|t| (cluster.free_gpus(Some(t)), cluster.total_gpus(Some(t))));
            let kinds: Vec<(u32, u32)> = kinds.filter(|(_, total)| *total > 0).collect();
            let free: Vec<u32> = cluster.nodes_with_any_free().map(|(id, _)| id.0).collect();
            let whole = (cluster.free_gpus(None), cluster.total_gpus(None), cluster.fragmented_gpus());
            (kinds, free, whole, cluster.lingering_gpus(), cluster.most_free(None))
        };
        prop_assert_eq!(books(&restored), books(&original));
    }

    #[test]
    fn a_clone_lives_its_own_life(history in histories(20, Fit::Any), cut: prop::sample::Index) {
        let world = run(&history);
        let cut = cut.index(world.ops().len());
        let mut original = history.engine();
        replay(&mut original, &world.ops()[..cut]).map_err(TestCaseError::fail)?;
        let mut clone = original.clone();
        for job in 0..history.jobs.len() {
            clone.handle(clone.now(), Event::Cancelled { job: JobId(job as u32) });
        }
        while clone.poll().is_some() {}
        replay(&mut original, &world.ops()[cut..]).map_err(TestCaseError::fail)?;
        prop_assert_eq!(text(&original), text(&world.engine));
    }

    #[test]
    fn looking_changes_nothing(history in histories(15, Fit::Any)) {
        let mut world = World::new(&history);
        while world.step() {
            let before = text(&world.engine);
            for job in 0..=history.jobs.len() {
                world.engine.explain(JobId(job as u32));
            }
            prop_assert_eq!(world.engine.check(), Ok(()));
            prop_assert_eq!(text(&world.engine), before);
        }
    }

    #[test]
    fn an_old_or_repeated_fact_changes_nothing(history in histories(15, Fit::Any)) {
        let world = run(&history);
        let mut engine = world.engine.clone();
        let before = text(&engine);
        for op in world.ops() {
            if let Op::Tell(_, event @ (Event::Started { .. } | Event::Stopped { .. } | Event::Exited { .. }
                | Event::Submitted(_) | Event::Cancelled { .. })) = op
            {
                let lives = match event {
                    Event::Submitted(spec) => engine.job(spec.id).is_some(),
                    Event::Cancelled { job } => engine.job(*job).is_some(),
                    _ => false,
                };
                if !lives {
                    engine.handle(engine.now(), event.clone());
                }
            }
        }
        while engine.poll().is_some() {}
        prop_assert_eq!(text(&engine), before);
    }
}

/// An engine that knows nothing yet is told what a driver would find: the nodes, who runs where, and who waits.
fn found_again(world: &World, scenario: &Scenario) -> Result<Engine, String> {
    let mut engine = Engine::new(scenario.policy.build().0, world.engine.clock());
    let now = world.now();
    for (node, state) in world.engine.cluster().nodes().filter(|(_, n)| n.up) {
        engine.handle(
            now,
            Event::NodeUp {
                node,
                spec: state.spec.clone(),
            },
        );
        if state.draining {
            engine.handle(now, Event::NodeDraining { node });
        }
        engine.check()?;
    }
    for job in world.engine.jobs() {
        let past = Past {
            held: job.attained(now),
            gpu_time: job.gpu_time(now),
            ..Past::default()
        };
        let holds = job
            .allocation
            .clone()
            .filter(|_| job.is_up())
            .map(|a| (job.generation, a));
        let returned = Returned {
            spec: job.spec.clone(),
            past,
            holds,
        };
        engine.handle(now, Event::Returned(Box::new(returned)));
        engine.check()?;
    }
    Ok(engine)
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn whoever_runs_is_found_where_it_runs(history in histories(20, Fit::Any), steps in 1_usize..40) {
        let mut world = World::new(&history);
        for _ in 0..steps {
            world.step();
        }
        // Jobs on one GPU are taken up one by one, and the second finds its GPUs taken.
        prop_assume!(!world.engine.policy().grouping.shares());
        let found = found_again(&world, &history).map_err(TestCaseError::fail)?;
        for job in world.engine.jobs() {
            let again = found.job(job.spec.id).unwrap();
            let before = job.allocation.as_ref().filter(|_| job.is_up());
            let gpus = |a: &dovetail_model::Allocation| -> Vec<_> {
                a.shares.iter().map(|s| (s.node, s.gpus.clone())).collect()
            };
            prop_assert_eq!(before.map(gpus), again.allocation.as_ref().map(gpus));
            prop_assert_eq!(job.gpu_time(world.now()), again.gpu_time(world.now()));
        }
    }

    #[test]
    fn what_is_withheld_is_given_to_nobody(
        history in histories(20, Fit::Any),
        withheld in prop::collection::vec((0_usize..8, 0_u32..9, 0_u32..64_000, 0_u64..200_000), 1..12),
    ) {
        let mut world = World::new(&history);
        let nodes = history.cluster.nodes.len();
        for (node, gpus, cpu_milli, memory_mib) in withheld {
            world.step();
            world.step();
            let node = dovetail_model::NodeId((node % nodes) as u32);
            let event = Event::NodeWithheld { node, gpus, cpu_milli, memory_mib };
            world.engine.handle(world.now(), event);
            world.engine.check().map_err(TestCaseError::fail)?;
            let copy = through_text(&world.engine, &history);
            copy.check().map_err(TestCaseError::fail)?;
            prop_assert_eq!(text(&copy), text(&world.engine));
        }
        world.run();
    }
}
