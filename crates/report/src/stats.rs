//! Statistics for the figures.

use dovetail_model::run::{JobRow, RunRecord, TimelinePoint};

/// Returns the completion time in seconds; `None` if the job did not finish.
pub fn jct_s(row: &JobRow) -> Option<f64> {
    row.finish
        .map(|finish| finish.as_secs_f64() - row.submit.as_secs_f64())
}

/// Returns the time without GPUs in seconds, never negative; `None` if the job did not finish.
pub fn wait_s(row: &JobRow) -> Option<f64> {
    jct_s(row).map(|jct| (jct - row.held.as_secs_f64()).max(0.0))
}

/// A distribution as a figure draws it.
#[derive(Debug, Clone, PartialEq)]
pub struct Cdf {
    /// `(value, share of all with at most this value)`, ascending.
    pub points: Vec<(f64, f64)>,
    /// The smallest value above zero.
    pub least_positive: Option<f64>,
    /// Number of finite values.
    pub finite: usize,
}

/// Maximum number of points of a drawn distribution.
const CDF_POINTS: usize = 360;
/// Ranks at each end that are always kept, so that thinning never hides a tail.
const CDF_TAIL: usize = 20;

/// Returns the distribution of `values` among `total`, thinned to about 400 points with complete tails.
pub fn cdf(values: impl IntoIterator<Item = f64>, total: usize) -> Cdf {
    let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let total = total.max(n).max(1) as f64;
    let is_kept = |rank: usize| {
        n <= CDF_POINTS + 2 * CDF_TAIL
            || rank < CDF_TAIL
            || rank >= n - CDF_TAIL
            || rank * CDF_POINTS / n != (rank - 1) * CDF_POINTS / n
    };
    let mut points: Vec<(f64, f64)> = vec![];
    for rank in (0..n).filter(|rank| is_kept(*rank)) {
        let with_equals = sorted.partition_point(|v| *v <= sorted[rank]);
        let point = (sorted[rank], with_equals as f64 / total);
        if points.last().is_none_or(|last| last.0 != point.0) {
            points.push(point);
        }
    }
    Cdf {
        points,
        least_positive: sorted.iter().copied().find(|v| *v > 0.0),
        finite: n,
    }
}

/// Returns the value below which a share `q` of `sorted` lies, interpolated between neighbours; `None` without values.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let at = q.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (at - at.floor()))
}

/// One value of the timeline over `[start, end)`, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Start, in seconds.
    pub start: f64,
    /// End, in seconds.
    pub end: f64,
    /// Mean over that time.
    pub value: f64,
}

/// Returns a timeline as steps: unchanged if it is short, otherwise averaged over at most `bins` equal spans.
pub fn steps(timeline: &[TimelinePoint], bins: usize, value: impl Fn(&TimelinePoint) -> f64) -> Vec<Step> {
    let exact: Vec<Step> = timeline
        .iter()
        .map(|p| Step {
            start: p.start.as_secs_f64(),
            end: p.end.as_secs_f64(),
            value: value(p),
        })
        .filter(|step| step.end > step.start && step.value.is_finite())
        .collect();
    if exact.len() <= bins {
        return exact;
    }
    let (low, high) = exact
        .iter()
        .fold((f64::MAX, f64::MIN), |(l, h), s| (l.min(s.start), h.max(s.end)));
    let width = (high - low) / bins as f64;
    let mut sums = vec![(0.0, 0.0); bins];
    for step in &exact {
        let first = ((step.start - low) / width) as usize;
        let last = (((step.end - low) / width) as usize).min(bins - 1);
        for (bin, sum) in sums.iter_mut().enumerate().take(last + 1).skip(first) {
            let from = step.start.max(low + width * bin as f64);
            let to = step.end.min(low + width * (bin + 1) as f64);
            let overlap = (to - from).max(0.0);
            *sum = (sum.0 + step.value * overlap, sum.1 + overlap);
        }
    }
    let bin_step = |(bin, (sum, time)): (usize, (f64, f64))| Step {
        start: low + width * bin as f64,
        end: low + width * (bin + 1) as f64,
        value: sum / time,
    };
    sums.into_iter()
        .enumerate()
        .filter(|(_, (_, time))| *time > 0.0)
        .map(bin_step)
        .collect()
}

/// Returns the mean of steps over time; zero without steps.
pub fn mean(steps: &[Step]) -> f64 {
    let (sum, time) = steps.iter().fold((0.0, 0.0), |(sum, time), s| {
        (sum + s.value * (s.end - s.start), time + s.end - s.start)
    });
    if time > 0.0 { sum / time } else { 0.0 }
}

/// Returns the first moment of a run, in seconds. Figures count time from it.
pub fn origin_s(record: &RunRecord) -> f64 {
    let timeline = record.timeline.iter().map(|p| p.start);
    let rows = record.rows.iter().map(|row| row.submit);
    let segments = record.segments.iter().map(|s| s.start);
    timeline
        .chain(rows)
        .chain(segments)
        .min()
        .map_or(0.0, |t| t.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_model::Time;

    #[test]
    fn thinning_keeps_the_tails_and_the_order() {
        let cdf = cdf((0..100_000).map(f64::from), 200_000);
        assert!(cdf.points.len() <= 400, "{}", cdf.points.len());
        assert_eq!(cdf.points.first(), Some(&(0.0, 5e-6)));
        assert_eq!(cdf.points.last(), Some(&(99_999.0, 0.5)));
        assert!(cdf.points.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
    }

    #[test]
    fn equal_values_are_one_point() {
        assert_eq!(
            cdf([2.0, 1.0, 2.0, f64::NAN], 4).points,
            [(1.0, 0.25), (2.0, 0.75)]
        );
    }

    #[test]
    fn averaging_keeps_the_mean() {
        let timeline: Vec<TimelinePoint> = (0..1000)
            .map(|i| TimelinePoint {
                start: Time::from_secs(i * 7),
                end: Time::from_secs(i * 7 + 7),
                busy_gpus: (i % 13) as f64,
                up_gpus: 16.0,
                running: 0.0,
                waiting: 0.0,
                waiting_gpus: 0.0,
                fragmented_gpus: 0.0,
            })
            .collect();
        let fine = steps(&timeline, 10_000, |p| p.busy_gpus);
        let coarse = steps(&timeline, 64, |p| p.busy_gpus);
        assert_eq!(coarse.len(), 64);
        assert!((mean(&fine) - mean(&coarse)).abs() < 1e-9);
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[1.0, 2.0], 0.5), Some(1.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 1.0), Some(3.0));
    }
}
