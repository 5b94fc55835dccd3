//! Conditions of queries, built term by term.

use rusqlite::types::Value;

/// Terms that all have to hold, with the values of their placeholders.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    text: String,
    pub(crate) values: Vec<Value>,
}

impl Conditions {
    /// Adds a term.
    pub(crate) fn and(&mut self, term: &str, values: impl IntoIterator<Item = Value>) {
        self.text
            .push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(term);
        self.values.extend(values);
    }

    /// Adds a term that a column has one of these numbers. No index is used for a column with a plus sign.
    pub(crate) fn and_one_of(&mut self, column: &str, numbers: &[i64]) {
        match numbers {
            [number] => self.and(&format!("{column} = ?"), [Value::Integer(*number)]),
            _ => self.and(
                &one_of(column, numbers.len()),
                numbers.iter().copied().map(Value::Integer),
            ),
        }
    }

    /// Returns the clause, with the keyword in front; empty without terms.
    pub(crate) fn clause(&self) -> &str {
        &self.text
    }
}

/// Returns a term that a column has one of several values.
pub(crate) fn one_of(column: &str, values: usize) -> String {
    format!("{column} IN ({})", vec!["?"; values].join(","))
}
