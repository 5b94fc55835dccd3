//! Watches the objects of a kind: a list, then every change.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::{Error, Status};
use crate::objects::Object;
use crate::stream::Lines;

/// A change of the objects of a kind.
#[derive(Debug)]
pub enum Change<T> {
    /// The list of all objects; others no longer exist.
    All(Vec<T>),
    /// An object is new or has changed.
    Put(T),
    /// An object was deleted; this is its last state.
    Gone(T),
    /// The watch failed and is retried.
    Failed(Error),
}

#[derive(Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
#[serde(bound = "T: DeserializeOwned")]
enum WatchEvent<T> {
    Added(T),
    Modified(T),
    Deleted(T),
    Bookmark(BookmarkObject),
    Error(Status),
}

#[derive(Deserialize)]
struct BookmarkObject {
    metadata: BookmarkMeta,
}

/// Metadata of a bookmark, which has only a version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
}

/// Lists once, then watches; lists again after missed changes.
#[derive(Debug)]
pub struct Watcher<T> {
    client: Client,
    path: String,
    query: String,
    /// The last version received.
    version: Option<String>,
    lines: Option<Lines>,
    /// Failures in a row.
    failures: u32,
    kind: std::marker::PhantomData<fn() -> T>,
}

/// Time after which the server ends a watch, in seconds, so that watches are spread over servers again.
const WATCH_S: u32 = 290;
/// Time without data after which the connection counts as dead; bookmarks arrive every minute.
const MAX_SILENCE: Duration = Duration::from_secs(150);

impl<T: Object> Watcher<T> {
    /// Watches the objects at a path, such as `/api/v1/pods`; `query` may have selectors.
    pub fn new(client: &Client, path: &str, query: &str) -> Self {
        Self {
            client: client.clone(),
            path: path.to_owned(),
            query: query.to_owned(),
            version: None,
            lines: None,
            failures: 0,
            kind: std::marker::PhantomData,
        }
    }

    /// Waits for the next change.
    pub async fn next(&mut self) -> Change<T> {
        loop {
            let received = match &mut self.lines {
                Some(_) => self.receive().await,
                None => self.begin().await,
            };
            match received {
                Ok(Some(change)) => {
                    self.failures = 0;
                    return change;
                }
                Ok(None) => {}
                Err(error) => {
                    self.lines = None;
                    if error.code() == Some(410) {
                        self.version = None;
                        continue;
                    }
                    let wait = Duration::from_millis(50 << self.failures.min(6));
                    self.failures += 1;
                    tokio::time::sleep(wait).await;
                    // A single broken connection is not reported.
                    if self.failures > 1 {
                        return Change::Failed(error);
                    }
                }
            }
        }
    }

    /// Whether the next change is buffered.
    pub fn is_ready(&self) -> bool {
        self.lines.as_ref().is_some_and(Lines::has_line)
    }

    /// Lists, or opens a watch from the last version.
    async fn begin(&mut self) -> Result<Option<Change<T>>, Error> {
        let Some(version) = &self.version else {
            let all = self.client.list::<T>(&self.path, &self.query).await?;
            self.version = Some(all.metadata.resource_version);
            return Ok(Some(Change::All(all.items)));
        };
        let and = if self.query.is_empty() { "" } else { "&" };
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={version}{and}{}",
            self.path, self.query
        );
        self.lines = Some(self.client.lines(&path).await?);
        Ok(None)
    }

    async fn receive(&mut self) -> Result<Option<Change<T>>, Error> {
        let what = || format!("WATCH {}", self.path);
        let Some(lines) = &mut self.lines else {
            return Ok(None);
        };
        let line = match tokio::time::timeout(MAX_SILENCE, lines.next()).await {
            Ok(Ok(Some(line))) => line,
            // The server ended the watch, as it does from time to time.
            Ok(Ok(None)) => {
                self.lines = None;
                return Ok(None);
            }
            Ok(Err(e)) => {
                return Err(Error::Unreachable {
                    what: what(),
                    why: e.to_string(),
                });
            }
            Err(_) => {
                return Err(Error::Unreachable {
                    what: what(),
                    why: format!("no data for {} s", MAX_SILENCE.as_secs()),
                });
            }
        };
        if line.is_empty() {
            return Ok(None);
        }
        let event: WatchEvent<T> = serde_json::from_slice(&line).map_err(|e| {
            // The same event would fail again, so the next step is a new list.
            self.version = None;
            Error::Unreadable {
                what: format!("WATCH {}", self.path),
                why: e.to_string(),
            }
        })?;
        Ok(match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.version = Some(object.meta().resource_version.clone());
                Some(Change::Put(object))
            }
            WatchEvent::Deleted(object) => {
                self.version = Some(object.meta().resource_version.clone());
                Some(Change::Gone(object))
            }
            WatchEvent::Bookmark(mark) => {
                self.version = Some(mark.metadata.resource_version);
                None
            }
            WatchEvent::Error(status) => return Err(Error::Refused { what: what(), status }),
        })
    }
}
