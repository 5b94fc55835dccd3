//! The result of an experiment, and how it is printed and saved.

use std::path::Path;

use comfy_table::Table;
use dovetail_report::Figure;
use dovetail_report::files::write_file;
use serde_json::Value;

use crate::ReproduceError;

/// The result of an experiment.
#[derive(Debug, Clone)]
pub struct Report {
    /// The numbers, as a table.
    pub table: Table,
    /// Published statements, and whether our runs agree.
    pub statements: Vec<Statement>,
    /// Remarks about the runs: what was skipped, and how they were configured.
    pub notes: Vec<String>,
    /// Figures for `--out`.
    pub figures: Vec<Figure>,
    /// The numbers, for `--json` and `--out`.
    pub data: Value,
}

/// A published statement, and whether our runs agree with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The statement, with our numbers beside the published ones.
    pub text: String,
    /// Whether it holds.
    pub holds: bool,
}

impl Statement {
    pub(crate) fn new(text: impl Into<String>, holds: bool) -> Self {
        Self {
            text: text.into(),
            holds,
        }
    }
}

impl Report {
    /// Returns the table, the statements and the notes as text.
    pub fn text(&self) -> String {
        let mut lines = vec![self.table.to_string()];
        lines.extend(self.statements.iter().map(|statement| {
            let mark = if statement.holds { "✓" } else { "✗" };
            format!("{mark} {}", statement.text)
        }));
        lines.extend(self.notes.iter().map(|note| format!("· {note}")));
        lines.join("\n")
    }

    /// Writes `report.html`, `data.json` and the figures to a folder.
    ///
    /// # Errors
    /// Fails when a file cannot be written.
    pub fn save(&self, dir: &Path, title: &str) -> Result<(), ReproduceError> {
        let statements: Vec<(String, bool)> = self
            .statements
            .iter()
            .map(|statement| (statement.text.clone(), statement.holds))
            .collect();
        let page = dovetail_report::html_of_experiment(title, &statements, &self.notes, &self.figures);
        write_file(&dir.join("report.html"), page.as_bytes())?;
        let data = serde_json::to_string_pretty(&self.data)?;
        write_file(&dir.join("data.json"), data.as_bytes())?;
        for figure in &self.figures {
            let path = dir.join("figures").join(format!("{}.svg", figure.name));
            write_file(&path, figure.svg().as_bytes())?;
        }
        Ok(())
    }

    /// Checks that all statements hold.
    ///
    /// # Errors
    /// Names the first statement that does not hold.
    pub fn check(&self) -> Result<(), ReproduceError> {
        match self.statements.iter().find(|statement| !statement.holds) {
            None => Ok(()),
            Some(statement) => Err(ReproduceError::NotReproduced(statement.text.clone())),
        }
    }
}

/// Returns `; not: a, b` if there are exceptions to a statement, else nothing.
pub(crate) fn exceptions(exceptions: &[String]) -> String {
    if exceptions.is_empty() {
        String::new()
    } else {
        format!("; not: {}", exceptions.join(", "))
    }
}
