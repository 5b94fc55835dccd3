//! Tools for tests: stories of a few lines, a fake cluster that misbehaves by seed, and random clusters, workloads, policies
//! and histories.
//!
//! A [`Scenario`] is a cluster, a policy and the events of a test. It is parsed from and printed as a *story*, so a failing
//! case of a property can be pasted into a regression test.
//!
//! [`check`] runs a story in a [`World`], which drives the engine, and compares the trace.

pub mod any;
mod borrowers;
mod command_lines;
mod drive;
mod network;
mod nodes;
mod parse;
mod print;
mod replay;
mod scenario;
mod shared;
mod world;

pub use borrowers::find_needless_preemption;
pub use command_lines::{CommandLine, assert_same_commands, command_line, draws, place_text};
pub use network::Network;
pub use parse::{LineError, StoryError};
pub use replay::{Call, ReplayError, replay};
pub use scenario::{Behaviour, PolicyText, Scenario, StoryEvent, StoryJob};
pub use shared::{shared, skip};
pub use world::World;

/// Runs the story and compares the trace with the expected one, line by line; indentation does not matter.
///
/// The invariants of the engine and of the fake cluster are checked after every step.
///
/// # Panics
/// Panics if the traces differ, or if an invariant does not hold.
pub fn check(story: &str, expected: &str) {
    let trace = trace(story);
    let lines = |text: &str| -> Vec<String> {
        let trimmed = text.lines().map(|line| line.trim().to_owned());
        trimmed.filter(|line| !line.is_empty()).collect()
    };
    let (actual, expected) = (lines(&trace), lines(expected));
    let differs = (0..actual.len().max(expected.len())).find(|i| actual.get(*i) != expected.get(*i));
    if let Some(i) = differs {
        let line = |lines: &[String]| lines.get(i).cloned().unwrap_or("(end of trace)".to_owned());
        panic!(
            "line {} differs:\n  expected: {}\n  actual:   {}\n\nfull trace:\n{trace}",
            i + 1,
            line(&expected),
            line(&actual)
        );
    }
}

/// Runs the story and returns its trace.
///
/// # Panics
/// Panics if a line of the story is invalid, or if an invariant does not hold.
pub fn trace(story: &str) -> String {
    let scenario: Scenario = story.parse().unwrap_or_else(|e| panic!("{e}\n{story}"));
    let mut world = World::new(&scenario);
    world.run();
    world.trace()
}
