//! Compares the solver with HiGHS over many programs.

use std::time::Duration;

use dovetail_solve::choice::{Choice, Kind, choose};
use rustix::time::{ClockId, clock_gettime};

use crate::highs;

/// Time limit of HiGHS for a program.
const LIMIT: Duration = Duration::from_secs(10);

/// Results of both solvers over programs of one sort.
#[derive(Default)]
pub(crate) struct Tally {
    programs: u32,
    /// Number of programs whose solution is proven optimal by our solver, and by HiGHS.
    proven: [u32; 2],
    seconds: [f64; 2],
    /// Largest difference by which our gain is below that of HiGHS, in millionths.
    behind_ppm: u64,
    /// Largest difference by which our bound is above the linear program, in millionths.
    above_ppm: f64,
}

impl Tally {
    /// Solves a program with both. Checks that proven optima are equal, that neither exceeds a proven optimum of the other,
    /// and that our bound is not below the linear program.
    pub(crate) fn check(&mut self, kinds: &[Kind], capacity: [u64; 2], budget: usize) -> Choice {
        let (ours, spent) = timed(|| choose(kinds, capacity, budget).expect("the floors fit"));
        self.seconds[0] += spent;
        let (found, spent) = timed(|| highs::choose(kinds, capacity, LIMIT));
        self.seconds[1] += spent;
        self.programs += 1;
        let at = self.programs;
        self.proven[0] += u32::from(ours.exact);
        if let Some(found) = found {
            self.proven[1] += u32::from(found.proven);
            assert!(
                !ours.exact || found.gain <= ours.gain,
                "program {at}: {found:?}, ours {ours:?}"
            );
            assert!(
                !found.proven || ours.gain <= found.gain,
                "program {at}: {found:?}, ours {ours:?}"
            );
            assert!(
                found.gain <= ours.bound,
                "program {at}: {found:?} beyond the bound, ours {ours:?}"
            );
            let behind = u128::from(found.gain.saturating_sub(ours.gain)) * 1_000_000;
            self.behind_ppm = self
                .behind_ppm
                .max((behind / u128::from(found.gain.max(1))) as u64);
        }
        let linear = highs::bound(kinds, capacity).expect("the floors fit");
        assert!(
            ours.bound as f64 >= (linear - 1.0) * (1.0 - 1e-7),
            "program {at}: linear {linear}, ours {ours:?}"
        );
        if !ours.exact || ours.bound > ours.gain {
            let above = (ours.bound as f64 / linear.max(1.0) - 1.0) * 1e6;
            self.above_ppm = self.above_ppm.max(above);
        }
        ours
    }

    #[allow(clippy::print_stdout, reason = "`make test-highs` prints these figures")]
    pub(crate) fn report(&self, title: &str) {
        let each = self.seconds.map(|s| s / f64::from(self.programs.max(1)) * 1e3);
        println!(
            "{title}: {} programs; proven optimal: ours {}, HiGHS {}; behind HiGHS at most {} ppm; bound above the linear \
             program at most {:.1} ppm; CPU each: ours {:.3} ms, HiGHS {:.3} ms",
            self.programs, self.proven[0], self.proven[1], self.behind_ppm, self.above_ppm, each[0], each[1]
        );
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let now = || {
        let spent = clock_gettime(ClockId::ThreadCPUTime);
        spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
    };
    let before = now();
    let done = work();
    (done, now() - before)
}
