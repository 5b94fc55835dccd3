//! Formats numbers and spans of time for people.

use dovetail_model::Time;
use dovetail_model::units::MICROS_PER_SECOND;

/// A unit of time for an axis or a table column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeUnit {
    /// Symbol of the unit.
    pub name: &'static str,
    /// Length of the unit, in seconds.
    pub seconds: f64,
    /// Round steps between marks in this unit.
    pub steps: &'static [f64],
}

const SECOND: TimeUnit = TimeUnit {
    name: "s",
    seconds: 1.0,
    steps: &[1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0],
};
const MINUTE: TimeUnit = TimeUnit {
    name: "min",
    seconds: 60.0,
    steps: &[1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0],
};
const HOUR: TimeUnit = TimeUnit {
    name: "h",
    seconds: 3600.0,
    steps: &[1.0, 2.0, 3.0, 6.0, 12.0, 24.0],
};
const DAY: TimeUnit = TimeUnit {
    name: "d",
    seconds: 86400.0,
    steps: &[1.0, 2.0, 5.0, 10.0, 20.0, 30.0],
};

/// Returns the unit that fits a span of this many seconds.
pub fn unit_for(seconds: f64) -> TimeUnit {
    match seconds.abs() {
        s if s < 180.0 => SECOND,
        s if s < 3.0 * 3600.0 => MINUTE,
        s if s < 3.0 * 86400.0 => HOUR,
        s if s.is_nan() => SECOND,
        _ => DAY,
    }
}

/// Formats a span with its unit: `48.2 s`, `12.5 min`, `3.1 h`, `9.4 d`.
pub fn span(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "–".into();
    }
    let unit = unit_for(seconds);
    format!("{} {}", significant(seconds / unit.seconds), unit.name)
}

/// Formats a number with three significant digits, or all digits before the point.
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    match value.abs() {
        0.0 => "0".into(),
        v if v >= 99.95 => grouped(value, 0),
        v if v >= 9.995 => grouped(value, 1),
        v if v >= 0.0995 => grouped(value, 2),
        v if v >= 0.000_995 => grouped(value, 4),
        _ => format!("{value:.0e}"),
    }
}

/// Formats an axis mark: grouped up to a million, then with a power of ten.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v == 0.0 || (1e-4..1e7).contains(&v) => {
            let decimals = if v == 0.0 || v >= 1.0 {
                0
            } else {
                (-v.log10()).ceil().min(6.0) as usize
            };
            grouped(value, decimals)
        }
        _ => format!("{value:.0e}"),
    }
}

/// Formats a whole number with separators: `20,000`.
pub fn count(value: u64) -> String {
    group_digits(&value.to_string())
}

/// Formats a number of things: `1 GPU`, `2,048 GPUs`.
pub fn counted(value: u64, noun: &str) -> String {
    match value {
        1 => format!("1 {noun}"),
        n => format!("{} {noun}s", count(n)),
    }
}

/// Formats a number with fixed decimals and separators before the point.
pub fn grouped(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    if value.abs() >= 1e12 {
        return format!("{value:.1e}");
    }
    let shown = format!("{:.decimals$}", value.abs());
    let (whole, rest) = shown.split_at(shown.find('.').unwrap_or(shown.len()));
    let zero = shown.chars().all(|c| c == '0' || c == '.');
    format!(
        "{}{}{rest}",
        if value < 0.0 && !zero { "−" } else { "" },
        group_digits(whole)
    )
}

fn group_digits(digits: &str) -> String {
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Formats seconds for a file, exact to the microsecond, without trailing zeros: `300`, `0.5`, `-1.000001`.
pub fn exact_seconds(time: Time) -> String {
    let sign = if time.0 < 0 { "-" } else { "" };
    let micros = time.0.unsigned_abs();
    let (whole, rest) = (
        micros / MICROS_PER_SECOND as u64,
        micros % MICROS_PER_SECOND as u64,
    );
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    format!("{sign}{whole}.{}", format!("{rest:06}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_fitting_unit() {
        let shown: Vec<String> = [0.0, 0.25, 59.0, 600.0, 7200.0, 40_000.0, 900_000.0, f64::NAN]
            .map(span)
            .into();
        assert_eq!(
            shown,
            [
                "0 s", "0.25 s", "59.0 s", "10.0 min", "120 min", "11.1 h", "10.4 d", "–"
            ]
        );
    }

    #[test]
    fn numbers_keep_three_digits() {
        let shown: Vec<String> = [1.0, 12.34, 123.4, 12_345.6, -0.5, 0.01, 1e-9]
            .map(significant)
            .into();
        assert_eq!(
            shown,
            ["1.00", "12.3", "123", "12,346", "−0.50", "0.0100", "1e-9"]
        );
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn file_seconds_are_exact() {
        let shown: Vec<String> = [300_000_000, 500_000, -1_000_001, 0, i64::MIN]
            .map(|t| exact_seconds(Time(t)))
            .into();
        assert_eq!(shown, ["300", "0.5", "-1.000001", "0", "-9223372036854.775808"]);
    }
}
