//! Tables and values from the API, printed in the requested format.

use std::time::{SystemTime, UNIX_EPOCH};

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_model::Time;
use serde::Serialize;

use crate::live::args::Output;

/// Rows of a table, and the value they come from for scripts.
pub struct Listing<'a, T> {
    /// Headings; those after the first `narrow` ones are only in wide tables and CSV.
    pub headings: &'a [&'a str],
    /// Number of columns in a narrow table.
    pub narrow: usize,
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// The value.
    pub value: &'a T,
    /// Text shown instead of an empty table.
    pub none: &'a str,
}

impl<T: Serialize> Listing<'_, T> {
    /// Returns the text in the requested format.
    ///
    /// # Errors
    /// If a value is not serializable.
    pub fn text(&self, form: Output) -> Result<String, Failure> {
        Ok(match form {
            Output::Json => serde_json::to_string_pretty(self.value).or_work()?,
            Output::Yaml => serde_saphyr::to_string(self.value)
                .or_work()?
                .trim_end()
                .to_owned(),
            Output::Csv => self.csv(),
            Output::Table | Output::Wide if self.rows.is_empty() => self.none.to_owned(),
            Output::Table => self.table(self.narrow),
            Output::Wide => self.table(self.headings.len()),
        })
    }

    fn table(&self, columns: usize) -> String {
        let mut table = console::table(&self.headings[..columns]);
        for row in &self.rows {
            table.add_row(row.iter().take(columns));
        }
        table.to_string()
    }

    fn csv(&self) -> String {
        let field = |text: &str| match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let line = |fields: Vec<String>| fields.join(",");
        let headings = self.headings.iter().map(|h| h.to_lowercase().replace(' ', "_"));
        let mut lines = vec![line(headings.collect())];
        lines.extend(
            self.rows
                .iter()
                .map(|row| line(row.iter().map(|f| field(f)).collect())),
        );
        lines.join("\n")
    }
}

/// Returns the current time, in microseconds since 1970.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Returns a span of time as text: `5s`, `3m12s`, `2h04m`, `3d07h`.
pub fn span(time: Time) -> String {
    let s = time.0.max(0) / 1_000_000;
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m{:02}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3_600, s % 3_600 / 60),
        _ => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3_600),
    }
}

/// Returns the time of day in UTC: `14:02:59`.
pub fn clock(at: Time) -> String {
    let s = at.0.div_euclid(1_000_000);
    let of_day = s.rem_euclid(86_400);
    format!(
        "{:02}:{:02}:{:02}",
        of_day / 3_600,
        of_day % 3_600 / 60,
        of_day % 60
    )
}

/// Prints a text once, or every second on a cleared screen.
///
/// # Errors
/// The error of `text`.
pub async fn watch<F>(again: bool, mut text: impl FnMut() -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<String, Failure>>,
{
    if !again {
        return console::print(text().await?);
    }
    loop {
        let shown = text().await?;
        console::print(format!("\u{1b}[H\u{1b}[2J{shown}"))?;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}
