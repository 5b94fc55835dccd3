//! All jobs, with the indexes by which they are found.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::Time;

use super::archive::Archive;
use super::{Hold, JobRecord, JobState};
use crate::{AttemptId, JobId};

/// All jobs by number. Every change of a job's state goes through [`JobTable::set_state`], which keeps the indexes right.
#[derive(Debug, Clone, Default)]
pub(in crate::state) struct JobTable {
    records: BTreeMap<JobId, JobRecord>,
    /// Jobs that hold GPUs.
    active: BTreeSet<JobId>,
    /// Jobs that have not ended.
    unfinished: BTreeSet<JobId>,
    /// Jobs that wait for another job, by that job.
    dependents: BTreeMap<JobId, Vec<JobId>>,
    /// Jobs by user and idempotency key.
    by_key: BTreeMap<(String, String), JobId>,
    /// Jobs held by the GPU limit of their user.
    capped: BTreeSet<JobId>,
    /// Attempts with a time limit, by the time at which it is reached.
    time_limits: BTreeMap<(Time, JobId), AttemptId>,
    /// Smallest number that was never used.
    next: JobId,
    /// What the history database has of ended jobs; none if there is no such database.
    pub(super) archive: Option<Archive>,
}

impl JobTable {
    /// Builds the table of loaded records.
    pub(in crate::state) fn new(records: impl IntoIterator<Item = JobRecord>) -> Self {
        let mut table = Self::default();
        for record in records {
            table.index_state(record.id, &record.state);
            let running = record.attempt().filter(|_| record.state == JobState::Running);
            let since = running.and_then(|a| Some((a.id, a.running_since?)));
            if let (Some(limit), Some((attempt_id, since))) = (record.request.time_limit, since) {
                table.set_time_limit(since + limit, record.id, attempt_id);
            }
            table.insert(record);
        }
        table
    }

    /// Adds a job.
    pub(in crate::state) fn insert(&mut self, record: JobRecord) {
        let id = record.id;
        self.next = self.next.max(id + 1);
        if let Some(key) = &record.key {
            self.by_key.insert((record.user.clone(), key.clone()), id);
        }
        if !record.state.has_ended() {
            self.unfinished.insert(id);
            for after in &record.request.after {
                self.dependents.entry(after.job).or_default().push(id);
            }
        }
        if let Some(archive) = self.archive.as_mut().filter(|_| record.state.has_ended()) {
            archive.note_job(id);
        }
        self.records.insert(id, record);
    }

    /// Removes an ended job.
    pub(super) fn remove(&mut self, id: JobId) -> Option<JobRecord> {
        let record = self.records.remove(&id)?;
        if let Some(key) = &record.key {
            let key = (record.user.clone(), key.clone());
            if self.by_key.get(&key) == Some(&id) {
                self.by_key.remove(&key);
            }
        }
        Some(record)
    }

    /// Sets the number of the next job, where jobs with larger numbers than all others have left.
    pub(super) fn reserve(&mut self, next: JobId) {
        self.next = self.next.max(next);
    }

    /// Changes the state of a job.
    pub(in crate::state) fn set_state(&mut self, id: JobId, state: JobState, now: Time) {
        self.index_state(id, &state);
        if let Some(archive) = self.archive.as_mut().filter(|_| state.has_ended()) {
            archive.note_job(id);
        }
        let record = self.known_mut(id);
        (record.state, record.since) = (state, now);
    }

    fn index_state(&mut self, id: JobId, state: &JobState) {
        let put = |set: &mut BTreeSet<JobId>, belongs: bool| match belongs {
            true => set.insert(id),
            false => set.remove(&id),
        };
        put(&mut self.active, state.holds_gpus());
        put(&mut self.unfinished, !state.has_ended());
        put(&mut self.capped, *state == JobState::Held(Hold::Cap));
    }

    /// Returns the number of the next job.
    pub(in crate::state) fn next_id(&self) -> JobId {
        self.next.max(1)
    }

    /// Returns a job.
    pub(in crate::state) fn get(&self, id: JobId) -> Option<&JobRecord> {
        self.records.get(&id)
    }

    /// Returns a job to change anything but its state.
    pub(in crate::state) fn get_mut(&mut self, id: JobId) -> Option<&mut JobRecord> {
        self.records.get_mut(&id)
    }

    /// Returns a job that exists.
    pub(in crate::state) fn known(&self, id: JobId) -> &JobRecord {
        &self.records[&id]
    }

    /// Returns a job that exists, to change anything but its state.
    pub(in crate::state) fn known_mut(&mut self, id: JobId) -> &mut JobRecord {
        self.records
            .get_mut(&id)
            .expect("the caller found the job before")
    }

    /// Returns the job a user submitted with an idempotency key.
    pub(in crate::state) fn by_key(&self, user: &str, key: &str) -> Option<&JobRecord> {
        let id = self.by_key.get(&(user.to_owned(), key.to_owned()))?;
        self.get(*id)
    }

    /// Returns all jobs, oldest first.
    pub(in crate::state) fn iter(&self) -> impl DoubleEndedIterator<Item = &JobRecord> {
        self.records.values()
    }

    /// Returns the number of jobs.
    pub(in crate::state) fn count(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of jobs that have ended.
    pub(in crate::state) fn ended_count(&self) -> usize {
        self.records.len() - self.unfinished.len()
    }

    /// Returns all jobs from this number on, oldest first.
    pub(in crate::state) fn from(&self, id: JobId) -> impl Iterator<Item = &JobRecord> {
        self.records.range(id..).map(|(_, record)| record)
    }

    /// Returns all jobs that have not ended, oldest first.
    pub(in crate::state) fn unfinished(&self) -> impl DoubleEndedIterator<Item = &JobRecord> {
        self.unfinished.iter().map(|id| &self.records[id])
    }

    /// Returns the number of jobs that have not ended.
    pub(in crate::state) fn unfinished_count(&self) -> usize {
        self.unfinished.len()
    }

    /// Returns all jobs that hold GPUs, oldest first.
    pub(in crate::state) fn active(&self) -> impl Iterator<Item = &JobRecord> {
        self.active.iter().map(|id| &self.records[id])
    }

    /// Returns the first job that holds a GPU of this one, too.
    pub(in crate::state) fn beside(&self, job: &JobRecord) -> Option<&JobRecord> {
        let own = &job.attempt()?.allocation;
        let overlaps = |other: &&JobRecord| {
            other.id != job.id && other.attempt().is_some_and(|a| a.allocation.overlaps(own))
        };
        self.active().find(overlaps)
    }

    /// Forgets the handles that an earlier engine gave out.
    pub(in crate::state) fn forget_handles(&mut self) {
        for record in self.records.values_mut() {
            record.job_key = None;
        }
    }

    /// Returns whether the index of jobs that hold GPUs has the job.
    pub(in crate::state) fn is_active(&self, id: JobId) -> bool {
        self.active.contains(&id)
    }

    /// Returns the jobs of an array, in order.
    pub(in crate::state) fn of_array(&self, array: JobId) -> impl Iterator<Item = &JobRecord> {
        let is_member = move |job: &&JobRecord| job.request.array.is_some_and(|p| p.array == array);
        self.from(array).take_while(is_member)
    }

    /// Returns whether other jobs wait for the end of this one.
    pub(in crate::state) fn has_dependents(&self, id: JobId) -> bool {
        self.dependents.contains_key(&id)
    }

    /// Removes and returns the jobs that wait for the end of this one.
    pub(in crate::state) fn take_dependents(&mut self, id: JobId) -> Vec<JobId> {
        self.dependents.remove(&id).unwrap_or_default()
    }

    /// Returns the jobs held by the GPU limit of their user, oldest first.
    pub(in crate::state) fn capped(&self) -> Vec<JobId> {
        self.capped.iter().copied().collect()
    }

    /// Returns whether any job is held by the GPU limit of its user.
    pub(in crate::state) fn has_capped(&self) -> bool {
        !self.capped.is_empty()
    }

    /// Sets when the time limit of an attempt is reached.
    pub(in crate::state) fn set_time_limit(&mut self, at: Time, id: JobId, attempt_id: AttemptId) {
        self.time_limits.insert((at, id), attempt_id);
    }

    /// Removes the time limit of a job.
    pub(in crate::state) fn clear_time_limit(&mut self, id: JobId) {
        self.time_limits.retain(|(_, job), _| *job != id);
    }

    /// Removes the time limit of one attempt of a job.
    pub(in crate::state) fn clear_attempt_time_limit(&mut self, id: JobId, attempt_id: AttemptId) {
        self.time_limits
            .retain(|(_, job), known| (*job, *known) != (id, attempt_id));
    }

    /// Returns when the next time limit is reached.
    pub(in crate::state) fn next_time_limit(&self) -> Option<Time> {
        self.time_limits.keys().next().map(|(at, _)| *at)
    }

    /// Returns the attempts whose time limit is reached.
    pub(in crate::state) fn expired(&self, now: Time) -> impl Iterator<Item = (JobId, AttemptId)> {
        let reached = self.time_limits.iter().take_while(move |((at, _), _)| *at <= now);
        reached.map(|((_, job), attempt_id)| (*job, *attempt_id))
    }
}
