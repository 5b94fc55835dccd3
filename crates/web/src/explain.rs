//! Why a job waits, and the line it stands in.

use axum::Json;
use axum::extract::{Path, State};
use dovetail_control::JobNo;
use dovetail_control::book::{Book, JobRecord};

use crate::people::{Role, User};
use crate::views::{Explained, JobAhead, QueueEntry, state_word};
use crate::{Api, Problem, job_list, jobs};

/// Jobs ahead that are named.
const AHEAD: usize = 10;

pub(crate) async fn explain(
    State(api): State<Api>,
    user: User,
    Path(id): Path<JobNo>,
) -> Result<Json<Explained>, Problem> {
    // The future is played through many times, which takes a while: beside the book, so that nobody waits for it.
    let looked = tokio::task::spawn_blocking(move || {
        let (mut explained, prospect) = api.handle.read(|book| {
            let job = jobs::find(book, &user, id)?;
            let (clusters, ahead) = match job_list::is_in_line(job) {
                true => (usable(book, &user), ahead(book, &user, id)),
                false => Default::default(),
            };
            let explained = Explained {
                why: book.explain(id).unwrap_or_default(),
                jobs_ahead: ahead,
                instead: book.instead(id, &clusters),
                eta: None,
                eta_hidden: String::new(),
            };
            let prospect = book.stands_in_line(id).map(|()| api.foresight.look(book));
            Ok::<_, Problem>((explained, prospect))
        })?;
        match prospect.and_then(|prospect| api.foresight.eta(&prospect, id)) {
            Ok(eta) => explained.eta = Some(eta),
            Err(why) => explained.eta_hidden = why,
        }
        Ok(Json(explained))
    });
    looked.await.map_err(|e| Problem::unavailable(e.to_string()))?
}

/// Virtual clusters in which the user may run jobs.
fn usable(book: &Book, user: &User) -> Vec<String> {
    let names = book.clusters().names().into_iter();
    names
        .filter(|name| user.role_in(book, name) >= Some(Role::Member))
        .collect()
}

fn ahead(book: &Book, user: &User, id: JobNo) -> Vec<JobAhead> {
    let line = book.line().into_iter().take_while(|job| job.no != id);
    let view = |job: &JobRecord| {
        let seen = |text: &String| {
            if user.may_see(book, job) {
                text.clone()
            } else {
                String::new()
            }
        };
        JobAhead {
            id: job.no,
            name: seen(&job.request.name),
            user: seen(&job.user),
            gpus: job.request.gpus,
            state: state_word(job).to_owned(),
        }
    };
    line.take(AHEAD).map(view).collect()
}

/// The most places of the line that are shown.
const MOST_PLACES: usize = 1_000;
/// Places for which it is looked what stands in the way.
const EXPLAINED: usize = 100;

pub(crate) async fn queue(State(api): State<Api>, user: User) -> Json<Vec<QueueEntry>> {
    Json(api.handle.read(|book| {
        let line = book.line();
        let seen = line.iter().enumerate().filter(|(_, job)| user.may_see(book, job));
        let entry = |(ahead, job): (usize, &&JobRecord)| QueueEntry {
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
