//! The stream of events (server-sent events).

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use dovetail_cluster::JobId;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;

use crate::accounts::{Scope, User};
use crate::views::EventView;
use crate::{Api, Problem};

/// Which events to send.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EventQuery {
    /// Only events after this number; none for future events only.
    since: Option<u64>,
    /// Only events of this job.
    job: Option<JobId>,
    /// Keep the stream open for future events.
    follow: bool,
}

/// Maximum number of events that are buffered for a slow client.
const BUFFERED: usize = 256;

pub(crate) async fn stream(
    State(api): State<Api>,
    user: User,
    query: Result<Query<EventQuery>, QueryRejection>,
) -> Result<impl IntoResponse, Problem> {
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    let (sender, receiver) = channel(BUFFERED);
    tokio::spawn(send(api, user, query, sender));
    let keep = KeepAlive::new().interval(Duration::from_secs(15));
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(keep))
}

async fn send(api: Api, mut user: User, query: EventQuery, sender: Sender<Result<Event, Infallible>>) {
    let mut last_event = api.nodes.last_event();
    let mut sent = query
        .since
        .unwrap_or_else(|| api.handle.read(|state| state.last_event()));
    loop {
        last_event.borrow_and_update();
        // A stream may be open for days: the rights of the user are read again each time.
        let Some((admin, roles)) = api.users.rights_of(&user.name) else {
            return;
        };
        (user.admin, user.roles) = (admin && user.scope == Scope::All, roles);
        let (events, last): (Vec<EventView>, u64) = api.handle.read(|state| {
            let new = state.events_after(sent).take(BUFFERED);
            let mut last = sent;
            let may_see = |job: JobId| state.job(job).is_some_and(|job| user.may_see(state, job));
            let events = new
                .inspect(|event| last = event.number)
                .filter(|event| query.job.is_none_or(|job| event.job == Some(job)))
                .filter(|event| event.job.is_none_or(may_see))
                .map(|event| EventView::new(state, event))
                .collect();
            (events, last)
        });
        let is_up_to_date = last == sent;
        sent = last;
        for view in events {
            let text = serde_json::to_string(&view).unwrap_or_default();
            let event = Event::default().id(view.number.to_string()).data(text);
            if sender.send(Ok(event)).await.is_err() {
                return;
            }
        }
        if is_up_to_date {
            if !query.follow {
                return;
            }
            tokio::select! {
                changed = last_event.changed() => if changed.is_err() { return },
                () = sender.closed() => return,
            }
        }
    }
}
