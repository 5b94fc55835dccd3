//! Random clusters, workloads, policies and histories for property tests.
//!
//! Random scenarios print as stories, so what a property finds can be pasted into a test that stays.

mod clusters;
mod histories;
mod jobs;
mod policies;

use proptest::test_runner::{Config, RngSeed};

pub use clusters::{clusters, pools};
pub use histories::{histories, histories_of, plain};
pub use jobs::{Fit, on_grid, workloads};
pub use policies::{orders, policies, presets, sharing_policies, sizing_policies, steady_policies};

/// So many cases, the same ones in every run, and no files left behind: a case that fails becomes a named test.
///
/// `PROPTEST_CASES` and `PROPTEST_RNG_SEED` ask for more, and for others.
pub fn cases(cases: u32) -> Config {
    let asked = Config::default();
    let said = std::env::var_os("PROPTEST_CASES").is_some();
    Config {
        cases: if said { asked.cases } else { cases },
        rng_seed: match asked.rng_seed {
            RngSeed::Random => RngSeed::Fixed(1),
            fixed => fixed,
        },
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..asked
    }
}
