//! What was said of starts, and how they came: so that what is said next is nearer.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dovetail_control::JobNo;
use dovetail_control::book::Book;
use dovetail_control::forecast::{Calibration, Eta};
use dovetail_model::Time;

/// Jobs of which something was said and that have not started yet, at most.
const MOST: usize = 1_000;

#[derive(Debug, Default)]
struct Inner {
    calibration: Calibration,
    /// What was said first of each job, and when.
    said: BTreeMap<JobNo, (Time, Eta)>,
}

/// The record of what was said.
#[derive(Debug, Default)]
pub(crate) struct Foresight {
    inner: Mutex<Inner>,
}

impl Foresight {
    /// When the job starts, or why nothing is said.
    pub(crate) fn eta(&self, book: &Book, no: JobNo) -> Result<Eta, String> {
        let raw = book.forecast(no)?;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.look_back(book);
        if inner.said.len() < MOST {
            inner.said.entry(no).or_insert_with(|| (book.now(), raw.clone()));
        }
        book.corrected(&raw, &inner.calibration)
    }
}

impl Inner {
    /// Learns from jobs that have started since.
    fn look_back(&mut self, book: &Book) {
        let Self { calibration, said } = self;
        said.retain(|no, (at, eta)| {
            let Some(job) = book.job(*no) else {
                return false;
            };
            let started = job.attempts.iter().map(|a| a.since).find(|since| since >= at);
            if let Some(started) = started {
                calibration.learn(*at, eta, started);
            }
            started.is_none() && !job.state.is_over()
        });
    }
}
