//! Exact decimal numbers, so that a time in a file and the microseconds in memory are equal.
//!
//! A float could turn `709.000001` seconds into a microsecond more or less, depending on rounding.

use dovetail_model::{Time, Work};

/// Microseconds in a second.
const MICROS: i128 = 1_000_000;
/// The longest time in a file, in seconds: more than three hundred years.
pub(crate) const MAX_SECONDS: i128 = 10_000_000_000;
/// Number of digits kept.
const DIGITS: u32 = 18;

/// `mantissa / 10^scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decimal {
    mantissa: i128,
    scale: u32,
}

impl Decimal {
    /// 1024.
    pub(crate) const KIBI: Decimal = Decimal {
        mantissa: 1024,
        scale: 0,
    };

    /// Parses a plain or scientific decimal number; `None` for anything else, including `NaN` and `inf`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (text, negative) = match text.strip_prefix('-') {
            Some(rest) => (rest, true),
            None => (text.strip_prefix('+').unwrap_or(text), false),
        };
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let mut value = Self::from_digits(whole.trim_start_matches('0'), fraction)?;
        value.shift(exponent)?;
        if negative {
            value.mantissa = -value.mantissa;
        }
        Some(value)
    }

    fn from_digits(whole: &str, fraction: &str) -> Option<Self> {
        if whole.len() > DIGITS as usize {
            return None;
        }
        let room = DIGITS as usize - whole.len();
        let fraction = fraction.get(..room).unwrap_or(fraction).trim_end_matches('0');
        let mut mantissa = 0i128;
        for digit in whole.bytes().chain(fraction.bytes()) {
            mantissa = mantissa * 10 + i128::from(digit - b'0');
        }
        Some(Self {
            mantissa,
            scale: fraction.len() as u32,
        })
    }

    /// Moves the decimal point. A number that is too small becomes zero; `None` if it is too large.
    fn shift(&mut self, exponent: i32) -> Option<()> {
        if self.mantissa == 0 || exponent == 0 {
            return Some(());
        }
        let scale = i64::from(self.scale) - i64::from(exponent);
        if scale < 0 {
            let power = 10i128.checked_pow(u32::try_from(-scale).ok()?)?;
            self.mantissa = self
                .mantissa
                .checked_mul(power)
                .filter(|m| *m < 10i128.pow(DIGITS))?;
            self.scale = 0;
            return Some(());
        }
        let dropped = (scale - i64::from(DIGITS)).max(0);
        let power = u32::try_from(dropped).ok().and_then(|d| 10i128.checked_pow(d));
        self.mantissa = power.map_or(0, |p| self.mantissa / p);
        self.scale = (scale - dropped) as u32;
        Some(())
    }

    /// Returns the exact product of two numbers; `None` on overflow.
    pub(crate) fn times(self, other: Decimal) -> Option<Decimal> {
        Some(Self {
            mantissa: self.mantissa.checked_mul(other.mantissa)?,
            scale: self.scale + other.scale,
        })
    }

    /// Returns a thousandth of the number: converts milliseconds to seconds.
    pub(crate) fn thousandth(self) -> Decimal {
        Self {
            mantissa: self.mantissa,
            scale: self.scale + 3,
        }
    }

    /// Whether it is below zero.
    pub(crate) fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    /// Whether it is above zero.
    pub(crate) fn is_positive(self) -> bool {
        self.mantissa > 0
    }

    /// Returns the number as an integer; `None` if it has a fraction.
    pub(crate) fn whole(self) -> Option<i128> {
        let power = 10i128.checked_pow(self.scale)?;
        (self.mantissa % power == 0).then_some(self.mantissa / power)
    }

    /// Returns the nearest integer.
    pub(crate) fn rounded(self) -> i128 {
        self.scaled_to(0, false)
    }

    /// Converts to a float.
    pub(crate) fn to_f64(self) -> f64 {
        self.mantissa as f64 / libm::pow(10.0, f64::from(self.scale))
    }

    /// Returns the number times `10^digits` as an integer, rounded up or to the nearest. Saturates.
    pub(crate) fn scaled_to(self, digits: u32, up: bool) -> i128 {
        if self.scale <= digits {
            let power = 10i128.pow((digits - self.scale).min(30));
            return self.mantissa.saturating_mul(power);
        }
        let power = 10i128.pow((self.scale - digits).min(38));
        let add = if up { power - 1 } else { power / 2 };
        self.mantissa.saturating_add(add).div_euclid(power)
    }

    /// Converts seconds to a moment, to the nearest microsecond; `None` if out of range.
    pub(crate) fn seconds(self) -> Option<Time> {
        let micros = self.scaled_to(6, false);
        (micros.abs() <= MAX_SECONDS * MICROS).then_some(Time(micros as i64))
    }

    /// Converts seconds to work, rounded up so that none is lost; `None` if negative or out of range.
    pub(crate) fn work(self) -> Option<Work> {
        let micros = self.scaled_to(6, true);
        (0..=MAX_SECONDS * MICROS)
            .contains(&micros)
            .then_some(Work(micros as u64))
    }
}

/// Formats microseconds as seconds, with as many decimals as needed.
pub(crate) fn seconds_text(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let (whole, rest) = (
        micros.unsigned_abs() / 1_000_000,
        micros.unsigned_abs() % 1_000_000,
    );
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    let digits = format!("{rest:06}");
    format!("{sign}{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(text: &str) -> Option<u64> {
        Decimal::parse(text)?.work().map(|w| w.0)
    }

    #[test]
    fn numbers_are_exact_to_the_microsecond() {
        assert_eq!(work("709.000001"), Some(709_000_001));
        assert_eq!(work("709.0000001"), Some(709_000_001), "work is rounded up");
        assert_eq!(work("13353.188732650655"), Some(13_353_188_733));
        assert_eq!(work("1e3"), Some(1_000_000_000));
        assert_eq!(work("1.5e-05"), Some(15));
        assert_eq!(work(".123"), Some(123_000));
        assert_eq!(work("-1"), None);
        assert_eq!(Decimal::parse("1e-400").map(Decimal::rounded), Some(0));
        assert_eq!(
            Decimal::parse("-2.5").and_then(Decimal::seconds),
            Some(Time(-2_500_000))
        );
        assert_eq!(Decimal::parse("4.0").and_then(Decimal::whole), Some(4));
        assert_eq!(Decimal::parse("4.5").and_then(Decimal::whole), None);
    }

    #[test]
    fn anything_else_is_not_a_number() {
        for text in [
            "",
            ".",
            "-",
            "nan",
            "inf",
            "1e",
            "1e400",
            "0x10",
            "1_000",
            "1 2",
            "9999999999999999999",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
        assert_eq!(
            Decimal::parse("1e12").and_then(Decimal::seconds),
            None,
            "out of range"
        );
    }

    #[test]
    fn products_are_exact() {
        let product = |a, b| Decimal::parse(a)?.times(Decimal::parse(b)?);
        assert_eq!(
            product("5853661", "490").map(|p| p.thousandth().work()),
            Some(Some(Work(2_868_293_890_000)))
        );
        assert_eq!(
            product("3349", "0.6").map(Decimal::work),
            Some(Some(Work(2_009_400_000)))
        );
    }

    #[test]
    fn seconds_are_formatted_and_parsed_back() {
        for micros in [0, 1, 999_999, 1_000_000, 1_500_000, 123_456_789_012, -2_500_000] {
            let text = seconds_text(micros);
            assert_eq!(
                Decimal::parse(&text).and_then(Decimal::seconds),
                Some(Time(micros)),
                "{text}"
            );
        }
    }
}
