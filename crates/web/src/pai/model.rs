//! Jobs as OpenPAI counts them: instances that start independently are one job.

use dovetail_cluster::state::{ClusterState, End, JobRecord, JobState};
use dovetail_jobfile::OPENPAI_LABEL;
use dovetail_openpai::PriorityClass;

use super::past::PastRecords;
use crate::accounts::User;

/// A job of OpenPAI: one job, or all jobs of an array.
pub(super) struct PaiJob<'a> {
    /// Jobs, in the order of the array.
    pub(super) members: Vec<&'a JobRecord>,
}

/// Whether the job is part of an array, but not its first job.
fn is_later_member(job: &JobRecord) -> bool {
    let request = &job.request;
    !request.gang && request.array.is_some_and(|part| part.array != job.id)
}

impl<'a> PaiJob<'a> {
    fn new(state: &'a ClusterState, past: &'a PastRecords, first: &'a JobRecord) -> Self {
        let members = match first.request.array.filter(|_| !first.request.gang) {
            None => vec![first],
            Some(part) => {
                let is_member = |job: &&JobRecord| job.request.array.is_some_and(|p| p.array == part.array);
                let in_memory = state.jobs_from(part.array).take_while(is_member);
                // The members of an array leave memory together, or some of them before others.
                let past = past
                    .jobs()
                    .filter(is_member)
                    .filter(|job| state.job(job.id).is_none());
                let mut members: Vec<&JobRecord> = past.chain(in_memory).collect();
                members.sort_unstable_by_key(|job| job.id);
                members
            }
        };
        Self { members }
    }

    /// Returns all jobs that the user may see, newest first; of those that are only in the history, the ones given.
    pub(super) fn all(state: &'a ClusterState, past: &'a PastRecords, user: &User) -> Vec<Self> {
        let past_jobs = past.jobs().filter(|job| state.job(job.id).is_none());
        let mut jobs: Vec<&JobRecord> = past_jobs.chain(state.jobs()).collect();
        jobs.sort_unstable_by_key(|job| std::cmp::Reverse(job.id));
        let first = jobs.into_iter().filter(|job| !is_later_member(job));
        let visible = first.filter(|job| user.may_see(state, job));
        visible.map(|job| Self::new(state, past, job)).collect()
    }

    /// Returns the job named `user~name`, if the user may see it.
    pub(super) fn find(
        state: &'a ClusterState,
        past: &'a PastRecords,
        user: &User,
        full: &str,
    ) -> Option<Self> {
        let (owner, name) = full.split_once('~')?;
        let matches = |job: &&JobRecord| !is_later_member(job) && job.user == owner && name_of(job) == name;
        let jobs = state.jobs().rev().chain(past.jobs().rev());
        let found = jobs.filter(|job| user.may_see(state, job)).find(matches)?;
        Some(Self::new(state, past, found))
    }

    /// Whether a user has submitted a file with this name before.
    pub(super) fn is_taken(state: &ClusterState, past: &PastRecords, owner: &str, name: &str) -> bool {
        state
            .jobs()
            .chain(past.jobs())
            .any(|job| job.user == owner && job.request.labels.get(OPENPAI_LABEL).is_some_and(|n| n == name))
    }

    /// Returns the first job.
    pub(super) fn first(&self) -> &'a JobRecord {
        self.members[0]
    }

    /// Returns its name, without the user.
    pub(super) fn name(&self) -> String {
        name_of(self.first())
    }

    /// Returns its state, as OpenPAI names it.
    pub(super) fn state(&self) -> &'static str {
        let words: Vec<&str> = self.members.iter().map(|job| state_of(job)).collect();
        let has = |word: &str| words.contains(&word);
        if let [one] = words[..] {
            return one;
        }
        match () {
            () if has("RUNNING") => "RUNNING",
            () if has("STOPPING") => "STOPPING",
            // Members that have ended count as running until all have ended.
            () if has("WAITING") => match words.iter().all(|w| *w == "WAITING") {
                true => "WAITING",
                false => "RUNNING",
            },
            () if has("FAILED") && self.meets_rule(false) => "FAILED",
            () if has("STOPPED") && !self.meets_rule(true) => "STOPPED",
            () => "SUCCEEDED",
        }
    }

    /// Whether the completion rule of a role is met, of successes or of failures.
    fn meets_rule(&self, success: bool) -> bool {
        let roles = &self.first().request.roles;
        roles.iter().enumerate().any(|(i, role)| {
            let needed = match success {
                true => role.successes_needed(),
                false => role.failures_allowed(),
            };
            let word = if success { "SUCCEEDED" } else { "FAILED" };
            let of_role = |job: &&&JobRecord| {
                let number = job.request.array.map_or(0, |p| p.index);
                job.request.instance(number).is_some_and(|(r, _)| r == i) && state_of(job) == word
            };
            let count = self.members.iter().filter(of_role).count() as u32;
            needed.is_some_and(|needed| needed > 0 && count >= needed)
        })
    }

    /// Returns its exit code, if it has ended.
    pub(super) fn exit_code(&self) -> Option<i32> {
        match self.state() {
            "SUCCEEDED" => Some(0),
            "FAILED" => {
                let mut failed = self.members.iter().filter(|job| state_of(job) == "FAILED");
                failed.find_map(|job| exit_code(job))
            }
            "STOPPED" => Some(-210),
            _ => None,
        }
    }

    /// Returns the number of attempts after the first.
    pub(super) fn retries(&self) -> u64 {
        let of_job = |job: &&JobRecord| (job.attempts.len() as u64).saturating_sub(1);
        self.members.iter().map(of_job).sum()
    }

    /// Returns the number of GPUs it requests.
    pub(super) fn gpus(&self) -> u64 {
        let roles = &self.first().request.roles;
        match roles.is_empty() {
            true => u64::from(self.first().request.gpus),
            false => roles
                .iter()
                .map(|r| u64::from(r.gpus) * u64::from(r.instances))
                .sum(),
        }
    }

    /// Returns the number of its instances.
    pub(super) fn tasks(&self) -> u64 {
        let roles = &self.first().request.roles;
        match roles.is_empty() {
            true => 1,
            false => roles.iter().map(|r| u64::from(r.instances)).sum(),
        }
    }

    /// Returns the name of its priority class, if it has one.
    pub(super) fn class(&self) -> Option<&'static str> {
        let priority = self.first().request.priority;
        let class = PriorityClass::ALL.into_iter().find(|c| c.priority() == priority);
        class.map(PriorityClass::name)
    }

    /// Returns its tags.
    pub(super) fn tags(&self) -> Vec<&'a str> {
        let labels = self.first().request.labels.keys();
        labels.filter_map(|key| key.strip_prefix(TAG)).collect()
    }
}

/// The prefix of labels that are tags.
pub(super) const TAG: &str = "tag:";

fn name_of(job: &JobRecord) -> String {
    match job.request.labels.get(OPENPAI_LABEL) {
        Some(name) => name.clone(),
        None => {
            let replace = |c: char| {
                if c.is_ascii_alphanumeric() || "_-".contains(c) {
                    c
                } else {
                    '_'
                }
            };
            let name: String = job.request.name.chars().map(replace).collect();
            format!("{name}_{}", job.id)
        }
    }
}

/// Returns the state of a job, as OpenPAI names it.
pub(super) fn state_of(job: &JobRecord) -> &'static str {
    use dovetail_cluster::state::Cause;
    match &job.state {
        JobState::Held(_) | JobState::Queued | JobState::Starting => "WAITING",
        JobState::Running => "RUNNING",
        JobState::Stopping(Cause::Cancelled(_)) => "STOPPING",
        JobState::Stopping(_) => "RUNNING",
        JobState::Ended(End::Completed) => "SUCCEEDED",
        JobState::Ended(End::Cancelled(_)) => "STOPPED",
        JobState::Ended(_) => "FAILED",
    }
}

/// Returns the exit code of OpenPAI for a job that has ended.
pub(super) fn exit_code(job: &JobRecord) -> Option<i32> {
    let JobState::Ended(end) = &job.state else {
        return None;
    };
    Some(match end {
        End::Completed => 0,
        End::Cancelled(_) => -210,
        End::TimeLimit => -1004,
        End::Rejected(_) | End::DependencyFailed(_) => -200,
        End::Failed { reason, .. } if reason.starts_with("out of memory") => -1200,
        End::Failed { reason, .. } if reason.contains("by another program") => 253,
        End::Failed { reason, .. } if reason.contains("neither podman nor docker") => 254,
        End::Failed {
            exit_code, signal: 0, ..
        } => *exit_code,
        End::Failed { signal, .. } => 128 + signal,
    })
}
