//! CSV parsing with file, line and column in error messages.

use std::collections::BTreeMap;
use std::path::Path;

use dovetail_model::{Time, Work};

use crate::error::{ReportError, quoted};

/// Largest accepted time: 30,000 years, in microseconds.
const FAR: i128 = 1_000_000_000_000_000_000;
const SPAN: &str = "a number of seconds within ±1,000,000,000,000, such as 300 or 0.5";

/// A table whose columns are found by name.
pub(crate) struct Table<'a> {
    path: &'a Path,
    columns: BTreeMap<String, usize>,
    rows: Vec<csv::ByteRecord>,
}

impl<'a> Table<'a> {
    /// Parses the table, which must have the `required` columns.
    pub(crate) fn parse(path: &'a Path, bytes: &[u8], required: &[&str]) -> Result<Self, ReportError> {
        let mut reader = csv::ReaderBuilder::new()
            .flexible(true)
            .trim(csv::Trim::Headers)
            .from_reader(bytes);
        let syntax = |error: csv::Error| ReportError::Invalid {
            path: path.into(),
            line: error.position().map_or(1, csv::Position::line),
            field: "row".into(),
            found: error.to_string(),
            accepted: "comma-separated text".into(),
        };
        let header = reader.byte_headers().map_err(syntax)?.clone();
        let names: Vec<String> = header
            .iter()
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        for column in required {
            if !names.iter().any(|name| name == column) {
                return Err(ReportError::Invalid {
                    path: path.into(),
                    line: 1,
                    field: format!("column {column}"),
                    found: format!("no such column among {}", quoted(&names.join(","))),
                    accepted: format!("a header with {}", required.join(",")),
                });
            }
        }
        let columns = names
            .into_iter()
            .enumerate()
            .rev()
            .map(|(i, name)| (name, i))
            .collect();
        let rows = reader
            .byte_records()
            .collect::<Result<Vec<_>, _>>()
            .map_err(syntax)?;
        Ok(Self { path, columns, rows })
    }

    pub(crate) fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// Returns the header as in the file.
    pub(crate) fn names(&self) -> String {
        let mut names: Vec<(&usize, &str)> = self.columns.iter().map(|(n, i)| (i, n.as_str())).collect();
        names.sort_unstable();
        names.into_iter().map(|(_, n)| n).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|record| Row { table: self, record })
    }
}

/// One row.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    table: &'a Table<'a>,
    record: &'a csv::ByteRecord,
}

impl Row<'_> {
    pub(crate) fn has(&self, column: &str) -> bool {
        self.table.has(column)
    }

    /// Returns the text of a cell; empty if the row is too short.
    pub(crate) fn text(&self, column: &str) -> Result<&str, ReportError> {
        let cell = self
            .table
            .columns
            .get(column)
            .and_then(|i| self.record.get(*i))
            .unwrap_or_default();
        std::str::from_utf8(cell)
            .map_err(|_| self.invalid(column, &String::from_utf8_lossy(cell), "text in UTF-8"))
    }

    /// Returns the trimmed text of a cell with a number.
    fn trimmed(&self, column: &str) -> Result<&str, ReportError> {
        self.text(column).map(str::trim)
    }

    pub(crate) fn invalid(&self, column: &str, found: &str, accepted: &str) -> ReportError {
        ReportError::Invalid {
            path: self.table.path.into(),
            line: self.record.position().map_or(0, csv::Position::line),
            field: format!("column {column}"),
            found: if found.is_empty() {
                "an empty cell".into()
            } else {
                quoted(found)
            },
            accepted: accepted.into(),
        }
    }

    /// Parses a whole number.
    pub(crate) fn whole(&self, column: &str) -> Result<u32, ReportError> {
        let text = self.trimmed(column)?;
        text.parse()
            .map_err(|_| self.invalid(column, text, "a whole number from 0 to 4294967295"))
    }

    /// Parses a finite number.
    pub(crate) fn number(&self, column: &str) -> Result<f64, ReportError> {
        let text = self.trimmed(column)?;
        let parsed = text.parse().ok().filter(|v: &f64| v.is_finite());
        parsed.ok_or_else(|| self.invalid(column, text, "a finite number"))
    }

    /// Parses a number; `None` if the cell is empty or the column is missing.
    pub(crate) fn optional_number(&self, column: &str) -> Result<Option<f64>, ReportError> {
        if self.trimmed(column)?.is_empty() {
            return Ok(None);
        }
        self.number(column).map(Some)
    }

    /// Parses seconds.
    pub(crate) fn time(&self, column: &str) -> Result<Time, ReportError> {
        let text = self.trimmed(column)?;
        micros(text)
            .map(Time)
            .ok_or_else(|| self.invalid(column, text, SPAN))
    }

    /// Parses seconds; `None` if the cell is empty.
    pub(crate) fn optional_time(&self, column: &str) -> Result<Option<Time>, ReportError> {
        let text = self.trimmed(column)?;
        if text.is_empty() {
            return Ok(None);
        }
        micros(text)
            .map(|t| Some(Time(t)))
            .ok_or_else(|| self.invalid(column, text, &format!("{SPAN}, or nothing")))
    }

    /// Parses seconds of work, not below zero.
    pub(crate) fn work(&self, column: &str) -> Result<Work, ReportError> {
        let text = self.trimmed(column)?;
        let parsed = micros(text).and_then(|t| u64::try_from(t).ok());
        parsed
            .map(Work)
            .ok_or_else(|| self.invalid(column, text, &format!("{SPAN}, not below zero")))
    }
}

/// Converts seconds to exact microseconds. Plain decimals are exact, other notations are rounded.
fn micros(text: &str) -> Option<i64> {
    let exact = plain_micros(text);
    let value = match exact {
        Some(exact) => exact,
        None => (text.parse::<f64>().ok().filter(|v| v.abs() < 1e13)? * 1e6).round() as i128,
    };
    (value.abs() <= FAR).then_some(value as i64)
}

fn plain_micros(text: &str) -> Option<i128> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > 18 || rest.len() > 6 || !all_digits(whole) || !all_digits(rest) {
        return None;
    }
    let micros = whole.parse::<i128>().ok()? * 1_000_000 + format!("{rest:0<6}").parse::<i128>().ok()?;
    Some(if negative { -micros } else { micros })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact_and_bounded() {
        assert_eq!(micros("300"), Some(300_000_000));
        assert_eq!(micros("-0.000001"), Some(-1));
        assert_eq!(micros("1e3"), Some(1_000_000_000));
        assert_eq!(micros("0.1234567"), Some(123_457));
        for bad in [
            "",
            "x",
            "NaN",
            "inf",
            "1e300",
            "99999999999999999",
            "--1",
            "1.2.3",
        ] {
            assert_eq!(micros(bad), None, "{bad}");
        }
    }
}
