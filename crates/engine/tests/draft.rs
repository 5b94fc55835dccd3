//! A draft that is rolled back leaves no trace: two engines take the same decisions, and one of them tries things out in
//! between and takes them back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_engine::{Discipline, Part, Round};
use dovetail_model::{Allocation, NodeId, Share, Time};
use dovetail_policies::registry::{self, Kind};
use dovetail_testkit::any::{Fit, cases, histories, histories_of, sizing_policies};
use dovetail_testkit::{Scenario, World};
use proptest::prelude::*;

/// Walks as `inner` does at every other decision; in between it does nothing, or (`tries`) a lot that it takes back.
#[derive(Debug, Clone)]
struct Fickle {
    inner: Box<dyn Discipline>,
    tries: bool,
    walks: u32,
}

impl Part for Fickle {
    fn name(&self) -> String {
        "fickle".to_owned()
    }
}

impl Discipline for Fickle {
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

    fn looks_at_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        true
    }
}

/// The CPU and memory of each node that nobody is meant to hold.
fn free(round: &Round<'_>) -> BTreeMap<NodeId, Share> {
    let nodes = round.cluster().nodes();
    nodes
        .map(|(id, n)| (id, Share::new(n.free_cpu_milli, n.free_memory_mib)))
        .collect()
}

/// The same with what an allocation has.
fn with(mut free: BTreeMap<NodeId, Share>, allocation: Option<&Allocation>) -> BTreeMap<NodeId, Share> {
    for part in allocation.into_iter().flat_map(|a| &a.shares) {
        let here = free.get_mut(&part.node).unwrap();
        *here = here.plus(Share::new(part.cpu_milli, part.memory_mib));
    }
    free
}

/// Starts whoever fits, throws out whoever stands behind, and takes it all back, the later half first. What is free and
/// what is held make the same sum all the time.
fn try_out(round: &mut Round<'_>) {
    let before = free(round);
    let start = round.checkpoint();
    let mut middle = None;
    for i in 0..20 {
        let Some(candidate) = round.next_in_line() else {
            break;
        };
        while round.start(&candidate).is_err() {
            let Some(victim) = round.last_behind(&candidate, |_| true) else {
                break;
            };
            let freed = with(free(round), round.job(victim).allocation.as_ref());
            round.evict(victim);
            assert_eq!(free(round), freed, "all that the victim had is free");
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
    assert_eq!(free(round), before, "nobody has more or less than before");
}

/// The world with its discipline made fickle.
fn fickle(scenario: &Scenario, tries: bool) -> World {
    let mut policy = scenario.policy.build().0;
    let (inner, _) = registry::build(Kind::Discipline, registry::DISCIPLINES, "preempt").unwrap();
    policy.discipline = Box::new(Fickle {
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
    fn what_is_rolled_back_leaves_no_trace(history in histories(20, Fit::Any)) {
        leaves_no_trace(history)?;
    }

    #[test]
    fn shares_are_as_they_were_when_victims_come_back(history in histories_of(sizing_policies(), 20, Fit::Any)) {
        leaves_no_trace(history)?;
    }
}

fn leaves_no_trace(mut history: Scenario) -> Result<(), TestCaseError> {
    // A generator that was asked for a random place has moved on; every other placement keeps no state.
    history.policy.overrides.placement = Some("consolidate".to_owned());
    let (mut plain, mut trying) = (fickle(&history, false), fickle(&history, true));
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
