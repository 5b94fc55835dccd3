//! Reads a CSV file row by row.

use std::io::{BufReader, Read};

use csv::{ErrorKind, StringRecord};

use super::cell::Cell;
use super::lines::Lines;
use super::{Input, broken};
use crate::error::{MissingColumn, Place, TraceError};

/// An open CSV file whose header has been read.
pub(crate) struct Table<'a> {
    file: String,
    compressed: bool,
    header: Vec<String>,
    header_line: u64,
    reader: csv::Reader<Lines<BufReader<Box<dyn Read + 'a>>>>,
    record: StringRecord,
    line: u64,
}

/// One row.
#[derive(Clone, Copy)]
pub(crate) struct Row<'t> {
    file: &'t str,
    header: &'t [String],
    record: &'t StringRecord,
    place: Place,
}

impl<'a> Table<'a> {
    /// Opens a file whose first line names the columns.
    pub(crate) fn with_header(input: Input<'a>) -> Result<Self, TraceError> {
        let mut table = Self::without_header(input, b',', &[]);
        if !table.advance()? {
            return Err(TraceError::Empty { file: table.file });
        }
        table.header = table
            .record
            .iter()
            .map(|c| c.trim().trim_start_matches('\u{feff}').to_owned())
            .collect();
        table.header_line = table.line;
        for (i, column) in table.header.iter().enumerate() {
            if table.header[..i].contains(column) {
                let (file, place) = (table.file.clone(), Place::Line(table.header_line));
                return Err(TraceError::DuplicateColumn {
                    file,
                    place,
                    column: column.clone(),
                });
            }
        }
        Ok(table)
    }

    /// Opens a file without a header; `columns` are the names of its columns in errors.
    pub(crate) fn without_header(input: Input<'a>, delimiter: u8, columns: &[&str]) -> Self {
        let mut builder = csv::ReaderBuilder::new();
        builder
            .has_headers(false)
            .flexible(true)
            .delimiter(delimiter)
            .quoting(delimiter != b'\t');
        Self {
            file: input.file,
            compressed: input.compressed,
            header: columns.iter().map(|c| (*c).to_owned()).collect(),
            header_line: 1,
            reader: builder.from_reader(Lines::new(input.reader)),
            record: StringRecord::new(),
            line: 0,
        }
    }

    /// Returns the columns of the file.
    pub(crate) fn header(&self) -> &[String] {
        &self.header
    }

    /// Returns the position of a column.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|c| c == name)
    }

    /// Returns the positions of the columns that a format requires.
    pub(crate) fn require<const N: usize>(
        &self,
        format: &'static str,
        names: [&str; N],
    ) -> Result<[usize; N], TraceError> {
        let mut columns = [0; N];
        for (column, name) in columns.iter_mut().zip(names) {
            *column = self.column(name).ok_or_else(|| {
                TraceError::MissingColumn(Box::new(MissingColumn {
                    file: self.file.clone(),
                    place: Place::Line(self.header_line),
                    format,
                    missing: name.to_owned(),
                    found: self.header.clone(),
                    required: names.map(str::to_owned).to_vec(),
                }))
            })?;
        }
        Ok(columns)
    }

    /// Reads the next row, which must be as long as the header.
    pub(crate) fn next_row(&mut self) -> Result<Option<Row<'_>>, TraceError> {
        if !self.advance()? {
            return Ok(None);
        }
        if self.record.len() != self.header.len() {
            return Err(self.wrong_length(self.header.len().to_string()));
        }
        Ok(Some(self.row()))
    }

    /// Reads the next row of any length.
    pub(crate) fn next_row_of_any_length(&mut self) -> Result<Option<Row<'_>>, TraceError> {
        Ok(self.advance()?.then(|| self.row()))
    }

    fn row(&self) -> Row<'_> {
        Row {
            file: &self.file,
            header: &self.header,
            record: &self.record,
            place: Place::Line(self.line),
        }
    }

    fn wrong_length(&self, expected: String) -> TraceError {
        let (file, place) = (self.file.clone(), Place::Line(self.line));
        TraceError::RowLength {
            file,
            place,
            found: self.record.len(),
            expected,
        }
    }

    fn advance(&mut self) -> Result<bool, TraceError> {
        let result = self.reader.read_record(&mut self.record);
        let end = self.reader.position().byte();
        self.line = self.reader.get_mut().line_before(end);
        result.map_err(|error| match error.into_kind() {
            ErrorKind::Io(reason) => broken(&self.file, self.compressed, reason),
            ErrorKind::Utf8 { .. } => TraceError::NotUtf8 {
                file: self.file.clone(),
                place: Place::Line(self.line),
            },
            other => {
                let reason = std::io::Error::other(format!("{other:?}"));
                TraceError::Broken {
                    file: self.file.clone(),
                    reason,
                    hint: "",
                }
            }
        })
    }
}

impl<'t> Row<'t> {
    /// Returns the number of fields.
    pub(crate) fn len(&self) -> usize {
        self.record.len()
    }

    /// Returns the value in a column.
    pub(crate) fn cell(&self, column: usize) -> Cell<'t> {
        Cell {
            file: self.file,
            place: self.place,
            field: self.header.get(column).map_or("", String::as_str),
            text: self.record.get(column).unwrap_or_default(),
        }
    }

    /// Returns the value in an optional column; `None` if it is missing or empty.
    pub(crate) fn optional(&self, column: Option<usize>) -> Option<Cell<'t>> {
        column.map(|c| self.cell(c)).filter(|c| !c.text.trim().is_empty())
    }

    /// Returns the text in an optional column; empty if it is missing.
    pub(crate) fn text(&self, column: Option<usize>) -> &'t str {
        column.and_then(|c| self.record.get(c)).unwrap_or_default()
    }

    /// Returns the error for a row with the wrong number of fields.
    pub(crate) fn wrong_length(&self, expected: &str) -> TraceError {
        let (file, place) = (self.file.to_owned(), self.place);
        TraceError::RowLength {
            file,
            place,
            found: self.len(),
            expected: expected.to_owned(),
        }
    }
}
