//! Promises of the engine over random clusters, jobs, policies and histories.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_engine::{Engine, Snapshot};
use dovetail_model::{Event, JobId};
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
