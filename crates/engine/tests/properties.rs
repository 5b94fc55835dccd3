//! Properties of the engine over random clusters, jobs, policies and histories.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_engine::{CheckError, Engine, Snapshot};
use dovetail_model::{Event, JobHistory, JobKey, RestoredJob};
use dovetail_testkit::any::{Fit, cases, histories, histories_of, sizing_policies, steady_policies};
use dovetail_testkit::{Call, Scenario, StoryEvent, World, replay};
use proptest::prelude::*;

fn text(engine: &Engine) -> String {
    serde_json::to_string(engine).unwrap()
}

/// Saves an engine as text and restores it.
fn through_text(engine: &Engine, scenario: &Scenario) -> Engine {
    let snapshot: Snapshot = serde_json::from_str(&text(engine)).unwrap();
    Engine::restore(snapshot, scenario.policy.build().0).unwrap()
}

/// Runs the scenario to its end. The world checks the engine after every step, and counts GPUs independently.
fn run(scenario: &Scenario) -> World {
    let mut world = World::new(scenario);
    world.run();
    world
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn no_gpu_is_allocated_twice_and_gangs_are_complete(history in histories(30, Fit::Any)) {
        run(&history);
    }

    #[test]
    fn no_node_allocates_more_cpu_or_memory_than_it_has(history in histories_of(sizing_policies(), 30, Fit::Any)) {
        run(&history);
    }

    #[test]
    fn every_job_ends_when_cpu_and_memory_are_given_by_need(history in histories_of(sizing_policies(), 20, Fit::Feasible)) {
        let world = run(&history);
        let cancelled = |job| history.events.iter().any(|(_, h)| *h == StoryEvent::Cancel(job));
        for job in (0..history.jobs.len() as u32).map(JobKey) {
            prop_assert!(cancelled(job) || world.outcome(job).is_some(), "job {} never ends\n{}", job, world.trace());
        }
    }

    #[test]
    fn a_network_that_delays_repeats_and_reorders_messages_breaks_no_invariant(
        mut history in histories(20, Fit::Any),
        seed: u64,
    ) {
        history.behaviour.chaos = Some(seed);
        history.behaviour.profiles_change = seed % 2 == 0;
        run(&history);
    }

    #[test]
    fn every_job_that_can_run_ends(mut history in histories_of(steady_policies(), 20, Fit::Feasible), chaos: Option<u64>) {
        history.behaviour.chaos = chaos;
        let world = run(&history);
        let cancelled = |job| history.events.iter().any(|(_, h)| *h == StoryEvent::Cancel(job));
        for job in (0..history.jobs.len() as u32).map(JobKey) {
            prop_assert!(cancelled(job) || world.outcome(job).is_some(), "job {} never ends\n{}", job, world.trace());
        }
        prop_assert_eq!(world.engine.jobs().count(), 0);
        prop_assert_eq!(world.engine.cluster().free_gpus(None), history.cluster.gpus());
        prop_assert_eq!(world.engine.cluster().lingering_gpus(), 0);
    }

    #[test]
    fn the_same_calls_give_the_same_commands_and_the_same_bytes(history in histories(20, Fit::Any)) {
        let (one, two) = (run(&history), run(&history));
        prop_assert_eq!(one.calls(), two.calls());
        prop_assert_eq!(text(&one.engine), text(&two.engine));
        let mut again = history.engine();
        replay(&mut again, one.calls())?;
        prop_assert_eq!(text(&again), text(&one.engine));
    }

    #[test]
    fn a_restored_snapshot_behaves_like_the_original(
        mut history in histories(25, Fit::Any),
        chaos: Option<u64>,
        cut: prop::sample::Index,
    ) {
        history.behaviour.chaos = chaos;
        let world = run(&history);
        let cut = cut.index(world.calls().len());
        let mut original = history.engine();
        replay(&mut original, &world.calls()[..cut])?;
        let mut restored = through_text(&original, &history);
        prop_assert_eq!(restored.check(), Ok(()));
        prop_assert_eq!(text(&restored), text(&original));
        for call in &world.calls()[cut..] {
            prop_assert_eq!(restored.wake_at(), original.wake_at());
            for engine in [&mut restored, &mut original] {
                replay(engine, std::slice::from_ref(call))?;
            }
        }
        prop_assert_eq!(restored.check(), Ok(()));
        prop_assert_eq!(text(&restored), text(&original));
    }

    #[test]
    fn a_restored_snapshot_has_the_same_index_of_free_gpus(history in histories(20, Fit::Any), cut: prop::sample::Index) {
        let world = run(&history);
        let mut original = history.engine();
        replay(&mut original, &world.calls()[..cut.index(world.calls().len())])?;
        let restored = through_text(&original, &history);
        let index = |engine: &Engine| {
            let cluster = engine.cluster();
            let kinds = cluster.types(None).map(|t| (cluster.free_gpus(Some(t)), cluster.total_gpus(Some(t))));
            let kinds: Vec<(u32, u32)> = kinds.filter(|(_, total)| *total > 0).collect();
            let free: Vec<u32> = cluster.nodes_with_any_free().map(|(id, _)| id.0).collect();
            let whole = (cluster.free_gpus(None), cluster.total_gpus(None), cluster.fragmented_gpus());
            (kinds, free, whole, cluster.lingering_gpus(), cluster.most_free(None))
        };
        prop_assert_eq!(index(&restored), index(&original));
    }

    #[test]
    fn a_clone_is_independent_of_the_original(history in histories(20, Fit::Any), cut: prop::sample::Index) {
        let world = run(&history);
        let cut = cut.index(world.calls().len());
        let mut original = history.engine();
        replay(&mut original, &world.calls()[..cut])?;
        let mut clone = original.clone();
        for job in 0..history.jobs.len() {
            clone.handle(clone.now(), Event::Cancelled { job: JobKey(job as u32) });
        }
        while clone.poll().is_some() {}
        replay(&mut original, &world.calls()[cut..])?;
        prop_assert_eq!(text(&original), text(&world.engine));
    }

    #[test]
    fn explain_and_check_change_nothing(history in histories(15, Fit::Any)) {
        let mut world = World::new(&history);
        while world.step() {
            let before = text(&world.engine);
            for job in 0..=history.jobs.len() {
                world.engine.explain(JobKey(job as u32));
            }
            prop_assert_eq!(world.engine.check(), Ok(()));
            prop_assert_eq!(text(&world.engine), before);
        }
    }

    #[test]
    fn an_old_or_repeated_event_changes_nothing(history in histories(15, Fit::Any)) {
        let world = run(&history);
        let mut engine = world.engine.clone();
        let before = text(&engine);
        for call in world.calls() {
            if let Call::Handle(_, event @ (Event::Started { .. } | Event::Stopped { .. } | Event::Exited { .. }
                | Event::Submitted(_) | Event::Cancelled { .. })) = call
            {
                let is_current = match event {
                    Event::Submitted(spec) => engine.job(spec.id).is_some(),
                    Event::Cancelled { job } => engine.job(*job).is_some(),
                    _ => false,
                };
                if !is_current {
                    engine.handle(engine.now(), event.clone());
                }
            }
        }
        while engine.poll().is_some() {}
        prop_assert_eq!(text(&engine), before);
    }
}

fn failed(error: CheckError) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

/// Builds a new engine from what a driver would find: the nodes, the running jobs and the queued ones.
fn rebuilt(world: &World, scenario: &Scenario) -> Result<Engine, CheckError> {
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
        let history = JobHistory {
            held: job.attained(now),
            gpu_time: job.gpu_time(now),
            ..JobHistory::default()
        };
        let holds = job
            .allocation
            .clone()
            .filter(|_| job.holds_gpus())
            .map(|a| (job.attempt, a));
        let restored = RestoredJob {
            spec: job.spec.clone(),
            history,
            holds,
            stopping: None,
        };
        engine.handle(now, Event::Restored(Box::new(restored)));
        engine.check()?;
    }
    Ok(engine)
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn running_jobs_are_adopted_where_they_run(history in histories(20, Fit::Any), steps in 1_usize..40) {
        let mut world = World::new(&history);
        for _ in 0..steps {
            world.step();
        }
        // Jobs are adopted one by one, so the second job of a shared GPU finds it in use.
        prop_assume!(!world.engine.policy().grouping.shares());
        let rebuilt = rebuilt(&world, &history).map_err(failed)?;
        for job in world.engine.jobs() {
            let again = rebuilt.job(job.spec.id).unwrap();
            let before = job.allocation.as_ref().filter(|_| job.holds_gpus());
            let gpus = |a: &dovetail_model::Allocation| -> Vec<_> {
                a.shares.iter().map(|s| (s.node, s.gpus.clone())).collect()
            };
            prop_assert_eq!(before.map(gpus), again.allocation.as_ref().map(gpus));
            prop_assert_eq!(job.gpu_time(world.now()), again.gpu_time(world.now()));
        }
    }

    #[test]
    fn unavailable_gpus_cpu_and_memory_are_allocated_to_no_job(
        history in histories(20, Fit::Any),
        unavailable in prop::collection::vec((0_usize..8, 0_u32..9, 0_u32..64_000, 0_u64..200_000), 1..12),
    ) {
        let mut world = World::new(&history);
        let nodes = history.cluster.nodes.len();
        for (node, gpus, cpu_milli, memory_mib) in unavailable {
            world.step();
            world.step();
            let node = dovetail_model::NodeId((node % nodes) as u32);
            let event = Event::NodeUnavailable { node, gpus, cpu_milli, memory_mib };
            world.engine.handle(world.now(), event);
            world.engine.check().map_err(failed)?;
            let copy = through_text(&world.engine, &history);
            copy.check().map_err(failed)?;
            prop_assert_eq!(text(&copy), text(&world.engine));
        }
        world.run();
    }
}
