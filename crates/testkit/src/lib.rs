//! What tests are written with: stories of a few lines, a fake cluster that can misbehave by seed, and random
//! clusters, workloads, policies and histories.
//!
//! A [`Scenario`] is a cluster, a policy and what happens to them. It reads and writes itself as a *story*: random
//! scenarios print as stories, so what a property finds can be pasted into a test that stays.
//!
//! [`check`] is the one door: it tells a story to a [`World`], which drives the engine, and compares the trace.

pub mod any;
mod drive;
mod network;
mod parse;
mod reality;
mod replay;
mod scenario;
mod shared;
mod words;
mod world;

pub use network::Network;
pub use replay::{Op, replay};
pub use scenario::{Happening, Manner, PolicyText, Scenario, StoryJob};
pub use shared::shared;
pub use world::World;

/// Tells the story and compares the trace with the expected one, line by line; indentation does not matter.
///
/// The engine's invariants, and those of the fake cluster, are checked after every step.
///
/// # Panics
/// Shows both traces where they differ, and the broken promise where one is broken.
pub fn check(story: &str, expected: &str) {
    let trace = tell(story);
    let lines = |text: &str| -> Vec<String> {
        let trimmed = text.lines().map(|line| line.trim().to_owned());
        trimmed.filter(|line| !line.is_empty()).collect()
    };
    let (ours, wanted) = (lines(&trace), lines(expected));
    let differs = (0..ours.len().max(wanted.len())).find(|i| ours.get(*i) != wanted.get(*i));
    if let Some(i) = differs {
        let line = |lines: &[String]| lines.get(i).cloned().unwrap_or("(the end)".to_owned());
        panic!(
            "line {} differs:\n  expected: {}\n  is:       {}\n\nthe whole trace:\n{trace}",
            i + 1,
            line(&wanted),
            line(&ours)
        );
    }
}

/// Tells the story and returns its trace.
///
/// # Panics
/// Names the line that cannot be read, or the broken promise.
pub fn tell(story: &str) -> String {
    let scenario: Scenario = story.parse().unwrap_or_else(|e| panic!("{e}\n{story}"));
    let mut world = World::new(&scenario);
    world.run();
    world.trace()
}
