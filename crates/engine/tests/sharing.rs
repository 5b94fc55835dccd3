//! Properties of jobs that share GPUs, over random clusters, jobs and histories.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_engine::{Engine, Job, Snapshot};
use dovetail_model::NodeId;
use dovetail_testkit::any::{Fit, cases, histories_of, sharing_policies};
use dovetail_testkit::{Scenario, World, replay};
use proptest::prelude::*;

fn text(engine: &Engine) -> String {
    serde_json::to_string(engine).unwrap()
}

fn histories(most: usize) -> impl Strategy<Value = Scenario> {
    histories_of(sharing_policies(), most, Fit::Any)
}

/// Returns the jobs placed on each GPU.
fn holders(engine: &Engine) -> BTreeMap<(NodeId, u32), Vec<&Job>> {
    let mut holders: BTreeMap<(NodeId, u32), Vec<&Job>> = BTreeMap::new();
    for job in engine.jobs() {
        for share in job.allocation.iter().flat_map(|a| &a.shares) {
            for slot in share.gpus.iter() {
                holders.entry((share.node, slot)).or_default().push(job);
            }
        }
    }
    holders
}

/// Returns the GPUs of a job, without CPU and memory.
fn gpus(job: &Job) -> Vec<(NodeId, Vec<u32>)> {
    let shares = job.allocation.iter().flat_map(|a| &a.shares);
    shares.map(|s| (s.node, s.gpus.iter().collect())).collect()
}

fn check_sharing_terms(engine: &Engine) -> Result<(), TestCaseError> {
    let grouping = &engine.policy().grouping;
    let terms = grouping.terms();
    for ((node, slot), jobs) in holders(engine) {
        let total = engine.cluster().node(node).unwrap().spec.gpu_memory_mib;
        let used: u64 = jobs.iter().map(|j| j.spec.gpu_memory_mib).sum();
        prop_assert!(
            jobs.len() <= terms.max_jobs as usize,
            "{} jobs on {}:{}",
            jobs.len(),
            node,
            slot
        );
        prop_assert!(
            total == 0 || used <= total,
            "{} of {} MiB on {}:{}",
            used,
            total,
            node,
            slot
        );
        if !terms.overlap {
            prop_assert!(
                jobs.iter().all(|j| gpus(j) == gpus(jobs[0])),
                "the members of a group are on different GPUs"
            );
        }
        if grouping.name().contains("antman") {
            let guaranteed = jobs.iter().filter(|j| j.spec.priority >= 0).count();
            prop_assert!(
                guaranteed <= 1,
                "{} guaranteed jobs on {}:{}",
                guaranteed,
                node,
                slot
            );
        }
    }
    for job in engine.jobs() {
        let held = job.allocation.as_ref().map_or(job.spec.gpus, |a| a.gpus());
        prop_assert_eq!(held, job.spec.gpus, "a gang is complete");
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn no_gpu_exceeds_its_limit_of_jobs_or_memory(mut history in histories(25), chaos: Option<u64>) {
        history.behaviour.chaos = chaos;
        history.behaviour.profiles_change = chaos.is_some_and(|seed| seed % 2 == 0);
        let mut world = World::new(&history);
        while world.step() {
            check_sharing_terms(&world.engine)?;
        }
    }

    #[test]
    fn replays_and_restored_snapshots_give_the_same_bytes(history in histories(20), cut: prop::sample::Index) {
        let mut world = World::new(&history);
        world.run();
        let cut = cut.index(world.calls().len());
        let mut original = history.engine();
        replay(&mut original, &world.calls()[..cut])?;
        let snapshot: Snapshot = serde_json::from_str(&text(&original)).unwrap();
        let mut restored = Engine::restore(snapshot, history.policy.build().0).unwrap();
        prop_assert_eq!(restored.check(), Ok(()));
        for engine in [&mut original, &mut restored] {
            replay(engine, &world.calls()[cut..])?;
            prop_assert_eq!(text(engine), text(&world.engine));
        }
    }

    #[test]
    fn every_job_that_can_run_ends(history in histories_of(sharing_policies(), 20, Fit::Feasible)) {
        let mut world = World::new(&history);
        world.run();
        prop_assert_eq!(world.engine.jobs().count(), 0, "{}", world.trace());
        prop_assert_eq!(world.engine.cluster().free_gpus(None), history.cluster.gpus());
        prop_assert_eq!(world.engine.cluster().lingering_gpus(), 0);
    }
}
