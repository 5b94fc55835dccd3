//! Tables and colours that fit the terminal and respect `NO_COLOR` and pipes.

use std::io::{IsTerminal, Write};

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table};

use crate::{Failure, OrFailure};

/// Width of the output where neither the terminal nor `COLUMNS` gives one, in columns.
const DEFAULT_WIDTH: usize = 100;

/// Returns whether standard output should be coloured: it is a terminal, and `NO_COLOR` is unset or empty.
pub fn colours() -> bool {
    std::io::stdout().is_terminal() && !no_color()
}

fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Returns the prefix `error:`, in red where standard error may be coloured.
pub fn error_label() -> &'static str {
    if !std::io::stderr().is_terminal() || no_color() {
        "error:"
    } else {
        "\u{1b}[1;31merror:\u{1b}[0m"
    }
}

/// Creates an empty table with these headings. On a terminal its columns wrap to fit; in a pipe they do not.
pub fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic);
    if colours() {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    if !std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table.set_header(
        headings
            .iter()
            .map(|heading| Cell::new(heading).add_attribute(Attribute::Bold)),
    );
    table
}

/// Returns the width of the output in columns: `COLUMNS` if it is set, else that of the terminal, else 100.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    columns
        .or_else(|| Table::new().width().map(usize::from))
        .unwrap_or(DEFAULT_WIDTH)
}

/// Aligns all columns but the first to the right.
pub fn align_numbers(table: &mut Table) {
    for i in 1..table.column_count() {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Prints a line to standard output.
///
/// # Errors
/// Fails when standard output cannot be written. A closed pipe is such a failure too; see
/// [`Failure::is_closed_pipe`].
pub fn print(text: impl std::fmt::Display) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{text}").or_work()
}
