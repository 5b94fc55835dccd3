//! The list of jobs: filtered, sorted and cut into pages here, so that a page never asks for more than it shows.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use dovetail_control::JobNo;
use dovetail_control::book::{Book, JobRecord, JobState};
use dovetail_model::Time;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::people::{Role, User};
use crate::views::{JobPage, JobView, state_word};
use crate::{Api, Problem};

/// Which jobs are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Filter {
    /// States, with commas between; `live` for all that are not over, `over` for all that are.
    state: Option<String>,
    /// Who sent it; `@me` for whoever asks.
    user: Option<String>,
    /// Its virtual cluster.
    tenant: Option<String>,
    /// Its name.
    name: Option<String>,
    /// `key=value`, or `key` for any value.
    label: Option<String>,
    /// On this node now.
    node: Option<String>,
    /// At least so many GPUs.
    gpus_min: Option<u32>,
    /// At most so many GPUs.
    gpus_max: Option<u32>,
    /// Sent at this moment or later, in microseconds since 1970.
    from: Option<i64>,
    /// Sent before this moment.
    to: Option<i64>,
    /// This is part of its name, its user or its virtual cluster, or is its number.
    q: Option<String>,
    /// `-submitted` (newest first), `submitted`, `-gpus`, `gpus`, `-gpu_seconds`, `gpu_seconds`, `-wait`, `wait`, `name`
    /// or `user`.
    sort: Option<String>,
    /// So many at most; 100 if not given.
    limit: Option<usize>,
    /// The next page, as the last one said.
    cursor: Option<String>,
}

/// What jobs are sorted by; equal ones by number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(i128),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Submitted,
    Gpus,
    GpuSeconds,
    Wait,
    Name,
    User,
}

impl Sort {
    /// Reads the word; whether the largest comes first.
    fn parse(text: Option<&str>) -> Result<(Self, bool), Problem> {
        let text = text.unwrap_or("-submitted");
        let (word, down) = match text.strip_prefix('-') {
            Some(word) => (word, true),
            None => (text, false),
        };
        let sort = match word {
            "submitted" => Self::Submitted,
            "gpus" => Self::Gpus,
            "gpu_seconds" => Self::GpuSeconds,
            "wait" => Self::Wait,
            "name" => Self::Name,
            "user" => Self::User,
            _ => {
                return Err(Problem::invalid(format!(
                    "sort: {text:?} is none; expected submitted, gpus, gpu_seconds, wait, name or user, with a - before it \
                     for the largest first"
                )));
            }
        };
        Ok((sort, down))
    }

    fn key(self, job: &JobRecord, now: Time) -> Key {
        match self {
            Self::Submitted => Key::Number(0),
            Self::Gpus => Key::Number(i128::from(job.request.gpus)),
            Self::GpuSeconds => Key::Number(job.gpu_time(now)),
            Self::Wait => {
                let started = job.attempts.first().map(|a| a.since);
                let until = started.unwrap_or(if job.state.is_over() { job.since } else { now });
                Key::Number(i128::from(until.since(job.submitted).0))
            }
            Self::Name => Key::Text(job.request.name.clone()),
            Self::User => Key::Text(job.user.clone()),
        }
    }
}

/// Where a page ended: the key and the number of its last job.
fn cursor_of(key: &Key, no: JobNo) -> String {
    match key {
        Key::Number(n) => format!("{no}.n.{n}"),
        Key::Text(text) => format!("{no}.t.{text}"),
    }
}

fn read_cursor(text: &str) -> Result<(Key, JobNo), Problem> {
    let read = || {
        let (no, rest) = text.split_once('.')?;
        let (kind, key) = rest.split_once('.')?;
        let key = match kind {
            "n" => Key::Number(key.parse().ok()?),
            "t" => Key::Text(key.to_owned()),
            _ => return None,
        };
        Some((key, no.parse().ok()?))
    };
    read()
        .ok_or_else(|| Problem::invalid("cursor: is none; take it from `next` of the page before, as it is"))
}

impl Filter {
    fn takes(&self, book: &Book, user: &User, job: &JobRecord) -> bool {
        let is = |want: &Option<String>, have: &str| want.as_ref().is_none_or(|w| w == have);
        let state = |wanted: &String| {
            wanted.split(',').any(|w| match w {
                "live" => !job.state.is_over(),
                "over" => job.state.is_over(),
                word => word == state_word(job),
            })
        };
        let label = |wanted: &String| match wanted.split_once('=') {
            Some((key, value)) => job.request.labels.get(key).is_some_and(|v| v == value),
            None => job.request.labels.contains_key(wanted),
        };
        let node = |wanted: &String| {
            let up = job.attempt().filter(|_| job.state.is_up());
            up.is_some_and(|a| book.seats(&a.allocation).iter().any(|s| s.node == *wanted))
        };
        let search = |wanted: &String| {
            let has = |text: &str| text.contains(wanted.as_str());
            has(&job.request.name)
                || has(&job.user)
                || has(&job.request.tenant)
                || wanted.parse() == Ok(job.no)
        };
        let sender = |wanted: &String| match wanted.as_str() {
            "@me" => job.user == user.name,
            name => job.user == name,
        };
        self.user.as_ref().is_none_or(sender)
            && is(&self.tenant, &job.request.tenant)
            && is(&self.name, &job.request.name)
            && self.gpus_min.is_none_or(|least| job.request.gpus >= least)
            && self.gpus_max.is_none_or(|most| job.request.gpus <= most)
            && self.from.is_none_or(|at| job.submitted.0 >= at)
            && self.to.is_none_or(|at| job.submitted.0 < at)
            && self.state.as_ref().is_none_or(state)
            && self.label.as_ref().is_none_or(label)
            && self.q.as_ref().is_none_or(search)
            && self.node.as_ref().is_none_or(node)
    }

    /// A page of jobs, how many there are in all, and where the next page begins.
    fn page<'a>(
        &self,
        book: &'a Book,
        user: &User,
    ) -> Result<(Vec<&'a JobRecord>, u64, Option<String>), Problem> {
        let limit = self.limit.unwrap_or(100).clamp(1, 10_000);
        let (sort, down) = Sort::parse(self.sort.as_deref())?;
        let after = self.cursor.as_deref().map(read_cursor).transpose()?;
        let now = book.now();
        // Only those that may be on the page are kept, so that a million jobs cost no more than a look at each.
        let mut total = 0;
        let mut kept: Vec<(Key, JobNo, &JobRecord)> = Vec::new();
        let comes_before = |a: &(Key, JobNo, &JobRecord), b: &(Key, JobNo, &JobRecord)| {
            let order = (&a.0, a.1).cmp(&(&b.0, b.1));
            if down { order.reverse() } else { order }
        };
        let candidates: &mut dyn Iterator<Item = &'a JobRecord> = match &self.state {
            // Jobs that are not over are few.
            Some(state) if state == "live" => &mut book.jobs_live(),
            _ => &mut book.jobs(),
        };
        // What somebody may see follows from the virtual cluster, of which there are few.
        let mut roles: BTreeMap<&str, Option<Role>> = BTreeMap::new();
        let mut sees = |job: &'a JobRecord| {
            let tenant = job.request.tenant.as_str();
            let mut role = || *roles.entry(tenant).or_insert_with(|| user.role_in(book, tenant));
            user.admin || user.name == job.user || (!job.request.private && role().is_some())
        };
        for job in candidates.filter(|job| self.takes(book, user, job) && sees(job)) {
            total += 1;
            let entry = (sort.key(job, now), job.no, job);
            let seen = after.as_ref().is_some_and(|(key, no)| {
                let order = (&entry.0, entry.1).cmp(&(key, *no));
                if down { order.is_ge() } else { order.is_le() }
            });
            if seen {
                continue;
            }
            kept.push(entry);
            if kept.len() >= 2 * (limit + 1) {
                kept.select_nth_unstable_by(limit, comes_before);
                kept.truncate(limit + 1);
            }
        }
        kept.sort_unstable_by(comes_before);
        let more = kept.len() > limit;
        kept.truncate(limit);
        let next = kept
            .last()
            .filter(|_| more)
            .map(|(key, no, _)| cursor_of(key, *no));
        Ok((kept.into_iter().map(|(_, _, job)| job).collect(), total, next))
    }
}

pub(crate) async fn list(
    State(api): State<Api>,
    user: User,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Json<JobPage>, Problem> {
    let Query(filter) = filter.map_err(|e| Problem::invalid(e.body_text()))?;
    // A look at a million jobs takes a while.
    let listed = tokio::task::spawn_blocking(move || {
        api.handle.read(|book| {
            let (jobs, total, next) = filter.page(book, &user)?;
            let jobs = jobs
                .into_iter()
                .map(|job| JobView::of(book, job, &user, false))
                .collect();
            Ok(Json(JobPage { jobs, next, total }))
        })
    });
    listed.await.map_err(|e| Problem::unavailable(e.to_string()))?
}

/// Whether the job stands in line.
pub(crate) fn is_in_line(job: &JobRecord) -> bool {
    job.state == JobState::Queued
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_are_written() {
        for key in [
            Key::Number(-5),
            Key::Text("a.b.c".to_owned()),
            Key::Text(String::new()),
        ] {
            assert_eq!(read_cursor(&cursor_of(&key, 7)).ok(), Some((key, 7)));
        }
        for wrong in ["", "7", "7.n", "7.n.x", "x.n.1", "7.z.1"] {
            assert!(read_cursor(wrong).is_err(), "{wrong}");
        }
        assert!(Sort::parse(Some("-gpus")).is_ok() && Sort::parse(Some("colour")).is_err());
    }
}
