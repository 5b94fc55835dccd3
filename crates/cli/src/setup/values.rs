//! Values of flags: spans of time, ranges and lists.

use dovetail_console::Failure;
use dovetail_engine::Clock;
use dovetail_model::{Time, parse_span};

pub(super) fn clock(text: Option<&str>) -> Result<Clock, Failure> {
    let bad = |found: &str| {
        Failure::request(format!(
            "--clock: found `{found}`, expected events, or rounds:SPAN such as rounds:300s"
        ))
    };
    match text {
        None | Some("events") => Ok(Clock::Events),
        Some(text) => {
            let period = text
                .strip_prefix("rounds:")
                .and_then(parse_span)
                .filter(|p| *p > Time::ZERO);
            period.map(Clock::rounds).ok_or_else(|| bad(text))
        }
    }
}

pub(super) fn span(flag: &str, text: Option<&str>) -> Result<Option<Time>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let bad = || {
        Failure::request(format!(
            "{flag}: found `{text}`, expected a span of time such as 30s, 5m, 2h or 1d"
        ))
    };
    parse_span(text).map(Some).ok_or_else(bad)
}

pub(super) fn track(text: &str) -> Result<(u32, u32), Failure> {
    let range = text
        .split_once("..")
        .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    range.filter(|(a, b)| a <= b).ok_or_else(|| {
        Failure::request(format!(
            "--track: found `{text}`, expected FIRST..LAST, two job ids such as 0..99"
        ))
    })
}

/// Splits `a,b:k=1,l=2,c` into policies: a piece with `=` but without `:` belongs to the policy before it.
pub fn split_policies(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for piece in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        match names.last_mut() {
            Some(last) if piece.contains('=') && !piece.contains(':') => {
                last.push(',');
                last.push_str(piece);
            }
            _ => names.push(piece.to_owned()),
        }
    }
    names
}

/// Parses `1..5` (both ends included) or `1,2,3`.
///
/// # Errors
/// Names the expected format.
pub fn seeds(text: &str) -> Result<Vec<u64>, Failure> {
    let bad = || {
        Failure::request(format!(
            "--seeds: found `{text}`, expected FIRST..LAST or a list such as 1,2,3"
        ))
    };
    if let Some((a, b)) = text.split_once("..") {
        let (a, b): (u64, u64) = (
            a.trim().parse().map_err(|_| bad())?,
            b.trim().parse().map_err(|_| bad())?,
        );
        return if a <= b && b - a < 10_000 {
            Ok((a..=b).collect())
        } else {
            Err(bad())
        };
    }
    text.split(',')
        .map(|s| s.trim().parse().map_err(|_| bad()))
        .collect()
}

/// Parses a list of loads.
///
/// # Errors
/// Names the expected format.
pub fn loads(text: &str) -> Result<Vec<f64>, Failure> {
    let bad = || {
        Failure::request(format!(
            "--loads: found `{text}`, expected numbers above 0 such as 0.7,0.9,1.1"
        ))
    };
    let parse = |s: &str| {
        s.trim()
            .parse::<f64>()
            .ok()
            .filter(|l| l.is_finite() && *l > 0.0)
            .ok_or_else(bad)
    };
    text.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_keep_their_knobs() {
        assert_eq!(
            split_policies("fifo, tiresias:limits=1/2,promote=2,srsf"),
            ["fifo", "tiresias:limits=1/2,promote=2", "srsf"]
        );
    }

    #[test]
    fn seeds_and_tracks_are_inclusive() {
        assert_eq!(seeds("1..3").unwrap(), [1, 2, 3]);
        assert_eq!(seeds("4,2").unwrap(), [4, 2]);
        assert!(seeds("3..1").is_err());
        assert_eq!(track("0..99").unwrap(), (0, 99));
        assert!(track("5").is_err());
    }
}
