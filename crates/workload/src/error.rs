//! What can be wrong with a trace, said so that it can be put right.

use std::fmt;

use crate::format::Format;

/// Where in a file something is.
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
    /// The file is not there or may not be read.
    #[error("{file}: cannot be opened: {reason}")]
    Open {
        /// The file.
        file: String,
        /// What the system says.
        reason: std::io::Error,
    },
    /// Reading broke off: a broken disk, a truncated or damaged compressed file.
    #[error("{file}: reading broke off: {reason}{hint}")]
    Broken {
        /// The file.
        file: String,
        /// What the system or the decompressor says.
        reason: std::io::Error,
        /// What to look at.
        hint: &'static str,
    },
    /// There is nothing in it.
    #[error(
        "{file}: the file is empty; expected a trace in one of these formats: {}",
        Format::names()
    )]
    Empty {
        /// The file.
        file: String,
    },
    /// There are no jobs in it that could run.
    #[error("{file}: there is no job in it{}", .notes.iter().map(|n| format!("; {n}")).collect::<String>())]
    NoJobs {
        /// The file.
        file: String,
        /// What was left out.
        notes: Vec<String>,
    },
    /// Nothing tells which format it is.
    #[error(
        "{file}: cannot tell the format: {seen}; name one of these formats, or give the columns one of them has: {}",
        Format::names()
    )]
    UnknownFormat {
        /// The file.
        file: String,
        /// What is at its beginning.
        seen: String,
    },
    /// It is known what it is, but it lacks what a simulation needs.
    #[error("{file}: {what}")]
    Unsupported {
        /// The file.
        file: String,
        /// What it is, what it lacks and what to do.
        what: String,
    },
    /// A column is not there.
    #[error("{0}")]
    MissingColumn(Box<MissingColumn>),
    /// Two columns have the same name.
    #[error("{file}:{place}: column {column:?} is there twice; expected each name once")]
    DuplicateColumn {
        /// The file.
        file: String,
        /// Where.
        place: Place,
        /// The name.
        column: String,
    },
    /// A row is longer or shorter than the header.
    #[error("{file}:{place}: found {found} fields, expected {expected}")]
    RowLength {
        /// The file.
        file: String,
        /// Where.
        place: Place,
        /// Fields in this row.
        found: usize,
        /// Fields there should be.
        expected: String,
    },
    /// A value that is not what it should be.
    #[error("{0}")]
    Field(Box<FieldError>),
    /// Text that is not UTF-8.
    #[error("{file}:{place}: found bytes that are not UTF-8 text, expected UTF-8")]
    NotUtf8 {
        /// The file.
        file: String,
        /// Where.
        place: Place,
    },
    /// JSON that is not JSON, or not of the right shape.
    #[error("{file}:{place}: not the JSON expected here: {reason}; expected {expected}")]
    Json {
        /// The file.
        file: String,
        /// Where.
        place: Place,
        /// What the JSON reader says.
        reason: String,
        /// What it should be.
        expected: &'static str,
    },
}

/// A value that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The file.
    pub file: String,
    /// Where.
    pub place: Place,
    /// The column or key.
    pub field: String,
    /// What is there.
    pub found: String,
    /// What would be accepted.
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

/// A column that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingColumn {
    /// The file.
    pub file: String,
    /// Where.
    pub place: Place,
    /// The format it was read as.
    pub format: &'static str,
    /// The column or key.
    pub missing: String,
    /// The columns there are.
    pub found: Vec<String>,
    /// The columns there must be.
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
        write!(f, "{file}:{place}: there is no column {missing:?}")?;
        let unused = found.iter().filter(|c| !required.contains(c));
        if let Some(near) = dovetail_model::suggest::nearest(missing, unused.map(String::as_str)).first() {
            write!(f, " (is it {near:?}?)")?;
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

/// A value as an error shows it: quoted, and cut where it is long.
pub(crate) fn shown(text: &str) -> String {
    if text.is_empty() {
        "nothing".to_owned()
    } else {
        format!("{:?}", shorten(text))
    }
}

/// The first line of what a YAML reader says; the lines below it show the text around.
pub(crate) fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

/// The text, or its beginning where it is long.
pub(crate) fn shorten(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST).chain("…".chars()).collect()
}
