//! A draft that is rolled back leaves no trace: two engines take the same decisions, and one of them makes changes in
//! between and rolls them back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_engine::{Discipline, Part, Round};
use dovetail_model::{Allocation, NodeId, Share, Time};
use dovetail_policies::registry::{self, Kind};
use dovetail_testkit::any::{Fit, cases, histories, histories_of, sizing_policies};
use dovetail_testkit::{Scenario, World};
use proptest::prelude::*;

/// Walks like `inner` at every other decision; in between it does nothing, or (`tries`) makes changes and rolls them back.
#[derive(Debug, Clone)]
struct Alternating {
    inner: Box<dyn Discipline>,
    tries: bool,
    walks: u32,
}

impl Part for Alternating {
    fn name(&self) -> String {
        "alternating".to_owned()
    }
}

impl Discipline for Alternating {
    fn walk(&mut self, round: &mut Round<'_>) {
        self.walks += 1;
        if self.walks.is_multiple_of(2) {
            return self.inner.walk(round);
        }
        round.wake_at(round.now() + Time::from_secs(1));
        if self.tries {
            try_out(round);
        }
    }

    fn needs_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}

/// Returns the free CPU and memory of each node.
fn free(round: &Round<'_>) -> BTreeMap<NodeId, Share> {
    let nodes = round.cluster().nodes();
    nodes
        .map(|(id, n)| (id, Share::new(n.free_cpu_milli, n.free_memory_mib)))
        .collect()
}

/// Adds what an allocation has.
fn with(mut free: BTreeMap<NodeId, Share>, allocation: Option<&Allocation>) -> BTreeMap<NodeId, Share> {
    for part in allocation.into_iter().flat_map(|a| &a.shares) {
        let here = free.get_mut(&part.node).unwrap();
        *here = here.plus(Share::new(part.cpu_milli, part.memory_mib));
    }
    free
}

/// Starts jobs that fit, evicts holders behind them, and rolls everything back, the later half first. The sum of what is
/// free and what is held stays the same.
fn try_out(round: &mut Round<'_>) {
    let before = free(round);
    let start = round.checkpoint();
    let mut middle = None;
    for i in 0..20 {
        let Some(candidate) = round.next_queued() else {
            break;
        };
        while round.start(&candidate).is_err() {
            let Some(victim) = round.last_holder_behind(&candidate, |_| true) else {
                break;
            };
            let freed = with(free(round), round.job(victim).allocation.as_ref());
            round.evict(victim);
            assert_eq!(free(round), freed, "everything the victim held is free");
        }
        if i == 5 {
            middle = Some(round.checkpoint());
        }
        if i > 5 && round.job(candidate.job).allocation.is_none() {
            break;
        }
    }
    if let Some(middle) = middle {
        round.rollback(middle);
    }
    round.rollback(start);
    assert_eq!(free(round), before, "the rollback restores what was free");
}

/// Returns a world with an alternating discipline.
fn alternating(scenario: &Scenario, tries: bool) -> World {
    let mut policy = scenario.policy.build().0;
    let inner = registry::build(Kind::Discipline, registry::DISCIPLINES, "preempt").unwrap();
    policy.discipline = Box::new(Alternating {
        inner,
        tries,
        walks: 0,
    });
    let mut world = World::new(scenario);
    world.engine = dovetail_engine::Engine::with_cluster(policy, scenario.clock, &scenario.cluster);
    world
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn a_rolled_back_draft_leaves_no_trace(history in histories(20, Fit::Any)) {
        check_no_trace(history)?;
    }

    #[test]
    fn a_rolled_back_draft_restores_cpu_and_memory(history in histories_of(sizing_policies(), 20, Fit::Any)) {
        check_no_trace(history)?;
    }
}

fn check_no_trace(mut history: Scenario) -> Result<(), TestCaseError> {
    // A random placement advances its generator even in a draft; all other placements are stateless.
    history.policy.overrides.placement = Some("consolidate".to_owned());
    let (mut plain, mut trying) = (alternating(&history, false), alternating(&history, true));
    for _ in 0..400 {
        let (one, two) = (plain.step(), trying.step());
        prop_assert_eq!(one, two);
        let text = |world: &World| serde_json::to_string(&world.engine).unwrap();
        prop_assert_eq!(text(&plain), text(&trying), "at {:?}", plain.now());
        if !one {
            break;
        }
    }
    Ok(())
}
