//! Why a job waits, and the line it stands in.

use axum::Json;
use axum::extract::{Path, State};
use dovetail_control::JobNo;
use dovetail_control::book::Why;

use crate::people::User;
use crate::views::QueueEntry;
use crate::{Api, Problem, jobs};

pub(crate) async fn explain(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobNo>,
) -> Result<Json<Why>, Problem> {
    api.handle.read(|book| {
        jobs::find(book, &user, id)?;
        Ok(Json(book.explain(id).unwrap_or_default()))
    })
}

/// The most places of the line that are shown.
const MOST_PLACES: usize = 1_000;
/// Places for which it is looked what stands in the way.
const EXPLAINED: usize = 100;

pub(crate) async fn queue(State(api): State<Api>, user: User) -> Json<Vec<QueueEntry>> {
    Json(api.handle.read(|book| {
        let line = book.line();
        let seen = line.iter().enumerate().filter(|(_, job)| user.may_see(book, job));
        let entry = |(ahead, job): (usize, &&dovetail_control::book::JobRecord)| QueueEntry {
            id: job.no,
            name: job.request.name.clone(),
            user: job.user.clone(),
            tenant: job.request.tenant.clone(),
            gpus: job.request.gpus,
            priority: job.request.priority,
            since: job.since,
            ahead: ahead as u32,
            reason: match ahead < EXPLAINED {
                true => book
                    .explain(job.no)
                    .and_then(|why| why.reasons.into_iter().next())
                    .unwrap_or_default(),
                false => String::new(),
            },
        };
        seen.take(MOST_PLACES).map(entry).collect()
    }))
}
