//! Converts dates of traces (`2017-10-09 07:01:55`) to seconds and back, in the proleptic Gregorian calendar without time zones.

use dovetail_model::Time;

/// Returns the days from 1970-01-01 to a date. Years are counted from March so that the leap day is the last one.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days_before_month = (153 * month_from_march + 2) / 5;
    year * 365 + leap_days + days_before_month + day - 1 - 719_468
}

/// Returns the date of a day counted from 1970-01-01.
fn date_of_day(days: i64) -> (i64, i64, i64) {
    // The year is off by at most one from this estimate.
    let mut year = 1970 + days.div_euclid(366);
    while days_from_epoch(year + 1, 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12)
        .rev()
        .find(|m| days_from_epoch(year, *m, 1) <= days)
        .unwrap_or(1);
    (year, month, days - days_from_epoch(year, month, 1) + 1)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 {
        (year + 1, 1)
    } else {
        (year, month + 1)
    };
    days_from_epoch(next_year, next_month, 1) - days_from_epoch(year, month, 1)
}

/// Parses `YYYY-MM-DD HH:MM:SS`, also with a `T` in between, a fraction of a second, and `Z` or `+00:00` at the end.
pub(crate) fn parse_date(text: &str) -> Option<Time> {
    let text = text.trim();
    let text = text
        .strip_suffix('Z')
        .or_else(|| text.strip_suffix("+00:00"))
        .unwrap_or(text);
    let (date, time) = text.split_once([' ', 'T'])?;
    let number = |part: &str, width: usize, range: std::ops::RangeInclusive<i64>| {
        let plain = part.len() == width && part.bytes().all(|b| b.is_ascii_digit());
        part.parse::<i64>().ok().filter(|n| plain && range.contains(n))
    };

    let mut parts = date.split('-');
    let year = number(parts.next()?, 4, 1970..=2200)?;
    let month = number(parts.next()?, 2, 1..=12)?;
    let day = number(parts.next()?, 2, 1..=days_in_month(year, month))?;
    let mut clock = time.split(':');
    let hour = number(clock.next()?, 2, 0..=23)?;
    let minute = number(clock.next()?, 2, 0..=59)?;
    let (whole, fraction) = clock.next().map(|s| s.split_once('.').unwrap_or((s, "")))?;
    let second = number(whole, 2, 0..=60)?;
    if parts.next().is_some() || clock.next().is_some() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let micros: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let seconds = days_from_epoch(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Time(seconds * 1_000_000 + micros))
}

/// Formats a moment after 1970 as `YYYY-MM-DD HH:MM:SS`, with a fraction if there is one.
pub(crate) fn date_text(time: Time) -> String {
    let (seconds, micros) = (time.0.div_euclid(1_000_000), time.0.rem_euclid(1_000_000));
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date_of_day(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    if micros != 0 {
        text.push_str(format!(".{micros:06}").trim_end_matches('0'));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds_since_1970() {
        assert_eq!(parse_date("1970-01-01 00:00:00"), Some(Time(0)));
        assert_eq!(
            parse_date("2017-10-09 07:01:55"),
            Some(Time::from_secs(1_507_532_515))
        );
        assert_eq!(
            parse_date("2020-02-29T12:00:00.5Z"),
            Some(Time(1_582_977_600_500_000))
        );
        for bad in [
            "",
            "2017-02-29 00:00:00",
            "2017-13-01 00:00:00",
            "2017-1-1 00:00:00",
            "None",
            "2017-10-09",
        ] {
            assert_eq!(parse_date(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_day_of_two_centuries_is_formatted_and_parsed_back() {
        let mut last = None;
        for day in 0..80_000 {
            let time = Time(day * 86_400_000_000 + day);
            let text = date_text(time);
            assert_eq!(parse_date(&text), Some(time), "{text}");
            assert!(last.as_ref() < Some(&text));
            last = Some(text);
        }
    }
}
