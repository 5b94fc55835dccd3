//! Jobs as OpenPAI counts them: instances that start on their own are one job.

use dovetail_control::book::{Book, End, JobRecord, JobState};
use dovetail_openpai::PriorityClass;

use crate::openpai::LABEL;
use crate::people::User;

/// A job of OpenPAI: one of ours, or an array.
pub(super) struct PaiJob<'a> {
    /// Its members, the first first.
    pub(super) members: Vec<&'a JobRecord>,
}

/// Whether the record is a further member of a job that another one stands for.
fn is_follower(job: &JobRecord) -> bool {
    let request = &job.request;
    !request.gang && request.array.is_some_and(|part| part.array != job.no)
}

impl<'a> PaiJob<'a> {
    fn of(book: &'a Book, first: &'a JobRecord) -> Self {
        let members = match first.request.array.filter(|_| !first.request.gang) {
            None => vec![first],
            Some(part) => {
                let from = book.jobs_from(part.array);
                let same = |job: &&JobRecord| job.request.array.is_some_and(|p| p.array == part.array);
                from.take_while(same).collect()
            }
        };
        Self { members }
    }

    /// All jobs that the user may know of, newest first.
    pub(super) fn all(book: &'a Book, user: &User) -> Vec<Self> {
        let jobs = book.jobs().rev().filter(|job| !is_follower(job));
        let seen = jobs.filter(|job| user.may_see(book, job));
        seen.map(|job| Self::of(book, job)).collect()
    }

    /// The job of this name, `user~name`, if the user may know of it.
    pub(super) fn find(book: &'a Book, user: &User, full: &str) -> Option<Self> {
        let (owner, name) = full.split_once('~')?;
        let same = |job: &&JobRecord| !is_follower(job) && job.user == owner && name_of(job) == name;
        let found = book
            .jobs()
            .rev()
            .filter(|job| user.may_see(book, job))
            .find(same)?;
        Some(Self::of(book, found))
    }

    /// Whether a user has sent a file of this name before.
    pub(super) fn is_taken(book: &Book, owner: &str, name: &str) -> bool {
        book.jobs()
            .any(|job| job.user == owner && job.request.labels.get(LABEL).is_some_and(|n| n == name))
    }

    /// The record that stands for it.
    pub(super) fn first(&self) -> &'a JobRecord {
        self.members[0]
    }

    /// Its name, without its user's.
    pub(super) fn name(&self) -> String {
        name_of(self.first())
    }

    /// Where it is, in OpenPAI's words.
    pub(super) fn state(&self) -> &'static str {
        let words: Vec<&str> = self.members.iter().map(|job| state_of(job)).collect();
        let any = |word: &str| words.contains(&word);
        if let [one] = words[..] {
            return one;
        }
        match () {
            () if any("RUNNING") => "RUNNING",
            () if any("STOPPING") => "STOPPING",
            // Those that are over count as running until the last is.
            () if any("WAITING") => match words.iter().all(|w| *w == "WAITING") {
                true => "WAITING",
                false => "RUNNING",
            },
            () if any("FAILED") && self.rule_says(false) => "FAILED",
            () if any("STOPPED") && !self.rule_says(true) => "STOPPED",
            () => "SUCCEEDED",
        }
    }

    /// Whether the completion rules of a role were met, of failures or of successes.
    fn rule_says(&self, success: bool) -> bool {
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

    /// Its exit code, once it is over.
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

    /// Launches after the first.
    pub(super) fn retries(&self) -> u64 {
        let of = |job: &&JobRecord| (job.attempts.len() as u64).saturating_sub(1);
        self.members.iter().map(of).sum()
    }

    /// GPUs it asks for.
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

    /// Its instances.
    pub(super) fn tasks(&self) -> u64 {
        let roles = &self.first().request.roles;
        match roles.is_empty() {
            true => 1,
            false => roles.iter().map(|r| u64::from(r.instances)).sum(),
        }
    }

    /// The name of its priority class, if it has one.
    pub(super) fn class(&self) -> Option<&'static str> {
        let priority = self.first().request.priority;
        let class = PriorityClass::ALL.into_iter().find(|c| c.priority() == priority);
        class.map(PriorityClass::name)
    }

    /// What its owner has marked it with.
    pub(super) fn tags(&self) -> Vec<&'a str> {
        let labels = self.first().request.labels.keys();
        labels.filter_map(|key| key.strip_prefix(TAG)).collect()
    }
}

/// Tags are labels whose keys begin so.
pub(super) const TAG: &str = "tag:";

fn name_of(job: &JobRecord) -> String {
    match job.request.labels.get(LABEL) {
        Some(name) => name.clone(),
        None => {
            let fine = |c: char| {
                if c.is_ascii_alphanumeric() || "_-".contains(c) {
                    c
                } else {
                    '_'
                }
            };
            let name: String = job.request.name.chars().map(fine).collect();
            format!("{name}_{}", job.no)
        }
    }
}

/// Where one of ours is, in OpenPAI's words.
pub(super) fn state_of(job: &JobRecord) -> &'static str {
    use dovetail_control::book::Cause;
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

/// The code of OpenPAI for how one of ours ended.
pub(super) fn exit_code(job: &JobRecord) -> Option<i32> {
    let JobState::Ended(end) = &job.state else {
        return None;
    };
    Some(match end {
        End::Completed => 0,
        End::Cancelled(_) => -210,
        End::TimeLimit => -1004,
        End::Rejected(_) | End::DependencyFailed(_) => -200,
        End::Failed { why, .. } if why.starts_with("out of memory") => -1200,
        End::Failed { why, .. } if why.contains("is taken by another program") => 253,
        End::Failed { why, .. } if why.contains("asks for the image") => 254,
        End::Failed {
            exit_code, signal: 0, ..
        } => *exit_code,
        End::Failed { signal, .. } => 128 + signal,
    })
}
