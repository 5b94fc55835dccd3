//! Jobs: sending, listing, looking at and stopping them, and what they used.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use dovetail_control::JobNo;
use dovetail_control::book::{Book, JobRecord, Why};
use dovetail_model::Time;
use serde::Deserialize;

use crate::users::User;
use crate::views::{JobPage, JobView, Submission, Submitted, UsageRow, may_see, state_word};
use crate::{Api, Problem};

/// The job of this number, if the user may know of it.
pub(crate) fn find<'a>(book: &'a Book, user: &User, id: JobNo) -> Result<&'a JobRecord, Problem> {
    let job = book.job(id).filter(|job| may_see(user, job));
    job.ok_or_else(|| Problem::not_found(format!("there is no job {id}")))
}

/// The job of this number, if the user may do something to it.
pub(crate) fn find_own<'a>(book: &'a Book, user: &User, id: JobNo) -> Result<&'a JobRecord, Problem> {
    let job = find(book, user, id)?;
    match user.admin || job.user == user.name {
        true => Ok(job),
        false => Err(Problem::forbidden(format!(
            "job {id} belongs to {}; only its owner and administrators may do that",
            job.user
        ))),
    }
}

pub(crate) async fn submit(
    State(api): State<Api>,
    user: User,
    body: Result<Json<Submission>, JsonRejection>,
) -> Result<(StatusCode, Json<Submitted>), Problem> {
    let Json(submission) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    let Submission {
        mut job,
        array,
        dry_run,
    } = submission;
    if job.array.is_some() {
        return Err(Problem::invalid(
            "job.array: is set by the scheduler; use `array` beside `job`",
        ));
    }
    // Whose account a job has is no matter of what its sender writes.
    match &job.run_as {
        Some(account) if *account != user.name && !user.admin => {
            return Err(Problem::forbidden(format!(
                "run_as: only an administrator may run jobs as {account}"
            )));
        }
        None if api.config.run_as_user => job.run_as = Some(user.name.clone()),
        Some(_) | None => {}
    }
    if dry_run {
        job.validate().map_err(Problem::invalid)?;
        let look = api.handle.clone();
        let name = user.name.clone();
        let outlook = tokio::task::spawn_blocking(move || look.would_come(&name, &job));
        let outlook = outlook.await.map_err(|e| Problem::unavailable(e.to_string()))??;
        let dry = Submitted {
            id: None,
            last: None,
            outlook: Some(outlook),
        };
        return Ok((StatusCode::OK, Json(dry)));
    }
    let (id, last) = match array {
        None => (api.ask(api.handle.submit(&user.name, job)).await?, None),
        Some(array) => {
            const MOST: usize = 100_000;
            if array.indices.len() > MOST {
                return Err(Problem::invalid(format!("array: at most {MOST} jobs at once")));
            }
            let ask = api
                .handle
                .submit_array(&user.name, job, array.indices, array.at_most);
            let (first, last) = api.ask(ask).await?;
            (first, Some(last))
        }
    };
    let submitted = Submitted {
        id: Some(id),
        last,
        outlook: None,
    };
    Ok((StatusCode::CREATED, Json(submitted)))
}

/// Which jobs are listed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Filter {
    /// States, with commas between; `live` for all that are not over, `over` for all that are.
    state: Option<String>,
    user: Option<String>,
    tenant: Option<String>,
    name: Option<String>,
    /// `key=value`, or `key` for any value.
    label: Option<String>,
    /// Of this node.
    node: Option<String>,
    /// Older than this.
    before: Option<JobNo>,
    limit: Option<usize>,
}

impl Filter {
    fn takes(&self, book: &Book, job: &JobRecord) -> bool {
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
        is(&self.user, &job.user)
            && is(&self.tenant, &job.request.tenant)
            && is(&self.name, &job.request.name)
            && self.state.as_ref().is_none_or(state)
            && self.label.as_ref().is_none_or(label)
            && self.node.as_ref().is_none_or(node)
    }
}

pub(crate) async fn list(
    State(api): State<Api>,
    user: User,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Json<JobPage>, Problem> {
    let Query(filter) = filter.map_err(|e| Problem::invalid(e.body_text()))?;
    let limit = filter.limit.unwrap_or(100).clamp(1, 10_000);
    let page = api.handle.read(|book| {
        let mut found = book
            .jobs()
            .rev()
            .skip_while(|job| filter.before.is_some_and(|before| job.no >= before))
            .filter(|job| may_see(&user, job) && filter.takes(book, job));
        let jobs: Vec<JobView> = found
            .by_ref()
            .take(limit)
            .map(|job| JobView::of(book, job, &user, false))
            .collect();
        let more = jobs.len() == limit && found.next().is_some();
        let next = jobs.last().filter(|_| more).map(|job| job.id);
        JobPage { jobs, next }
    });
    Ok(Json(page))
}

pub(crate) async fn show(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobNo>,
) -> Result<Json<JobView>, Problem> {
    api.handle.read(|book| {
        let job = find(book, &user, id)?;
        Ok(Json(JobView::of(book, job, &user, true)))
    })
}

pub(crate) async fn explain(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobNo>,
) -> Result<Json<Why>, Problem> {
    api.handle.read(|book| {
        find(book, &user, id)?;
        Ok(Json(book.explain(id).unwrap_or_default()))
    })
}

pub(crate) async fn act(
    State(api): State<Api>,
    user: User,
    Path((id, action)): Path<(JobNo, String)>,
) -> Result<Json<JobView>, Problem> {
    api.handle.read(|book| find_own(book, &user, id).map(|_| ()))?;
    let ask = match action.as_str() {
        "stop" => api.handle.cancel(id, &user.name),
        "hold" => api.handle.hold(id, &user.name),
        "release" => api.handle.release(id, &user.name),
        _ => {
            return Err(Problem::not_found(format!(
                "{action:?} cannot be done to a job; stop, hold and release can"
            )));
        }
    };
    api.ask(ask).await?;
    show(State(api), user, Path(id)).await
}

/// From which day to which.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Days {
    /// The first, in UTC.
    from: Option<String>,
    /// The last.
    to: Option<String>,
}

const DAY_US: i64 = 86_400_000_000;

/// `2026-11-16`, of a number of days since 1970.
fn day_name(days: i64) -> String {
    // The calendar repeats every 400 years; years begin in March, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

pub(crate) async fn usage(
    State(api): State<Api>,
    user: User,
    days: Result<Query<Days>, QueryRejection>,
) -> Result<Json<Vec<UsageRow>>, Problem> {
    let Query(days) = days.map_err(|e| Problem::invalid(e.body_text()))?;
    for day in [&days.from, &days.to].into_iter().flatten() {
        let is_day = day.len() == 10
            && day.bytes().enumerate().all(|(i, b)| match i {
                4 | 7 => b == b'-',
                _ => b.is_ascii_digit(),
            });
        if !is_day {
            return Err(Problem::invalid(format!(
                "{day:?} is no day; expected one such as 2026-11-16"
            )));
        }
    }
    // Others' jobs are nobody's business but an administrator's.
    let rows = api.handle.read(|book| {
        let own = |job: &&JobRecord| user.admin || job.user == user.name;
        used(book.jobs().filter(own), book.now())
    });
    let within = |row: &UsageRow| {
        days.from.as_ref().is_none_or(|from| row.day >= *from)
            && days.to.as_ref().is_none_or(|to| row.day <= *to)
    };
    Ok(Json(rows.into_iter().filter(within).collect()))
}

/// GPU time by day, user and tenant.
fn used<'a>(jobs: impl Iterator<Item = &'a JobRecord>, now: Time) -> Vec<UsageRow> {
    type Sum = (i128, std::collections::BTreeSet<JobNo>);
    let mut sums: BTreeMap<(i64, &str, &str), Sum> = BTreeMap::new();
    for job in jobs {
        for attempt in &job.attempts {
            let (mut from, until) = (attempt.since.0, attempt.until.unwrap_or(now).0);
            while from < until {
                let day = from.div_euclid(DAY_US);
                let to = until.min((day + 1) * DAY_US);
                let key = (day, job.user.as_str(), job.request.tenant.as_str());
                let sum = sums.entry(key).or_default();
                sum.0 += i128::from(to - from) * i128::from(attempt.allocation.gpus());
                sum.1.insert(job.no);
                from = to;
            }
        }
    }
    let row = |((day, user, tenant), (time, jobs)): ((i64, &str, &str), Sum)| UsageRow {
        day: day_name(day),
        user: user.to_owned(),
        tenant: tenant.to_owned(),
        gpu_hours: time as f64 / 3.6e9,
        jobs: jobs.len() as u64,
    };
    sums.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_names() {
        for (days, name) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_773, "2026-11-16"),
        ] {
            assert_eq!(day_name(days), name);
        }
    }
}
