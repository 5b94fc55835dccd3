//! Random clusters, workloads, policies and histories for property tests.
//!
//! Random scenarios are printed as stories, so a failing case can be pasted into a regression test.

mod clusters;
mod histories;
mod jobs;
mod policies;

use proptest::test_runner::{Config, RngSeed};

pub use clusters::{clusters, pools};
pub use histories::{histories, histories_of, measured_slowdowns, plain, profiled};
pub use jobs::{Fit, on_grid, workloads};
pub use policies::{
    order_texts, orders, policies, presets, sharing_policies, sizing_policies, steady_policies,
};

/// Returns a configuration for `cases` cases that are the same in every run, without files of failed cases: a failing case
/// becomes a regression test.
///
/// `PROPTEST_CASES` and `PROPTEST_RNG_SEED` select another number of cases, or other cases.
pub fn cases(cases: u32) -> Config {
    let default = Config::default();
    let is_set = std::env::var_os("PROPTEST_CASES").is_some();
    Config {
        cases: if is_set { default.cases } else { cases },
        rng_seed: match default.rng_seed {
            RngSeed::Random => RngSeed::Fixed(1),
            fixed => fixed,
        },
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..default
    }
}
