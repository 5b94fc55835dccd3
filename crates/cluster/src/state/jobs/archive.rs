//! Ended jobs leave memory when the history database has them and nothing here needs them any more.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{JobRecord, JobTable};
use crate::JobId;

/// How a job ended that is only in the history database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastEnd {
    /// Number of the job.
    pub job: JobId,
    /// Whether it completed.
    pub completed: bool,
}

/// A label of a job that is only in the history database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::state) struct LabelChange {
    job: JobId,
    key: String,
    value: Option<String>,
}

/// A change that the history database does not have yet.
#[derive(Debug, Clone, PartialEq)]
pub enum ArchiveChange {
    /// The job has ended, or was changed after its end.
    Job(Box<JobRecord>),
    /// A label of a job that is only in the database was set, or removed if there is no value.
    Label {
        /// Number of the job.
        job: JobId,
        /// Key of the label.
        key: String,
        /// Value of the label.
        value: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq)]
enum Change {
    Job(JobId),
    Label(LabelChange),
}

/// What the history database has, and what it does not have yet.
#[derive(Debug, Clone, Default)]
pub(in crate::state) struct Archive {
    /// Changes that the database does not have yet, in order.
    changes: BTreeMap<u64, Change>,
    /// The change of each job among them.
    by_job: BTreeMap<JobId, u64>,
    next_change: u64,
    /// Number of jobs that have left memory so far.
    departed: u64,
    /// Every job from this number on is in memory.
    floor: JobId,
    /// Ends of jobs that have left memory and that unfinished jobs depend on.
    past_ends: BTreeMap<JobId, bool>,
}

/// The saved form of an archive.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct SavedArchive {
    /// Ended jobs that the database may not have.
    unwritten: Vec<JobId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<LabelChange>,
    departed: u64,
    floor: JobId,
    next_job: JobId,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    past_ends: Vec<PastEnd>,
}

impl Archive {
    fn note(&mut self, change: Change) -> u64 {
        self.next_change += 1;
        self.changes.insert(self.next_change, change);
        self.next_change
    }

    /// Notes that the database does not have the job as it is now.
    pub(super) fn note_job(&mut self, id: JobId) {
        let number = self.note(Change::Job(id));
        if let Some(earlier) = self.by_job.insert(id, number) {
            self.changes.remove(&earlier);
        }
    }
}

impl JobTable {
    /// Begins to note what the history database does not have. Returns whether it was not noted before.
    pub(in crate::state) fn start_archive(&mut self) -> bool {
        if self.archive.is_some() {
            return false;
        }
        let mut archive = Archive::default();
        for job in self.iter().filter(|job| job.state.has_ended()) {
            archive.note_job(job.id);
        }
        self.archive = Some(archive);
        true
    }

    /// Restores what was noted.
    pub(in crate::state) fn restore_archive(&mut self, saved: SavedArchive) {
        let mut archive = Archive {
            departed: saved.departed,
            floor: saved.floor,
            past_ends: saved
                .past_ends
                .iter()
                .map(|end| (end.job, end.completed))
                .collect(),
            ..Archive::default()
        };
        saved.unwritten.into_iter().for_each(|id| archive.note_job(id));
        for label in saved.labels {
            archive.note(Change::Label(label));
        }
        self.reserve(saved.next_job);
        self.archive = Some(archive);
    }

    /// Returns the saved form of what was noted.
    pub(in crate::state) fn saved_archive(&self) -> Option<SavedArchive> {
        let archive = self.archive.as_ref()?;
        let label = |change: &Change| match change {
            Change::Label(label) => Some(label.clone()),
            Change::Job(_) => None,
        };
        let past_end = |(job, completed): (&JobId, &bool)| PastEnd {
            job: *job,
            completed: *completed,
        };
        Some(SavedArchive {
            unwritten: archive.by_job.keys().copied().collect(),
            labels: archive.changes.values().filter_map(label).collect(),
            departed: archive.departed,
            floor: archive.floor,
            next_job: self.next_id(),
            past_ends: archive.past_ends.iter().map(past_end).collect(),
        })
    }

    /// Notes that an ended job was changed.
    pub(in crate::state) fn note_change(&mut self, id: JobId) {
        let has_ended = self.get(id).is_some_and(|job| job.state.has_ended());
        if let Some(archive) = self.archive.as_mut().filter(|_| has_ended) {
            archive.note_job(id);
        }
    }

    /// Notes a label of a job that has left memory.
    pub(in crate::state) fn note_label(&mut self, id: JobId, key: &str, value: Option<&str>) {
        if !self.has_departed(id) {
            return;
        }
        if let Some(archive) = &mut self.archive {
            archive.note(Change::Label(LabelChange {
                job: id,
                key: key.to_owned(),
                value: value.map(str::to_owned),
            }));
        }
    }

    /// Notes how jobs ended that are only in the history database.
    pub(in crate::state) fn note_past_ends(&mut self, ends: &[PastEnd]) {
        if let Some(archive) = &mut self.archive {
            archive
                .past_ends
                .extend(ends.iter().map(|end| (end.job, end.completed)));
        }
    }

    /// Returns whether a job that has left memory completed, if that was noted.
    pub(in crate::state) fn past_end(&self, id: JobId) -> Option<bool> {
        self.archive.as_ref()?.past_ends.get(&id).copied()
    }

    /// Returns whether the job has ended and left memory.
    pub(in crate::state) fn has_departed(&self, id: JobId) -> bool {
        id > 0 && id < self.floor() && self.get(id).is_none()
    }

    /// Returns the number from which on every job is in memory.
    pub(in crate::state) fn floor(&self) -> JobId {
        self.archive.as_ref().map_or(0, |archive| archive.floor)
    }

    /// Returns how many jobs have left memory so far.
    pub(in crate::state) fn departed_count(&self) -> u64 {
        self.archive.as_ref().map_or(0, |archive| archive.departed)
    }

    /// Returns the number of the last change.
    pub(in crate::state) fn last_change(&self) -> u64 {
        self.archive.as_ref().map_or(0, |archive| archive.next_change)
    }

    /// Returns how many changes the database does not have yet.
    pub(in crate::state) fn unwritten_count(&self) -> usize {
        self.archive.as_ref().map_or(0, |archive| archive.changes.len())
    }

    /// Returns changes after one number and up to another, in order.
    pub(in crate::state) fn changes(&self, after: u64, up_to: u64, most: usize) -> Vec<(u64, ArchiveChange)> {
        let Some(archive) = self.archive.as_ref().filter(|_| after < up_to) else {
            return Vec::new();
        };
        let change = |(number, change): (&u64, &Change)| {
            let change = match change {
                Change::Job(id) => ArchiveChange::Job(Box::new(self.get(*id)?.clone())),
                Change::Label(label) => ArchiveChange::Label {
                    job: label.job,
                    key: label.key.clone(),
                    value: label.value.clone(),
                },
            };
            Some((*number, change))
        };
        let range = archive.changes.range(after + 1..=up_to);
        range.take(most).filter_map(change).collect()
    }

    /// Notes that the database has all changes up to this number.
    pub(in crate::state) fn acknowledge(&mut self, number: u64) {
        if let Some(archive) = &mut self.archive {
            let rest = archive.changes.split_off(&(number + 1));
            for change in std::mem::replace(&mut archive.changes, rest).into_values() {
                if let Change::Job(id) = change {
                    archive.by_job.remove(&id);
                }
            }
        }
    }

    /// Notes that the database does not have these jobs, although it had confirmed them.
    pub(in crate::state) fn note_missing(&mut self, ids: &[JobId]) {
        ids.iter().for_each(|id| self.note_change(*id));
    }

    /// Gives all changes new numbers, after those of an earlier state.
    pub(in crate::state) fn number_changes_after(&mut self, last: u64) {
        if let Some(archive) = &mut self.archive {
            let changes = std::mem::take(&mut archive.changes);
            (archive.next_change, archive.by_job) = (last, BTreeMap::new());
            for change in changes.into_values() {
                match change {
                    Change::Job(id) => archive.note_job(id),
                    Change::Label(label) => drop(archive.note(Change::Label(label))),
                }
            }
        }
    }

    /// Removes and returns the ended jobs that are in the database and that nothing needs: all but the newest `keep`, those
    /// in `needed`, those that unfinished jobs depend on, and members of arrays of which a job has not ended.
    pub(in crate::state) fn depart(&mut self, keep: usize, needed: &BTreeSet<JobId>) -> Vec<JobRecord> {
        let dependencies: BTreeSet<JobId> = self
            .unfinished()
            .flat_map(|job| job.request.after.iter().map(|after| after.job))
            .collect();
        let Some(archive) = &self.archive else {
            return Vec::new();
        };
        let mut ended_arrays: BTreeMap<JobId, bool> = BTreeMap::new();
        let mut has_array_ended = |array: JobId| {
            let ended = || self.of_array(array).all(|job| job.state.has_ended());
            *ended_arrays.entry(array).or_insert_with(ended)
        };
        let ended = self.iter().rev().filter(|job| job.state.has_ended()).skip(keep);
        let leaving: Vec<JobId> = ended
            .filter(|job| !archive.by_job.contains_key(&job.id))
            .filter(|job| !needed.contains(&job.id) && !dependencies.contains(&job.id))
            .filter(|job| job.request.array.is_none_or(|part| has_array_ended(part.array)))
            .map(|job| job.id)
            .collect();
        if let Some(archive) = &mut self.archive {
            archive.departed += leaving.len() as u64;
            archive.floor = leaving
                .first()
                .map_or(archive.floor, |last| archive.floor.max(last + 1));
            archive.past_ends.retain(|id, _| dependencies.contains(id));
        }
        leaving.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Takes back jobs that left memory, because the snapshot without them could not be written.
    pub(in crate::state) fn readmit(&mut self, jobs: Vec<JobRecord>) {
        let archive = self.archive.take();
        jobs.into_iter().for_each(|job| self.insert(job));
        self.archive = archive;
    }
}
