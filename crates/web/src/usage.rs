//! GPU usage by day, user and virtual cluster.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use dovetail_cluster::Handle;
use dovetail_cluster::state::{ClusterState, JobRecord};
use dovetail_model::Time;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::accounts::{Role, User};
use crate::views::UsageRow;
use crate::{Api, Problem};

/// The days to report.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UsageQuery {
    /// First day, in UTC.
    from: Option<String>,
    /// Last day, in UTC.
    to: Option<String>,
}

/// Returns the name of a day, such as `2026-11-16`, from the number of days since 1970.
fn day_name(days: i64) -> String {
    // The calendar repeats every 400 years. Years start in March here, so that a leap day is the last day of its year.
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
    query: Result<Query<UsageQuery>, QueryRejection>,
) -> Result<Json<Vec<UsageRow>>, Problem> {
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    for day in [&query.from, &query.to].into_iter().flatten() {
        let is_day = day.len() == 10
            && day.bytes().enumerate().all(|(i, b)| match i {
                4 | 7 => b == b'-',
                _ => b.is_ascii_digit(),
            });
        if !is_day {
            return Err(Problem::invalid(format!(
                "invalid day {day:?}: expected one such as 2026-11-16"
            )));
        }
    }
    let rows = tokio::task::spawn_blocking(move || rows(&api.handle, &user)).await;
    let rows = rows.map_err(|e| Problem::unavailable(e.to_string()))??;
    let is_within = |row: &UsageRow| {
        query.from.as_ref().is_none_or(|from| row.day >= *from)
            && query.to.as_ref().is_none_or(|to| row.day <= *to)
    };
    Ok(Json(rows.into_iter().filter(is_within).collect()))
}

/// GPU time and number of jobs by day, user and virtual cluster.
type Sums = BTreeMap<(i64, String, String), (i128, u64)>;

/// Returns the usage that the user may see, of jobs in memory and in the history.
fn rows(handle: &Handle, user: &User) -> Result<Vec<UsageRow>, Problem> {
    // Only operators see the usage of other users.
    let is_visible = |state: &ClusterState, owner: &str, tenant: &str| {
        owner == user.name || user.role_in(state, tenant) >= Some(Role::Operator)
    };
    let (mut sums, known) = handle.read(|state| {
        let jobs = state.jobs();
        let visible = jobs.filter(|job| is_visible(state, &job.user, &job.request.tenant));
        (sums_of(visible, state.now()), state.known_jobs())
    });
    if let Some(history) = handle.history().filter(|_| known.from > 0) {
        let past = history
            .usage(&known, (i64::MIN, i64::MAX))
            .map_err(Problem::history)?;
        handle.read(|state| {
            for row in past
                .into_iter()
                .filter(|row| is_visible(state, &row.user, &row.tenant))
            {
                let sum = sums.entry((row.day, row.user, row.tenant)).or_default();
                sum.0 += i128::from(row.gpu_time);
                sum.1 += row.jobs;
            }
        });
    }
    let row = |((day, user, tenant), (time, jobs)): ((i64, String, String), (i128, u64))| UsageRow {
        day: day_name(day),
        user,
        tenant,
        gpu_hours: time as f64 / 3.6e9,
        jobs,
    };
    Ok(sums.into_iter().map(row).collect())
}

/// Returns GPU time by day, user and virtual cluster.
fn sums_of<'a>(jobs: impl Iterator<Item = &'a JobRecord>, now: Time) -> Sums {
    let mut sums = Sums::new();
    for job in jobs {
        for (day, time) in job.usage_by_day(now) {
            let key = (day, job.user.clone(), job.request.tenant.clone());
            let sum = sums.entry(key).or_default();
            sum.0 += time;
            sum.1 += 1;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_named_by_the_calendar() {
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
