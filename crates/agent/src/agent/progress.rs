//! Which progress reports of trainers are forwarded: those that the server could not predict, and one now and then.

use std::time::{Duration, Instant};

/// Shortest time between two reports of a task.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest time between two reports of a task that makes progress.
const LONGEST: Duration = Duration::from_secs(5);
/// Deviation from the prediction, in per cent of all steps, that is reported early.
const TOLERANCE_PERCENT: u64 = 2;

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// The last step that is done.
    pub step: u64,
    /// Number of steps in all; zero if unknown.
    pub total: u64,
    /// Duration of a step, in microseconds.
    pub step_us: u64,
    /// The last step with a checkpoint.
    pub checkpoint: u64,
}

/// Decides which reports of a task are forwarded.
#[derive(Debug, Default)]
pub struct ProgressFilter {
    last: Option<(Instant, StepReport)>,
}

impl ProgressFilter {
    /// Returns whether a report is forwarded, and remembers it if so.
    pub fn admit(&mut self, now: Instant, report: StepReport) -> bool {
        let is_due = match self.last {
            None => true,
            Some((_, before)) if before == report => false,
            Some((at, before)) => is_due(now.saturating_duration_since(at), before, report),
        };
        if is_due {
            self.last = Some((now, report));
        }
        is_due
    }
}

fn is_due(elapsed: Duration, before: StepReport, report: StepReport) -> bool {
    if report.total > 0 && report.step == report.total {
        return true;
    }
    if elapsed < SHORTEST {
        return false;
    }
    elapsed >= LONGEST
        || report.total != before.total
        || report.checkpoint != before.checkpoint
        || is_surprising(elapsed, before, report)
}

/// Returns whether a task is not where its last report would have brought it by now.
fn is_surprising(elapsed: Duration, before: StepReport, report: StepReport) -> bool {
    if before.step_us == 0 {
        return report.step_us > 0;
    }
    let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    let predicted = before.step.saturating_add(elapsed_us / before.step_us);
    let scale = if report.total > 0 { report.total } else { predicted };
    predicted.abs_diff(report.step) > (scale * TOLERANCE_PERCENT / 100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(step: u64, step_us: u64, checkpoint: u64) -> StepReport {
        StepReport {
            step,
            total: 1_000,
            step_us,
            checkpoint,
        }
    }

    #[test]
    fn a_steady_task_is_reported_now_and_then() {
        let (start, mut filter) = (Instant::now(), ProgressFilter::default());
        let mut sent = 0;
        for tick in 0..100_u64 {
            let now = start + Duration::from_millis(500 * tick);
            sent += u32::from(filter.admit(now, report(5 * tick, 100_000, 0)));
        }
        assert_eq!(sent, 10, "one report in five seconds, of fifty seconds");
    }

    #[test]
    fn a_surprise_a_checkpoint_and_the_end_are_reported_early() {
        let (start, mut filter) = (Instant::now(), ProgressFilter::default());
        let at = |ms| start + Duration::from_millis(ms);
        assert!(filter.admit(start, report(10, 100_000, 0)));
        assert!(!filter.admit(at(500), report(100, 100_000, 0)), "too soon");
        assert!(!filter.admit(at(2_000), report(31, 100_000, 0)), "as predicted");
        assert!(filter.admit(at(2_000), report(60, 100_000, 0)), "faster");
        assert!(filter.admit(at(3_500), report(75, 100_000, 70)), "a checkpoint");
        assert!(filter.admit(at(3_600), report(1_000, 100_000, 70)), "the end");
        assert!(
            !filter.admit(at(9_600), report(1_000, 100_000, 70)),
            "nothing new"
        );
    }
}
