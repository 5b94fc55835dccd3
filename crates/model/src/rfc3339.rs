//! Dates and times of day (RFC 3339) as microseconds since 1970.

const DAY: i64 = 86_400;

/// Returns the days since 1970 of a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years start in March here, so that the leap day is the last day of a year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns the date of a day since 1970.
fn date(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Parses `2026-11-17T02:26:56Z`, with or without a fraction.
pub fn parse_time(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = text.get(range)?;
        part.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| part.parse().ok())?
    };
    let mark = |at: usize, mark: &[u8]| text.as_bytes().get(at).is_some_and(|b| mark.contains(b));
    if !(mark(4, b"-") && mark(7, b"-") && mark(10, b"Tt ") && mark(13, b":") && mark(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let six: String = fraction[..digits]
            .chars()
            .chain("000000".chars())
            .take(6)
            .collect();
        micros = six.parse().ok()?;
        rest = &fraction[digits..];
    }
    let offset = match rest {
        "Z" | "z" => 0,
        _ => {
            let sign = match rest.get(..1)? {
                "+" => 1,
                "-" => -1,
                _ => return None,
            };
            let (hours, minutes) = rest.get(1..)?.split_once(':')?;
            sign * (hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60)
        }
    };
    let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
    Some(seconds * 1_000_000 + micros)
}

/// Formats a time with microseconds, as in Kubernetes leases and events.
pub fn micro_time(micros: i64) -> String {
    let (seconds, fraction) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (year, month, day) = date(seconds.div_euclid(DAY));
    let of_day = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
}

/// Formats a time in whole seconds, as in most Kubernetes objects.
pub fn seconds_time(micros: i64) -> String {
    let long = micro_time(micros.div_euclid(1_000_000) * 1_000_000);
    format!("{}Z", &long[..long.len() - 8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_parsed_and_formatted() {
        assert_eq!(parse_time("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse_time("2026-11-17T02:26:56Z"), Some(1_794_882_416_000_000));
        assert_eq!(
            parse_time("2026-11-17T04:26:56.25+02:00"),
            Some(1_794_882_416_250_000)
        );
        assert_eq!(micro_time(1_794_882_416_250_000), "2026-11-17T02:26:56.250000Z");
        assert_eq!(seconds_time(1_794_882_416_250_000), "2026-11-17T02:26:56Z");
        assert_eq!(
            parse_time("2024-02-29T00:00:00Z").map(seconds_time).as_deref(),
            Some("2024-02-29T00:00:00Z")
        );
        assert_eq!(parse_time("yesterday"), None);
        assert_eq!(parse_time("2026-13-17T02:26:56Z"), None);
    }

    proptest! {
        #[test]
        fn times_round_trip(micros in 0_i64..4_102_444_800_000_000) {
            prop_assert_eq!(parse_time(&micro_time(micros)), Some(micros));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            let _ = parse_time(&text);
        }
    }
}
