//! What happens, as it happens (server-sent events).

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use dovetail_control::JobNo;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;

use crate::people::{Scope, User};
use crate::views::EventView;
use crate::{Api, Problem};

/// Which events.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Wanted {
    /// After this number; none for those to come.
    since: Option<u64>,
    /// Of this job alone.
    job: Option<JobNo>,
    /// Go on with what is to come.
    follow: bool,
}

/// Events that wait for a slow reader before the next are looked up.
const WAITING: usize = 256;

pub(crate) async fn stream(
    State(api): State<Api>,
    user: User,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<impl IntoResponse, Problem> {
    let Query(wanted) = wanted.map_err(|e| Problem::invalid(e.body_text()))?;
    let (sender, receiver) = channel(WAITING);
    tokio::spawn(send(api, user, wanted, sender));
    let keep = KeepAlive::new().interval(Duration::from_secs(15));
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(keep))
}

async fn send(api: Api, mut user: User, wanted: Wanted, sender: Sender<Result<Event, Infallible>>) {
    let mut news = api.nodes.notices();
    let mut seen = wanted
        .since
        .unwrap_or_else(|| api.handle.read(|book| book.last_notice()));
    loop {
        news.borrow_and_update();
        // Somebody may watch for days: what it may see is looked at each time.
        let Some((admin, roles)) = api.users.rights_of(&user.name) else {
            return;
        };
        (user.admin, user.roles) = (admin && user.scope == Scope::All, roles);
        let (events, last): (Vec<EventView>, u64) = api.handle.read(|book| {
            let new = book.notices_after(seen).take(WAITING);
            let mut last = seen;
            let may = |job: JobNo| book.job(job).is_some_and(|job| user.may_see(book, job));
            let events = new
                .inspect(|notice| last = notice.number)
                .filter(|notice| wanted.job.is_none_or(|job| notice.job == Some(job)))
                .filter(|notice| notice.job.is_none_or(may))
                .map(|notice| EventView::of(book, notice))
                .collect();
            (events, last)
        });
        let nothing_new = last == seen;
        seen = last;
        for view in events {
            let text = serde_json::to_string(&view).unwrap_or_default();
            let event = Event::default().id(view.number.to_string()).data(text);
            if sender.send(Ok(event)).await.is_err() {
                return;
            }
        }
        if nothing_new {
            if !wanted.follow {
                return;
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                () = sender.closed() => return,
            }
        }
    }
}
