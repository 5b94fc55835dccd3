//! All objects of a kind, and every change from then on.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::{Error, Status};
use crate::objects::Object;
use crate::stream::Lines;

/// What is heard of the objects of a kind.
#[derive(Debug)]
pub enum Change<T> {
    /// All there are: whatever else was known is gone.
    All(Vec<T>),
    /// One is new, or has changed.
    Put(T),
    /// One is gone; this is what it was last.
    Gone(T),
    /// Nothing can be heard for now; it is tried again.
    Trouble(Error),
}

#[derive(Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
#[serde(bound = "T: DeserializeOwned")]
enum Heard<T> {
    Added(T),
    Modified(T),
    Deleted(T),
    Bookmark(Mark),
    Error(Status),
}

#[derive(Deserialize)]
struct Mark {
    metadata: Marked,
}

/// Of a mark only the version is of interest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Marked {
    resource_version: String,
}

/// Lists once, then watches; lists again where changes were missed.
#[derive(Debug)]
pub struct Watcher<T> {
    client: Client,
    path: String,
    query: String,
    /// The version that was heard last.
    version: Option<String>,
    lines: Option<Lines>,
    /// Failures in a row.
    failures: u32,
    kind: std::marker::PhantomData<fn() -> T>,
}

/// The server ends a watch after so long, so that it is spread over servers anew.
const WATCH_S: u32 = 290;
/// Silence for longer than that is a line that is dead. Bookmarks come every minute.
const SILENCE: Duration = Duration::from_secs(150);

impl<T: Object> Watcher<T> {
    /// Of the objects at a path, such as `/api/v1/pods`; `query` may have selectors.
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

    /// The next change. Waits as long as it takes.
    pub async fn next(&mut self) -> Change<T> {
        loop {
            let heard = match &mut self.lines {
                Some(_) => self.hear().await,
                None => self.begin().await,
            };
            match heard {
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
                    // A line that breaks once is nothing to speak of.
                    if self.failures > 1 {
                        return Change::Trouble(error);
                    }
                }
            }
        }
    }

    /// Whether the next change is there already.
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

    async fn hear(&mut self) -> Result<Option<Change<T>>, Error> {
        let what = || format!("WATCH {}", self.path);
        let Some(lines) = &mut self.lines else {
            return Ok(None);
        };
        let line = match tokio::time::timeout(SILENCE, lines.next()).await {
            Ok(Ok(Some(line))) => line,
            // The watch is over, as it should be from time to time.
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
                    why: "silence".to_owned(),
                });
            }
        };
        if line.is_empty() {
            return Ok(None);
        }
        let heard: Heard<T> = serde_json::from_slice(&line).map_err(|e| {
            // What cannot be read will not be readable the next time: the list says how things stand.
            self.version = None;
            Error::Unreadable {
                what: format!("WATCH {}", self.path),
                why: e.to_string(),
            }
        })?;
        Ok(match heard {
            Heard::Added(object) | Heard::Modified(object) => {
                self.version = Some(object.meta().resource_version.clone());
                Some(Change::Put(object))
            }
            Heard::Deleted(object) => {
                self.version = Some(object.meta().resource_version.clone());
                Some(Change::Gone(object))
            }
            Heard::Bookmark(mark) => {
                self.version = Some(mark.metadata.resource_version);
                None
            }
            Heard::Error(status) => return Err(Error::Refused { what: what(), status }),
        })
    }
}
