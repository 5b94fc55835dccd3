//! Scales from values to positions, and readable axis marks.

use crate::format;

/// The kind of the numbers on an axis, and their spacing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AxisKind {
    /// Plain numbers, linear.
    #[default]
    Linear,
    /// Plain numbers, logarithmic.
    Log,
    /// Seconds, linear, shown in a unit that fits the range.
    Time,
    /// Seconds, logarithmic, each mark with its own unit.
    LogTime,
    /// Fractions, shown as percentages.
    Percent,
}

impl AxisKind {
    fn is_log(self) -> bool {
        matches!(self, Self::Log | Self::LogTime)
    }
}

/// A map from values to positions. Values outside are drawn on the edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    kind: AxisKind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    pub(crate) fn new(kind: AxisKind, (low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        let (mut low, mut high) = (sane(low), sane(high));
        if kind.is_log() {
            high = high.max(1e-9);
            low = if low > 0.0 {
                low.max(high * 1e-12)
            } else {
                high * 1e-3
            };
            if low >= high * 0.999 {
                (low, high) = (high / 3.0, high * 3.0);
            }
        } else if high - low <= (low.abs() + high.abs()) * 1e-9 {
            high = low + low.abs().max(1.0);
        }
        Self {
            kind,
            low,
            high,
            from,
            to,
        }
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        let value = if value.is_nan() {
            self.low
        } else {
            value.clamp(self.low, self.high)
        };
        let share = if self.kind.is_log() {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }
}

fn sane(value: f64) -> f64 {
    if value.is_nan() {
        0.0
    } else {
        value.clamp(-1e15, 1e15)
    }
}

/// Marks with their labels, and the unit of the labels if they do not include it.
pub(crate) struct Ticks {
    pub(crate) marks: Vec<(f64, String)>,
    pub(crate) unit: Option<&'static str>,
}

/// Returns at most about `count` marks at round values.
pub(crate) fn ticks(scale: &Scale, count: usize) -> Ticks {
    let count = count.max(2);
    match scale.kind {
        AxisKind::Linear => Ticks {
            marks: linear(scale, 1.0, &[1.0, 2.0, 5.0], count, ""),
            unit: None,
        },
        AxisKind::Percent => Ticks {
            marks: linear(scale, 0.01, &[1.0, 2.0, 5.0], count, " %"),
            unit: None,
        },
        AxisKind::Time => {
            let unit = format::unit_for(scale.high - scale.low);
            let marks = linear(scale, unit.seconds, unit.steps, count, "");
            Ticks {
                marks,
                unit: Some(unit.name),
            }
        }
        AxisKind::Log => Ticks {
            marks: spread(scale, count, &decades(scale)),
            unit: None,
        },
        AxisKind::LogTime => Ticks {
            marks: spread(scale, count, &time_marks()),
            unit: None,
        },
    }
}

/// Returns marks at multiples of a round step, in units of `unit`. `steps` are the round numbers at or above one; beyond
/// them (and below one) steps are 1, 2, 5.
fn linear(scale: &Scale, unit: f64, steps: &[f64], count: usize, suffix: &str) -> Vec<(f64, String)> {
    let (low, high) = (scale.low / unit, scale.high / unit);
    let least = (high - low) / count as f64;
    let step = steps
        .iter()
        .copied()
        .find(|step| *step >= least && least > 0.3)
        .unwrap_or_else(|| {
            let power = 10f64.powf(least.log10().floor());
            [1.0, 2.0, 5.0, 10.0]
                .into_iter()
                .map(|m| m * power)
                .find(|s| *s >= least * 0.999)
                .unwrap_or(power)
        });
    let decimals = (-step.log10()).ceil().clamp(0.0, 6.0) as usize;
    let first = (low / step - 1e-6).ceil();
    (0..=count + 1)
        .map(|i| (first + i as f64) * step)
        .filter(|v| *v <= high + step * 1e-6)
        .map(|v| (v * unit, format!("{}{suffix}", format::grouped(v, decimals))))
        .collect()
}

/// Selects candidates `(value, label, importance)` by importance as long as they do not overlap.
fn spread(scale: &Scale, count: usize, candidates: &[(f64, String, u8)]) -> Vec<(f64, String)> {
    let apart = (scale.to - scale.from).abs() / (count as f64 + 0.5);
    let mut taken: Vec<(f64, String)> = vec![];
    for importance in 0..3 {
        for (value, label, _) in candidates.iter().filter(|c| c.2 == importance) {
            let inside = *value >= scale.low * 0.9999 && *value <= scale.high * 1.0001;
            let free = taken
                .iter()
                .all(|(other, _)| (scale.at(*other) - scale.at(*value)).abs() >= apart);
            if inside && free {
                taken.push((*value, label.clone()));
            }
        }
    }
    taken.sort_by(|a, b| a.0.total_cmp(&b.0));
    taken
}

fn decades(scale: &Scale) -> Vec<(f64, String, u8)> {
    let (first, last) = (scale.low.log10().floor() as i32, scale.high.log10().ceil() as i32);
    let mut out = vec![];
    for power in first..=last {
        for (factor, importance) in [(1.0, 0), (2.0, 2), (3.0, 1), (5.0, 2)] {
            let value = factor * 10f64.powi(power);
            out.push((value, format::short(value), importance));
        }
    }
    out
}

/// Seconds in a unit, its name, and `(how many, importance)` of its marks.
type UnitMarks = (f64, &'static str, &'static [(u32, u8)]);

fn time_marks() -> Vec<(f64, String, u8)> {
    const MARKS: [UnitMarks; 4] = [
        (1.0, "s", &[(1, 0), (2, 2), (5, 2), (10, 0), (20, 2), (30, 1)]),
        (60.0, "min", &[(1, 0), (2, 2), (5, 2), (10, 0), (20, 2), (30, 1)]),
        (3600.0, "h", &[(1, 0), (2, 2), (3, 1), (6, 2), (12, 2)]),
        (
            86400.0,
            "d",
            &[
                (1, 0),
                (2, 2),
                (3, 1),
                (5, 2),
                (10, 0),
                (20, 2),
                (30, 1),
                (50, 2),
                (100, 0),
                (300, 1),
            ],
        ),
    ];
    let mut out: Vec<(f64, String, u8)> = (-9..0)
        .map(|power| {
            (
                10f64.powi(power),
                format!("{} s", format::short(10f64.powi(power))),
                0,
            )
        })
        .collect();
    for (seconds, unit, values) in MARKS {
        out.extend(
            values
                .iter()
                .map(|(n, rank)| (f64::from(*n) * seconds, format!("{n} {unit}"), *rank)),
        );
    }
    out.extend((3..12).map(|power| {
        let days = 10f64.powi(power);
        (days * 86400.0, format!("{} d", format::short(days)), 0)
    }));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(kind: AxisKind, low: f64, high: f64, count: usize) -> String {
        let ticks = ticks(&Scale::new(kind, (low, high), (0.0, 500.0)), count);
        let marks: Vec<String> = ticks.marks.into_iter().map(|(_, label)| label).collect();
        format!(
            "{}{}",
            marks.join(" | "),
            ticks.unit.map(|u| format!(" ({u})")).unwrap_or_default()
        )
    }

    #[test]
    fn marks_are_round_in_the_unit_of_the_range() {
        assert_eq!(labels(AxisKind::Linear, 0.0, 128.0, 5), "0 | 50 | 100");
        assert_eq!(
            labels(AxisKind::Linear, 0.0, 0.03, 3),
            "0.00 | 0.01 | 0.02 | 0.03"
        );
        assert_eq!(
            labels(AxisKind::Percent, 0.0, 1.0, 5),
            "0 % | 20 % | 40 % | 60 % | 80 % | 100 %"
        );
        assert_eq!(
            labels(AxisKind::Time, 0.0, 50.0, 5),
            "0 | 10 | 20 | 30 | 40 | 50 (s)"
        );
        assert_eq!(
            labels(AxisKind::Time, 0.0, 86400.0, 6),
            "0 | 6 | 12 | 18 | 24 (h)"
        );
        assert_eq!(
            labels(AxisKind::Time, 0.0, 20.0 * 86400.0, 6),
            "0 | 5 | 10 | 15 | 20 (d)"
        );
        assert_eq!(
            labels(AxisKind::LogTime, 1.0, 1e6, 8),
            "1 s | 10 s | 1 min | 10 min | 1 h | 1 d | 10 d"
        );
        assert_eq!(labels(AxisKind::Log, 1.0, 1000.0, 4), "1 | 10 | 100 | 1,000");
    }

    #[test]
    fn degenerate_ranges_still_give_positions() {
        for kind in [
            AxisKind::Linear,
            AxisKind::Log,
            AxisKind::Time,
            AxisKind::LogTime,
            AxisKind::Percent,
        ] {
            for range in [
                (0.0, 0.0),
                (5.0, 5.0),
                (f64::NAN, 1.0),
                (-1.0, f64::INFINITY),
                (1e300, -1e300),
            ] {
                let scale = Scale::new(kind, range, (0.0, 100.0));
                assert!((0.0..=100.0).contains(&scale.at(f64::NAN)), "{kind:?} {range:?}");
                assert!((0.0..=100.0).contains(&scale.at(1.0)), "{kind:?} {range:?}");
                assert!(ticks(&scale, 5).marks.len() < 20);
            }
        }
    }
}
