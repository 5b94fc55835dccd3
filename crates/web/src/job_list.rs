//! The list of jobs: filtered, sorted and paged by the server, so that a client never reads more than it shows.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use dovetail_cluster::JobId;
use dovetail_cluster::state::{ClusterState, JobRecord, JobState};
use dovetail_model::Time;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::accounts::{Role, User};
use crate::views::{JobPage, JobView, state_of};
use crate::{Api, Problem};

/// Which jobs to list, and in which order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct JobFilter {
    /// States, separated by commas; also `unfinished`, `finished` and reasons such as `preempted` or `time-limit`.
    state: Option<String>,
    /// User that submitted the job; `@me` for the caller.
    user: Option<String>,
    /// Virtual cluster.
    tenant: Option<String>,
    /// Name.
    name: Option<String>,
    /// Label: `key=value`, or `key` for any value.
    label: Option<String>,
    /// Node that the job runs on.
    node: Option<String>,
    /// Minimum number of GPUs.
    gpus_min: Option<u32>,
    /// Maximum number of GPUs.
    gpus_max: Option<u32>,
    /// Submitted at this time or later, in microseconds since 1970.
    from: Option<i64>,
    /// Submitted before this time, in microseconds since 1970.
    to: Option<i64>,
    /// Part of the name, the user or the virtual cluster, or the job id.
    q: Option<String>,
    /// `-submitted` (newest first), `submitted`, `-gpus`, `gpus`, `-gpu_seconds`, `gpu_seconds`, `-wait`, `wait`, `name`
    /// or `user`.
    sort: Option<String>,
    /// Maximum number of jobs; 100 if not given.
    limit: Option<usize>,
    /// Start of the page: `next` of the previous page.
    cursor: Option<String>,
}

/// The value that a job is sorted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SortKey {
    Number(i128),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SortField {
    Submitted,
    Gpus,
    GpuSeconds,
    Wait,
    Name,
    User,
}

/// The order of the list. Jobs with equal keys are sorted by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SortOrder {
    field: SortField,
    descending: bool,
}

impl SortOrder {
    fn parse(text: Option<&str>) -> Result<Self, Problem> {
        let text = text.unwrap_or("-submitted");
        let (word, descending) = match text.strip_prefix('-') {
            Some(word) => (word, true),
            None => (text, false),
        };
        let field = match word {
            "submitted" => SortField::Submitted,
            "gpus" => SortField::Gpus,
            "gpu_seconds" => SortField::GpuSeconds,
            "wait" => SortField::Wait,
            "name" => SortField::Name,
            "user" => SortField::User,
            _ => {
                return Err(Problem::invalid(format!(
                    "sort: invalid value {text:?}: expected submitted, gpus, gpu_seconds, wait, name or user, with `-` \
                     before it for descending order"
                )));
            }
        };
        Ok(Self { field, descending })
    }

    fn key(self, job: &JobRecord, now: Time) -> SortKey {
        match self.field {
            // Ids are in the order of submission.
            SortField::Submitted => SortKey::Number(0),
            SortField::Gpus => SortKey::Number(i128::from(job.request.gpus)),
            SortField::GpuSeconds => SortKey::Number(job.gpu_time(now)),
            SortField::Wait => {
                let started = job.attempts.first().map(|a| a.since);
                let until = started.unwrap_or(if job.state.has_ended() { job.since } else { now });
                SortKey::Number(i128::from(until.since(job.submitted).0))
            }
            SortField::Name => SortKey::Text(job.request.name.clone()),
            SortField::User => SortKey::Text(job.user.clone()),
        }
    }

    fn compare(self, a: (&SortKey, JobId), b: (&SortKey, JobId)) -> Ordering {
        match self.descending {
            true => b.cmp(&a),
            false => a.cmp(&b),
        }
    }
}

/// Returns the cursor after a job.
fn write_cursor(key: &SortKey, id: JobId) -> String {
    match key {
        SortKey::Number(n) => format!("{id}.n.{n}"),
        SortKey::Text(text) => format!("{id}.t.{text}"),
    }
}

fn read_cursor(text: &str) -> Result<(SortKey, JobId), Problem> {
    let read = || {
        let (id, rest) = text.split_once('.')?;
        let (kind, key) = rest.split_once('.')?;
        let key = match kind {
            "n" => SortKey::Number(key.parse().ok()?),
            "t" => SortKey::Text(key.to_owned()),
            _ => return None,
        };
        Some((key, id.parse().ok()?))
    };
    read().ok_or_else(|| Problem::invalid("cursor: invalid value: expected `next` of the previous page"))
}

/// A page of jobs.
struct Page<'a> {
    jobs: Vec<&'a JobRecord>,
    total: u64,
    next: Option<String>,
}

impl JobFilter {
    fn matches(&self, state: &ClusterState, user: &User, job: &JobRecord) -> bool {
        let equals = |filter: &Option<String>, value: &str| filter.as_ref().is_none_or(|f| f == value);
        let has_label = |filter: &String| match filter.split_once('=') {
            Some((key, value)) => job.request.labels.get(key).is_some_and(|v| v == value),
            None => job.request.labels.contains_key(filter),
        };
        let is_on_node = |name: &String| {
            let current = job.attempt().filter(|_| job.state.holds_gpus());
            current.is_some_and(|a| state.node_slots(&a.allocation).iter().any(|s| s.node == *name))
        };
        let contains = |text: &String| {
            let is_part_of = |value: &str| value.contains(text.as_str());
            is_part_of(&job.request.name)
                || is_part_of(&job.user)
                || is_part_of(&job.request.tenant)
                || text.parse() == Ok(job.id)
        };
        let is_by_user = |name: &String| match name.as_str() {
            "@me" => job.user == user.name,
            name => job.user == name,
        };
        self.user.as_ref().is_none_or(is_by_user)
            && equals(&self.tenant, &job.request.tenant)
            && equals(&self.name, &job.request.name)
            && self.gpus_min.is_none_or(|min| job.request.gpus >= min)
            && self.gpus_max.is_none_or(|max| job.request.gpus <= max)
            && self.from.is_none_or(|at| job.submitted.0 >= at)
            && self.to.is_none_or(|at| job.submitted.0 < at)
            && self.state.as_ref().is_none_or(|states| is_in_state(job, states))
            && self.label.as_ref().is_none_or(has_label)
            && self.node.as_ref().is_none_or(is_on_node)
            && self.q.as_ref().is_none_or(contains)
    }

    /// Returns the jobs of a page, how many there are on all pages, and the cursor of the next page.
    fn page<'a>(&self, state: &'a ClusterState, user: &User) -> Result<Page<'a>, Problem> {
        let limit = self.limit.unwrap_or(100).clamp(1, 10_000);
        let order = SortOrder::parse(self.sort.as_deref())?;
        let after = self.cursor.as_deref().map(read_cursor).transpose()?;
        let now = state.now();
        let mut total = 0;
        let mut kept: Vec<(SortKey, JobId, &JobRecord)> = Vec::new();
        let compare = |a: &(SortKey, JobId, &JobRecord), b: &(SortKey, JobId, &JobRecord)| {
            order.compare((&a.0, a.1), (&b.0, b.1))
        };
        let candidates: &mut dyn Iterator<Item = &'a JobRecord> = match self.state.as_deref() {
            // Unfinished jobs are few.
            Some("unfinished" | "live") => &mut state.unfinished_jobs(),
            _ => &mut state.jobs(),
        };
        // Which jobs a user sees depends on the virtual cluster, of which there are few.
        let mut roles: BTreeMap<&str, Option<Role>> = BTreeMap::new();
        let mut is_visible = |job: &'a JobRecord| {
            let tenant = job.request.tenant.as_str();
            let mut role = || *roles.entry(tenant).or_insert_with(|| user.role_in(state, tenant));
            user.admin || user.name == job.user || (!job.request.private && role().is_some())
        };
        for job in candidates.filter(|job| self.matches(state, user, job) && is_visible(job)) {
            total += 1;
            let entry = (order.key(job, now), job.id, job);
            let is_on_earlier_page = after
                .as_ref()
                .is_some_and(|(key, id)| order.compare((&entry.0, entry.1), (key, *id)) != Ordering::Greater);
            if is_on_earlier_page {
                continue;
            }
            kept.push(entry);
            // Only jobs that may be on the page are kept, so that a million jobs cost one pass.
            if kept.len() >= 2 * (limit + 1) {
                kept.select_nth_unstable_by(limit, compare);
                kept.truncate(limit + 1);
            }
        }
        kept.sort_unstable_by(compare);
        let has_more = kept.len() > limit;
        kept.truncate(limit);
        let next = kept
            .last()
            .filter(|_| has_more)
            .map(|(key, id, _)| write_cursor(key, *id));
        let jobs = kept.into_iter().map(|(_, _, job)| job).collect();
        Ok(Page { jobs, total, next })
    }
}

/// Whether the job is in one of the states, which are separated by commas.
fn is_in_state(job: &JobRecord, states: &str) -> bool {
    let (state, reason) = state_of(job);
    states.split(',').any(|word| match word {
        // The second names are those of older releases.
        "unfinished" | "live" => !job.state.has_ended(),
        "finished" | "over" => job.state.has_ended(),
        word => word == state || (word == reason && !reason.is_empty()),
    })
}

pub(crate) async fn list(
    State(api): State<Api>,
    user: User,
    filter: Result<Query<JobFilter>, QueryRejection>,
) -> Result<Json<JobPage>, Problem> {
    let Query(filter) = filter.map_err(|e| Problem::invalid(e.body_text()))?;
    // A pass over a million jobs takes a while.
    let listed = tokio::task::spawn_blocking(move || {
        api.handle.read(|state| {
            let Page { jobs, total, next } = filter.page(state, &user)?;
            let jobs = jobs.into_iter().map(|job| JobView::summary(state, job)).collect();
            Ok(Json(JobPage { jobs, next, total }))
        })
    });
    listed.await.map_err(|e| Problem::unavailable(e.to_string()))?
}

/// Whether the job is queued.
pub(crate) fn is_queued(job: &JobRecord) -> bool {
    job.state == JobState::Queued
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_written() {
        for key in [
            SortKey::Number(-5),
            SortKey::Text("a.b.c".to_owned()),
            SortKey::Text(String::new()),
        ] {
            assert_eq!(read_cursor(&write_cursor(&key, 7)).ok(), Some((key, 7)));
        }
        for invalid in ["", "7", "7.n", "7.n.x", "x.n.1", "7.z.1"] {
            assert!(read_cursor(invalid).is_err(), "{invalid}");
        }
        assert!(SortOrder::parse(Some("-gpus")).is_ok() && SortOrder::parse(Some("colour")).is_err());
    }
}
