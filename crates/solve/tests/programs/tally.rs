//! Our solver beside HiGHS, over many programs.

use std::time::Duration;

use dovetail_solve::choice::{Choice, Kind, choose};
use rustix::time::{ClockId, clock_gettime};

use crate::highs;

/// HiGHS has so long for a program.
const LIMIT: Duration = Duration::from_secs(10);

/// What came out of the programs of one sort.
#[derive(Default)]
pub(crate) struct Tally {
    programs: u32,
    /// Programs of which we say that our answer is best, and HiGHS that its own is.
    proven: [u32; 2],
    seconds: [f64; 2],
    /// How far our answers are below those of HiGHS at most, in millionths.
    behind_ppm: u64,
    /// How far our bounds are above the linear program at most, in millionths.
    above_ppm: f64,
}

impl Tally {
    /// Solves a program both ways. What both prove is the same; what one proves, the other does not beat; and no bound
    /// of ours is below the linear program.
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

    #[allow(
        clippy::print_stdout,
        reason = "the figures are what `make test-highs` is for"
    )]
    pub(crate) fn report(&self, what: &str) {
        let each = self.seconds.map(|s| s / f64::from(self.programs.max(1)) * 1e3);
        println!(
            "{what}: {} programs; proven best: ours {}, HiGHS {}; behind HiGHS at most {} ppm; bound above the linear \
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
