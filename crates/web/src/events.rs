//! The stream of events (server-sent events).

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use dovetail_cluster::{ClusterEvent, JobId};
use dovetail_history::StoredEvent;
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
    let mut last_event = api.handle.last_event();
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
        let Ok((events, last)) = next_events(&api, &user, sent, query.job).await else {
            return;
        };
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

/// Returns the next events that the user may see, oldest first, and the number up to which there are no others. Events that
/// are no longer in memory are read from the history.
async fn next_events(
    api: &Api,
    user: &User,
    sent: u64,
    job: Option<JobId>,
) -> Result<(Vec<EventView>, u64), Problem> {
    let oldest = api.handle.read(|state| state.oldest_event());
    if sent + 1 < oldest {
        let (events, is_all) = past_events(api, user, (sent, oldest), job).await?;
        let last = if is_all {
            oldest - 1
        } else {
            events.last().map_or(oldest - 1, |e| e.0)
        };
        return Ok((events.into_iter().filter_map(|(_, view)| view).collect(), last));
    }
    Ok(api.handle.read(|state| {
        let new = state.events_after(sent).take(BUFFERED);
        let mut last = sent;
        let may_see = |job: JobId| state.job(job).is_some_and(|job| user.may_see(state, job));
        let events = new
            .inspect(|event| last = event.number)
            .filter(|event| job.is_none_or(|job| event.job == Some(job)))
            .filter(|event| event.job.is_none_or(may_see))
            .map(|event| EventView::new(state, event))
            .collect();
        (events, last)
    }))
}

/// Events of the history with their numbers; without a view if the user may not see them.
type PastEvents = Vec<(u64, Option<EventView>)>;

/// Returns events of the history between two numbers, of one job if it is given, and whether there are no more.
pub(crate) async fn past_events(
    api: &Api,
    user: &User,
    between: (u64, u64),
    job: Option<JobId>,
) -> Result<(PastEvents, bool), Problem> {
    let stored = api
        .read_history(move |handle| match handle.history() {
            Some(history) => history.events(between, job, BUFFERED),
            None => Ok(Vec::new()),
        })
        .await?;
    let is_all = stored.len() < BUFFERED;
    let events = api.handle.read(|state| {
        let may_see = |event: &ClusterEvent, stored: &StoredEvent| match (event.job, &stored.owner) {
            (None, _) => true,
            (Some(_), Some((owner, tenant, private))) => {
                user.admin || user.name == *owner || (!private && user.role_in(state, tenant).is_some())
            }
            (Some(id), None) => state.job(id).is_some_and(|job| user.may_see(state, job)),
        };
        let view = |stored: &StoredEvent| {
            let event: ClusterEvent = serde_json::from_slice(&stored.body).ok()?;
            may_see(&event, stored).then(|| EventView::new(state, &event))
        };
        stored
            .iter()
            .map(|stored| (stored.number, view(stored)))
            .collect()
    });
    Ok((events, is_all))
}
