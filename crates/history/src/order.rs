//! The order of lists.

use std::cmp::Ordering;

/// What a list is sorted by. Jobs with equal keys are sorted by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortField {
    /// Time of submission, which is the order of job numbers.
    Submitted,
    /// Number of GPUs asked for.
    Gpus,
    /// GPU time of all attempts.
    GpuTime,
    /// Time until it first got GPUs.
    Wait,
    /// Name.
    Name,
    /// User who submitted it.
    User,
}

/// The value that a job is sorted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SortKey {
    /// A number.
    Number(i128),
    /// A text.
    Text(String),
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    /// What it is sorted by.
    pub field: SortField,
    /// Whether large values come first.
    pub descending: bool,
}

impl Sort {
    /// Compares two jobs, each with its key and its number.
    pub fn compare(self, a: (&SortKey, u64), b: (&SortKey, u64)) -> Ordering {
        match self.descending {
            true => b.cmp(&a),
            false => a.cmp(&b),
        }
    }
}

/// The first jobs of a list after a cursor, of which a list may have millions.
#[derive(Debug)]
pub(crate) struct Selection {
    sort: Sort,
    after: Option<(SortKey, u64)>,
    limit: usize,
    kept: Vec<(SortKey, u64)>,
    /// The last job that is on the page so far, if the page is full.
    last: Option<(SortKey, u64)>,
}

impl Selection {
    pub(crate) fn new(sort: Sort, after: Option<(SortKey, u64)>, limit: usize) -> Self {
        Self {
            sort,
            after,
            limit: limit.max(1),
            kept: Vec::new(),
            last: None,
        }
    }

    fn is_after(&self, entry: (&SortKey, u64), mark: Option<&(SortKey, u64)>) -> bool {
        mark.is_some_and(|(key, id)| self.sort.compare(entry, (key, *id)) == Ordering::Greater)
    }

    /// Adds a job, unless it is on an earlier or a later page.
    pub(crate) fn offer(&mut self, key: SortKey, id: u64) {
        if self.after.is_some() && !self.is_after((&key, id), self.after.as_ref()) {
            return;
        }
        if self.is_after((&key, id), self.last.as_ref()) {
            return;
        }
        self.kept.push((key, id));
        if self.kept.len() >= 2 * self.limit {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        let sort = self.sort;
        self.kept
            .sort_unstable_by(|a, b| sort.compare((&a.0, a.1), (&b.0, b.1)));
        self.kept.truncate(self.limit);
        if self.kept.len() == self.limit {
            self.last = self.kept.last().cloned();
        }
    }

    /// Returns the jobs of the page, in order.
    pub(crate) fn finish(mut self) -> Vec<(SortKey, u64)> {
        self.shrink();
        self.kept
    }
}
