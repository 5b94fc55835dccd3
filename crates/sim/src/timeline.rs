//! The cluster over time in a bounded number of intervals: when there are too many, neighbours are merged.

use dovetail_model::Time;
use dovetail_model::run::TimelinePoint;

/// Levels that hold until the next change.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Levels {
    pub(crate) busy_gpus: u32,
    pub(crate) up_gpus: u32,
    pub(crate) running: u32,
    pub(crate) waiting: u32,
    pub(crate) waiting_gpus: u64,
    pub(crate) fragmented_gpus: u32,
}

/// Sums of level × microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    busy_gpus: i128,
    up_gpus: i128,
    running: i128,
    waiting: i128,
    waiting_gpus: i128,
    fragmented_gpus: i128,
}

impl Sums {
    fn add(&mut self, levels: &Levels, span: i64) {
        let span = i128::from(span);
        self.busy_gpus += i128::from(levels.busy_gpus) * span;
        self.up_gpus += i128::from(levels.up_gpus) * span;
        self.running += i128::from(levels.running) * span;
        self.waiting += i128::from(levels.waiting) * span;
        self.waiting_gpus += i128::from(levels.waiting_gpus) * span;
        self.fragmented_gpus += i128::from(levels.fragmented_gpus) * span;
    }

    fn plus(mut self, other: &Sums) -> Sums {
        self.busy_gpus += other.busy_gpus;
        self.up_gpus += other.up_gpus;
        self.running += other.running;
        self.waiting += other.waiting;
        self.waiting_gpus += other.waiting_gpus;
        self.fragmented_gpus += other.fragmented_gpus;
        self
    }
}

/// Maximum number of intervals.
const MAX_INTERVALS: usize = 1024;

/// Integrates levels over time.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    start: Time,
    now: Time,
    width: i64,
    intervals: Vec<Sums>,
    current: Sums,
    current_end: Time,
    most_waiting: u32,
}

impl Timeline {
    pub(crate) fn new(start: Time) -> Self {
        let width = 60_000_000;
        Self {
            start,
            now: start,
            width,
            intervals: Vec::new(),
            current: Sums::default(),
            current_end: Time(start.0 + width),
            most_waiting: 0,
        }
    }

    /// Records that the levels held from the last call until `now`.
    pub(crate) fn advance(&mut self, now: Time, levels: &Levels) {
        if now > self.now {
            self.most_waiting = self.most_waiting.max(levels.waiting);
        }
        while now > self.current_end {
            self.current.add(levels, self.current_end.0 - self.now.0);
            self.now = self.current_end;
            self.close_interval();
        }
        self.current.add(levels, now.0 - self.now.0);
        self.now = now;
    }

    fn close_interval(&mut self) {
        self.intervals.push(std::mem::take(&mut self.current));
        if self.intervals.len() == MAX_INTERVALS {
            self.intervals = self
                .intervals
                .chunks(2)
                .map(|pair| pair[0].plus(&pair[1]))
                .collect();
            self.width *= 2;
        }
        self.current_end = Time(self.current_end.0 + self.width);
    }

    /// Returns GPU-microseconds in use, in total, and in fragments, over the whole run.
    pub(crate) fn totals(&self) -> (i128, i128, i128) {
        let all = self
            .intervals
            .iter()
            .fold(self.current, |sum, next| sum.plus(next));
        (all.busy_gpus, all.up_gpus, all.fragmented_gpus)
    }

    /// Returns mean and maximum number of queued jobs over the whole run.
    pub(crate) fn queue(&self) -> (f64, u32) {
        let waiting = self
            .intervals
            .iter()
            .fold(self.current.waiting, |sum, next| sum + next.waiting);
        (waiting as f64 / self.span().max(1) as f64, self.most_waiting)
    }

    /// Returns the microseconds since the start.
    pub(crate) fn span(&self) -> i64 {
        self.now.0 - self.start.0
    }

    pub(crate) fn points(&self) -> Vec<TimelinePoint> {
        let mut points = Vec::with_capacity(self.intervals.len() + 1);
        let mut start = self.start;
        for sums in &self.intervals {
            let end = Time(start.0 + self.width);
            points.push(point(start, end, sums));
            start = end;
        }
        if self.now > start {
            points.push(point(start, self.now, &self.current));
        }
        points
    }
}

fn point(start: Time, end: Time, sums: &Sums) -> TimelinePoint {
    let mean = |sum: i128| sum as f64 / (end.0 - start.0) as f64;
    TimelinePoint {
        start,
        end,
        busy_gpus: mean(sums.busy_gpus),
        up_gpus: mean(sums.up_gpus),
        running: mean(sums.running),
        waiting: mean(sums.waiting),
        waiting_gpus: mean(sums.waiting_gpus),
        fragmented_gpus: mean(sums.fragmented_gpus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_the_integral() {
        let mut timeline = Timeline::new(Time::ZERO);
        let levels = |busy_gpus| Levels {
            busy_gpus,
            up_gpus: 4,
            ..Levels::default()
        };
        timeline.advance(Time::from_secs(100_000), &levels(2));
        timeline.advance(Time::from_secs(300_000), &levels(1));
        let (busy, up, _) = timeline.totals();
        assert_eq!(busy, 400_000_000_000);
        assert_eq!(up, 1_200_000_000_000);
        let points = timeline.points();
        assert!(points.len() <= MAX_INTERVALS);
        let sum: f64 = points
            .iter()
            .map(|p| p.busy_gpus * (p.end - p.start).as_secs_f64())
            .sum();
        assert!((sum - 400_000.0).abs() < 1e-3);
        assert_eq!(points.last().unwrap().end, Time::from_secs(300_000));
    }

    #[test]
    fn the_queue_length_is_a_mean_over_time_and_ignores_instants() {
        let mut timeline = Timeline::new(Time::ZERO);
        let levels = |waiting| Levels {
            waiting,
            ..Levels::default()
        };
        timeline.advance(Time::from_secs(30), &levels(4));
        timeline.advance(Time::from_secs(30), &levels(9));
        timeline.advance(Time::from_secs(120), &levels(0));
        assert_eq!(timeline.queue(), (1.0, 4));
    }
}
