//! Spans of time as people write them: `90`, `90s`, `5m`, `2h`, `1d`.

use crate::Time;

/// The longest span that is accepted, in seconds: about 31,700 years.
const LONGEST_S: f64 = 1e12;

/// Parses a span of time: a number of seconds, or a number with a unit (`ms`, `s`, `m`, `min`, `h`, `d`). Returns `None`
/// for anything else, also for negative spans.
pub fn parse_span(text: &str) -> Option<Time> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let seconds = number.trim().parse::<f64>().ok()? * factor;
    (seconds.is_finite() && (0.0..=LONGEST_S).contains(&seconds)).then(|| Time::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_an_optional_unit() {
        assert_eq!(parse_span("90"), Some(Time::from_secs(90)));
        assert_eq!(parse_span(" 1.5 h "), Some(Time::from_secs(5400)));
        assert_eq!(parse_span("250ms"), Some(Time::from_secs_f64(0.25)));
        for invalid in ["", "soon", "-1s", "1w", "NaN", "inf", "1e13"] {
            assert_eq!(parse_span(invalid), None, "{invalid}");
        }
    }
}
