//! One value of a file, and its conversions. Errors name the place, the value and the accepted values.

use dovetail_model::{Time, Work};

use crate::date::parse_date;
use crate::decimal::{Decimal, MAX_SECONDS};
use crate::error::{FieldError, Place, TraceError};

/// The largest gang in a file.
pub(crate) const MAX_GPUS: u64 = 1 << 20;

/// A value with its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub(crate) file: &'a str,
    pub(crate) place: Place,
    pub(crate) field: &'a str,
    pub(crate) text: &'a str,
}

impl<'a> Cell<'a> {
    /// Returns the error for an unexpected value.
    pub(crate) fn bad(&self, expected: impl Into<String>) -> TraceError {
        TraceError::Field(Box::new(FieldError {
            file: self.file.to_owned(),
            place: self.place,
            field: self.field.to_owned(),
            found: self.text.to_owned(),
            expected: expected.into(),
        }))
    }

    /// Parses any finite number.
    pub(crate) fn number(&self) -> Result<Decimal, TraceError> {
        Decimal::parse(self.text).ok_or_else(|| {
            let too_long = self.text.trim().parse().is_ok_and(f64::is_finite);
            self.bad(if too_long {
                "a number with at most 18 digits before the point"
            } else {
                "a number"
            })
        })
    }

    /// Parses seconds, not negative.
    pub(crate) fn seconds(&self) -> Result<Time, TraceError> {
        self.moment(Decimal::parse(self.text))
    }

    /// Parses milliseconds, not negative.
    pub(crate) fn millis(&self) -> Result<Time, TraceError> {
        self.moment(Decimal::parse(self.text).map(Decimal::thousandth))
    }

    fn moment(&self, seconds: Option<Decimal>) -> Result<Time, TraceError> {
        let seconds = seconds.filter(|s| !s.is_negative());
        let time = seconds.and_then(Decimal::seconds);
        time.ok_or_else(|| match seconds {
            Some(_) => self.bad(format!("a time of at most {MAX_SECONDS} seconds")),
            None => self.bad("a time of at least 0 seconds"),
        })
    }

    /// Parses a date, or seconds.
    pub(crate) fn date(&self) -> Result<Time, TraceError> {
        let seconds = || {
            Decimal::parse(self.text)
                .filter(|s| !s.is_negative())
                .and_then(Decimal::seconds)
        };
        let expected = "a date like 2017-10-09 07:01:55, or seconds";
        parse_date(self.text)
            .or_else(seconds)
            .ok_or_else(|| self.bad(expected))
    }

    /// Parses a run time in seconds; `None` if it is zero or less.
    pub(crate) fn work(&self) -> Result<Option<Work>, TraceError> {
        self.work_of(self.number()?)
    }

    /// Converts a run time in seconds that was computed from this value and others; `None` if it is zero or less.
    pub(crate) fn work_of(&self, seconds: Decimal) -> Result<Option<Work>, TraceError> {
        if !seconds.is_positive() {
            return Ok(None);
        }
        let work = seconds
            .work()
            .ok_or_else(|| self.bad(format!("a run time of at most {MAX_SECONDS} seconds")))?;
        Ok(Some(work))
    }

    /// Parses a whole number from `least` to `most`; `4.0` counts as whole.
    pub(crate) fn whole(&self, least: u64, most: u64) -> Result<u64, TraceError> {
        let number = Decimal::parse(self.text).and_then(Decimal::whole);
        match number.and_then(|n| u64::try_from(n).ok()) {
            Some(n) if n > most => Err(self.bad(format!("a whole number of at most {most}"))),
            Some(n) if n >= least => Ok(n),
            _ => Err(self.bad(format!("a whole number of at least {least}"))),
        }
    }

    /// Parses a number of GPUs; `None` if it is zero.
    pub(crate) fn gpus(&self) -> Result<Option<u32>, TraceError> {
        let gpus = self.whole(0, MAX_GPUS)?;
        Ok((gpus > 0).then_some(gpus as u32))
    }

    /// Parses a number and returns it times `10^digits` as an integer, from 0 to `most`.
    pub(crate) fn scaled(&self, digits: u32, most: i128, expected: &str) -> Result<i128, TraceError> {
        let scaled = Decimal::parse(self.text)
            .filter(|n| !n.is_negative())
            .map(|n| n.scaled_to(digits, false));
        scaled.filter(|n| *n <= most).ok_or_else(|| self.bad(expected))
    }

    /// Parses GiB and converts them to MiB, rounded to the nearest.
    pub(crate) fn gib_as_mib(&self) -> Result<u64, TraceError> {
        let mib = Decimal::parse(self.text)
            .filter(|n| !n.is_negative())
            .and_then(|n| n.times(Decimal::KIBI));
        let mib = mib.map(Decimal::rounded).filter(|n| *n <= 1 << 40);
        mib.map(|n| n as u64)
            .ok_or_else(|| self.bad("a number of GB of at least 0"))
    }
}
