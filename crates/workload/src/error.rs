//! Errors in traces, with the information needed to fix them.

use std::fmt;

use crate::format::Format;

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A line of text, from 1.
    Line(u64),
    /// An element of a JSON array, from 0.
    Element(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "{line}"),
            Self::Element(index) => write!(f, " job {index} (the first is 0)"),
        }
    }
}

/// A trace that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file does not exist or is not readable.
    #[error("{file}: cannot open: {reason}")]
    Open {
        /// The file.
        file: String,
        /// The system's error.
        reason: std::io::Error,
    },
    /// Reading failed: a broken disk, a truncated or damaged compressed file.
    #[error("{file}: cannot read: {reason}{hint}")]
    Broken {
        /// The file.
        file: String,
        /// The error of the system or the decompressor.
        reason: std::io::Error,
        /// What to check.
        hint: &'static str,
    },
    /// The file is empty.
    #[error(
        "{file}: the file is empty; expected a trace in one of these formats: {}",
        Format::names()
    )]
    Empty {
        /// The file.
        file: String,
    },
    /// It has no jobs that could run.
    #[error("{file}: no jobs{}", .notes.iter().map(|n| format!("; {n}")).collect::<String>())]
    NoJobs {
        /// The file.
        file: String,
        /// What was skipped.
        notes: Vec<String>,
    },
    /// The format is not recognised.
    #[error(
        "{file}: cannot detect the format: {seen}; name one of these formats, or use the columns of one: {}",
        Format::names()
    )]
    UnknownFormat {
        /// The file.
        file: String,
        /// Its beginning.
        seen: String,
    },
    /// The format is known, but lacks what a simulation needs.
    #[error("{file}: {problem}")]
    Unsupported {
        /// The file.
        file: String,
        /// What the file is, what it lacks and how to fix it.
        problem: String,
    },
    /// A column is missing.
    #[error("{0}")]
    MissingColumn(Box<MissingColumn>),
    /// Two columns have the same name.
    #[error("{file}:{place}: duplicate column {column:?}: expected each name once")]
    DuplicateColumn {
        /// The file.
        file: String,
        /// The place.
        place: Place,
        /// The name.
        column: String,
    },
    /// A row is longer or shorter than the header.
    #[error("{file}:{place}: found {found} fields, expected {expected}")]
    RowLength {
        /// The file.
        file: String,
        /// The place.
        place: Place,
        /// Fields in this row.
        found: usize,
        /// Expected number of fields.
        expected: String,
    },
    /// An invalid value.
    #[error("{0}")]
    Field(Box<FieldError>),
    /// Text that is not UTF-8.
    #[error("{file}:{place}: found bytes that are not UTF-8 text, expected UTF-8")]
    NotUtf8 {
        /// The file.
        file: String,
        /// The place.
        place: Place,
    },
    /// Invalid JSON, or JSON of the wrong shape.
    #[error("{file}:{place}: invalid JSON: {reason}; expected {expected}")]
    Json {
        /// The file.
        file: String,
        /// The place.
        place: Place,
        /// The JSON parser's error.
        reason: String,
        /// The expected value.
        expected: &'static str,
    },
}

/// An invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The file.
    pub file: String,
    /// The place.
    pub place: Place,
    /// The column or key.
    pub field: String,
    /// The value found.
    pub found: String,
    /// The accepted values.
    pub expected: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            place,
            field,
            found,
            expected,
        } = self;
        write!(
            f,
            "{file}:{place}: field {field}: found {}, expected {expected}",
            shown(found)
        )
    }
}

/// A missing column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingColumn {
    /// The file.
    pub file: String,
    /// The place.
    pub place: Place,
    /// The format it was read as.
    pub format: &'static str,
    /// The column or key.
    pub missing: String,
    /// The columns found.
    pub found: Vec<String>,
    /// The required columns.
    pub required: Vec<String>,
}

impl fmt::Display for MissingColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            place,
            format,
            missing,
            found,
            required,
        } = self;
        write!(f, "{file}:{place}: missing column {missing:?}")?;
        let unused = found.iter().filter(|c| !required.contains(c));
        if let Some(near) = dovetail_model::suggest::nearest(missing, unused.map(String::as_str)).first() {
            write!(f, " (did you mean {near:?}?)")?;
        }
        let found: Vec<_> = found.iter().map(|c| shorten(c)).collect();
        write!(
            f,
            "; found {}; the {format} format requires {}",
            found.join(", "),
            required.join(", ")
        )
    }
}

/// Returns a value for an error message: quoted, and truncated if long.
pub(crate) fn shown(text: &str) -> String {
    if text.is_empty() {
        "nothing".to_owned()
    } else {
        format!("{:?}", shorten(text))
    }
}

/// Returns the text, truncated if long.
pub(crate) fn shorten(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST).chain("…".chars()).collect()
}
