//! The list of jobs: filtered, sorted and paged by the server, so that a client never reads more than it shows.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use dovetail_cluster::state::{ClusterState, JobRecord, JobState};
use dovetail_cluster::{Handle, JobId};
use dovetail_history::{Found, JobQuery, KnownJobs, Sort, SortField, SortKey, Viewer};
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

/// The order of the list, as the query names it. Jobs with equal keys are sorted by id.
fn parse_sort(text: Option<&str>) -> Result<Sort, Problem> {
    let text = text.unwrap_or("-submitted");
    let (word, descending) = match text.strip_prefix('-') {
        Some(word) => (word, true),
        None => (text, false),
    };
    let field = match word {
        "submitted" => SortField::Submitted,
        "gpus" => SortField::Gpus,
        "gpu_seconds" => SortField::GpuTime,
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
    Ok(Sort { field, descending })
}

fn sort_key(field: SortField, job: &JobRecord, now: Time) -> SortKey {
    match field {
        // Ids are in the order of submission.
        SortField::Submitted => SortKey::Number(0),
        SortField::Gpus => SortKey::Number(i128::from(job.request.gpus)),
        SortField::GpuTime => SortKey::Number(job.gpu_time(now)),
        SortField::Wait => SortKey::Number(i128::from(job.wait(now).0)),
        SortField::Name => SortKey::Text(job.request.name.clone()),
        SortField::User => SortKey::Text(job.user.clone()),
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

/// The order and the extent of a page.
#[derive(Debug, Clone)]
struct Paging {
    sort: Sort,
    limit: usize,
    after: Option<(SortKey, JobId)>,
}

/// The first jobs after the cursor, of those in memory.
struct MemoryPage {
    jobs: Vec<(SortKey, JobId, JobView)>,
    total: u64,
    /// Which jobs are in memory, so that the history leaves them out.
    known: KnownJobs,
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

    fn paging(&self) -> Result<Paging, Problem> {
        Ok(Paging {
            sort: parse_sort(self.sort.as_deref())?,
            limit: self.limit.unwrap_or(100).clamp(1, 10_000),
            after: self.cursor.as_deref().map(read_cursor).transpose()?,
        })
    }

    /// Returns the first jobs after the cursor, one more than fit on the page, and how many there are in memory.
    fn page_of_memory(&self, state: &ClusterState, user: &User, paging: &Paging) -> MemoryPage {
        let Paging { sort, limit, after } = paging;
        let now = state.now();
        let mut total = 0;
        let mut kept: Vec<(SortKey, JobId, &JobRecord)> = Vec::new();
        let compare = |a: &(SortKey, JobId, &JobRecord), b: &(SortKey, JobId, &JobRecord)| {
            sort.compare((&a.0, a.1), (&b.0, b.1))
        };
        let candidates: &mut dyn Iterator<Item = &JobRecord> = match self.state.as_deref() {
            // Unfinished jobs are few.
            Some("unfinished" | "live") => &mut state.unfinished_jobs(),
            _ => &mut state.jobs(),
        };
        // Which jobs a user sees depends on the virtual cluster, of which there are few.
        let mut roles: BTreeMap<String, Option<Role>> = BTreeMap::new();
        let mut is_visible = |job: &JobRecord| {
            let tenant = &job.request.tenant;
            let mut role = || match roles.get(tenant) {
                Some(role) => *role,
                None => *roles.entry(tenant.clone()).or_insert(user.role_in(state, tenant)),
            };
            user.admin || user.name == job.user || (!job.request.private && role().is_some())
        };
        for job in candidates.filter(|job| self.matches(state, user, job) && is_visible(job)) {
            total += 1;
            let entry = (sort_key(sort.field, job, now), job.id, job);
            let is_on_earlier_page = after
                .as_ref()
                .is_some_and(|(key, id)| sort.compare((&entry.0, entry.1), (key, *id)) != Ordering::Greater);
            if is_on_earlier_page {
                continue;
            }
            kept.push(entry);
            // Only jobs that may be on the page are kept, so that many jobs cost one pass.
            if kept.len() >= 2 * (limit + 1) {
                kept.select_nth_unstable_by(*limit, compare);
                kept.truncate(limit + 1);
            }
        }
        kept.sort_unstable_by(compare);
        kept.truncate(limit + 1);
        let view = |(key, id, job): (SortKey, JobId, &JobRecord)| (key, id, JobView::summary(state, job));
        MemoryPage {
            jobs: kept.into_iter().map(view).collect(),
            total,
            known: state.known_jobs(),
        }
    }

    /// Returns the query for the history database, and none if no ended job matches.
    fn history_query(&self, user: &User, paging: &Paging, tenants: Vec<String>) -> Option<JobQuery> {
        if self.node.is_some() {
            // Only jobs that hold GPUs are on a node.
            return None;
        }
        let words: Option<Vec<&str>> = self.state.as_ref().map(|states| states.split(',').collect());
        let is_any = |words: &Vec<&str>| words.iter().any(|word| ["finished", "over"].contains(word));
        let words = words.filter(|words| !is_any(words));
        let is_past = |word: &&str| !["unfinished", "live"].contains(word);
        let states: Option<Vec<String>> =
            words.map(|words| words.into_iter().filter(is_past).map(str::to_owned).collect());
        if states.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let label = self.label.as_ref().map(|label| match label.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (label.clone(), None),
        });
        Some(JobQuery {
            states,
            user: self.user.clone().map(|name| match name.as_str() {
                "@me" => user.name.clone(),
                _ => name,
            }),
            tenant: self.tenant.clone(),
            name: self.name.clone(),
            label,
            gpus_min: self.gpus_min,
            gpus_max: self.gpus_max,
            from: self.from,
            to: self.to,
            text: self.q.clone(),
            viewer: (!user.admin).then(|| Viewer {
                user: user.name.clone(),
                tenants,
            }),
            sort: paging.sort,
            after: paging.after.clone(),
            limit: paging.limit + 1,
        })
    }
}

/// Returns the jobs of a page, of those in memory and in the history. The history is read while others read the state.
fn page(handle: &Handle, user: &User, filter: &JobFilter) -> Result<JobPage, Problem> {
    let paging = filter.paging()?;
    let mut page = handle.read(|state| filter.page_of_memory(state, user, &paging));
    let history = handle.history().filter(|_| page.known.from > 0);
    if let Some(history) = history {
        let tenants = visible_tenants(handle, user)?;
        if let Some(query) = filter.history_query(user, &paging, tenants) {
            let found = history.list(&query, &page.known).map_err(Problem::history)?;
            page.total += found.total;
            merge(handle, &mut page, found, &paging)?;
        }
    }
    let has_more = page.jobs.len() > paging.limit;
    page.jobs.truncate(paging.limit);
    let last = page.jobs.last().filter(|_| has_more);
    let next = last.map(|(key, id, _)| write_cursor(key, *id));
    Ok(JobPage {
        jobs: page.jobs.into_iter().map(|(_, _, view)| view).collect(),
        next,
        total: page.total,
    })
}

/// Adds the jobs of the history that belong on the page.
fn merge(handle: &Handle, page: &mut MemoryPage, found: Found, paging: &Paging) -> Result<(), Problem> {
    let in_memory = page.jobs.iter().map(|(key, id, _)| (key.clone(), *id, true));
    let past = found.jobs.into_iter().map(|(key, id)| (key, id, false));
    let mut all: Vec<(SortKey, JobId, bool)> = in_memory.chain(past).collect();
    all.sort_unstable_by(|a, b| paging.sort.compare((&a.0, a.1), (&b.0, b.1)));
    all.truncate(paging.limit + 1);
    let past = all.iter().filter(|(_, _, is_in_memory)| !is_in_memory);
    let ids: Vec<JobId> = past.map(|(_, id, _)| *id).collect();
    let records = handle.past_jobs(&ids).map_err(Problem::history)?;
    let mut views: BTreeMap<JobId, JobView> = handle.read(|state| {
        let view = |job: &JobRecord| (job.id, JobView::summary(state, job));
        records.iter().map(view).collect()
    });
    views.extend(page.jobs.drain(..).map(|(_, id, view)| (id, view)));
    let entry = |(key, id, _): (SortKey, JobId, bool)| views.remove(&id).map(|view| (key, id, view));
    page.jobs = all.into_iter().filter_map(entry).collect();
    Ok(())
}

/// Returns the virtual clusters of the history of which the user sees all jobs that are not private.
pub(crate) fn visible_tenants(handle: &Handle, user: &User) -> Result<Vec<String>, Problem> {
    let Some(history) = handle.history().filter(|_| !user.admin) else {
        return Ok(Vec::new());
    };
    let tenants = history.tenants().map_err(Problem::history)?;
    let is_visible = |state: &ClusterState, tenant: &String| user.role_in(state, tenant).is_some();
    Ok(handle.read(|state| tenants.into_iter().filter(|t| is_visible(state, t)).collect()))
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
    let listed = tokio::task::spawn_blocking(move || page(&api.handle, &user, &filter).map(Json));
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
        assert!(parse_sort(Some("-gpus")).is_ok() && parse_sort(Some("colour")).is_err());
    }
}
