//! Random clusters, workloads, policies and histories for property tests.
//!
//! Random scenarios print as stories, so what a property finds can be pasted into a test that stays.

mod clusters;
mod histories;
mod jobs;
mod policies;

use proptest::test_runner::Config;

pub use clusters::{clusters, pools};
pub use histories::{histories, incidents, plain};
pub use jobs::{Fit, on_grid, workloads};
pub use policies::{orders, policies, presets, steady_policies};

/// So many cases, and no files left behind: a case that fails becomes a named test.
pub fn cases(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..Config::default()
    }
}
