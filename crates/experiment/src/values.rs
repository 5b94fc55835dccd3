//! Values of settings: clocks, spans of time and ranges.

use std::str::FromStr;

use dovetail_engine::Clock;
use dovetail_model::{Time, parse_span};

use crate::ExperimentError;

pub(crate) fn parse_clock(text: Option<&str>) -> Result<Clock, ExperimentError> {
    let expected = "events, or rounds:SPAN such as rounds:300s";
    match text {
        None | Some("events") => Ok(Clock::Events),
        Some(text) => {
            let period = text
                .strip_prefix("rounds:")
                .and_then(parse_span)
                .filter(|p| *p > Time::ZERO);
            let period = period.map(Clock::rounds);
            period.ok_or_else(|| ExperimentError::invalid_text("clock", text, expected))
        }
    }
}

pub(crate) fn parse_optional_span(
    key: &'static str,
    text: Option<&str>,
) -> Result<Option<Time>, ExperimentError> {
    let Some(text) = text else { return Ok(None) };
    let expected = "a span of time such as 30s, 5m, 2h or 1d";
    let span = parse_span(text).map(Some);
    span.ok_or_else(|| ExperimentError::invalid_text(key, text, expected))
}

pub(crate) fn parse_track(text: &str) -> Result<(u32, u32), ExperimentError> {
    let expected = "FIRST..LAST, two job ids such as 0..99";
    let range = parse_range(text).filter(|(a, b)| a <= b);
    range.ok_or_else(|| ExperimentError::invalid_text("track", text, expected))
}

/// Parses the range of an elastic job's GPUs, in multiples of the requested GPUs.
pub(crate) fn parse_elastic(text: &str) -> Result<(f64, f64), ExperimentError> {
    let expected = "LOW..HIGH with LOW above 0 and at most 1, and HIGH from 1 to 1024, such as 0.5..4";
    let is_valid = |(low, high): &(f64, f64)| *low > 0.0 && *low <= 1.0 && *high >= 1.0 && *high <= 1024.0;
    let range = parse_range(text).filter(is_valid);
    range.ok_or_else(|| ExperimentError::invalid_text("elastic", text, expected))
}

/// Parses `A..B`.
pub(crate) fn parse_range<T: FromStr>(text: &str) -> Option<(T, T)> {
    let (a, b) = text.split_once("..")?;
    Some((a.trim().parse().ok()?, b.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_include_both_ends() {
        assert_eq!(parse_track("0..99").unwrap(), (0, 99));
        assert!(parse_track("5").is_err());
        assert!(parse_track("3..1").is_err());
    }

    #[test]
    fn errors_name_the_setting_the_value_and_what_is_accepted() {
        let error = parse_clock(Some("rounds:0s")).unwrap_err().to_string();
        assert_eq!(
            error,
            "clock: found `rounds:0s`, expected events, or rounds:SPAN such as rounds:300s"
        );
    }
}
