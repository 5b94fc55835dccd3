//! The distribution of run times when some jobs still run (Kaplan and Meier): leaving those out would make all jobs look
//! shorter than they are.

use dovetail_model::Work;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The share of jobs that are more work than a given amount.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SurvivalCurve {
    /// Work of each job, and whether it has finished; sorted by [`SurvivalCurve::finish`].
    observed: Vec<(Work, bool)>,
    /// Share of jobs that are more work than each of them.
    beyond: Vec<f64>,
}

/// Work that was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draw {
    /// This much.
    Work(Work),
    /// More than this much; how much more is not known.
    Beyond(Work),
}

impl SurvivalCurve {
    /// Adds a job, and whether it has finished.
    pub(crate) fn add(&mut self, observed: (Work, bool)) {
        self.observed.push(observed);
    }

    /// Computes the curve after the last job was added.
    pub(crate) fn finish(&mut self) {
        // At the same amount, jobs that finished come before those that still run.
        self.observed
            .sort_unstable_by_key(|(work, is_finished)| (*work, !*is_finished));
        let count = self.observed.len();
        let mut share = 1.0;
        self.beyond = (0..count)
            .map(|i| {
                if self.observed[i].1 {
                    share *= 1.0 - 1.0 / (count - i) as f64;
                }
                share
            })
            .collect();
    }

    fn position(&self, done: Work) -> usize {
        self.observed.partition_point(|(work, _)| *work <= done)
    }

    /// Returns the number of jobs that were more work.
    pub(crate) fn observed_beyond(&self, done: Work) -> usize {
        self.observed.len() - self.position(done)
    }

    /// Returns the share of jobs that are more work.
    pub(crate) fn share_beyond(&self, done: Work) -> f64 {
        match self.position(done) {
            0 => 1.0,
            from => self.beyond[from - 1],
        }
    }

    /// Draws the work of a job that is more than `done`.
    pub(crate) fn draw(&self, done: Work, rng: &mut ChaCha8Rng) -> Draw {
        let from = self.position(done);
        let target = self.share_beyond(done) * rng.random_range(0.0..1.0);
        let found = from + self.beyond[from..].partition_point(|beyond| *beyond > target);
        match self.observed.get(found) {
            Some((work, _)) => Draw::Work(*work),
            None => Draw::Beyond(self.observed.last().map_or(done, |(work, _)| *work)),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn curve(observed: &[(u64, bool)]) -> SurvivalCurve {
        let mut curve = SurvivalCurve::default();
        for (work, is_finished) in observed {
            curve.add((Work(*work), *is_finished));
        }
        curve.finish();
        curve
    }

    #[test]
    fn jobs_that_still_run_count_as_longer() {
        let curve = curve(&[(1, true), (2, false), (3, true), (4, false)]);
        assert_eq!(curve.share_beyond(Work(0)), 1.0);
        assert_eq!(curve.share_beyond(Work(1)), 0.75);
        assert_eq!(curve.share_beyond(Work(3)), 0.375);
        assert_eq!(curve.observed_beyond(Work(2)), 2);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let drawn: Vec<Draw> = (0..2_000).map(|_| curve.draw(Work(1), &mut rng)).collect();
        let threes = drawn.iter().filter(|draw| **draw == Draw::Work(Work(3))).count();
        assert!((900..1_100).contains(&threes), "half of those beyond 1: {threes}");
        assert!(drawn.contains(&Draw::Beyond(Work(4))));
    }

    #[test]
    fn without_jobs_nothing_is_known() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        assert_eq!(curve(&[]).draw(Work(5), &mut rng), Draw::Beyond(Work(5)));
    }
}
