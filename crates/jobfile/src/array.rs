//! Arrays of jobs.

use dovetail_cluster::ArrayIndices;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::KeyError;

/// Jobs that differ only in an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayRequest {
    /// Indices, one for each job.
    pub indices: Vec<u32>,
    /// Maximum number of jobs of the array that run at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u32>,
}

/// Maximum number of indices of an array.
const MAX_INDICES: usize = 100_000;

impl ArrayRequest {
    /// Reads `1-100`, `1-100%10` (at most ten at a time) or `1,3,7-9%2`.
    ///
    /// # Errors
    /// When the text has another form, or too many indices.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let invalid = || KeyError::Invalid {
            key: "array".to_owned(),
            value: format!("{text:?}"),
            expected: "indices such as 1-100, 1-100%10 or 1,3,7-9",
        };
        let (list, at_most) = match text.split_once('%') {
            Some((list, limit)) => {
                let limit: u32 = limit.trim().parse().ok().filter(|n| *n > 0).ok_or_else(invalid)?;
                (list, Some(limit))
            }
            None => (text, None),
        };
        let mut indices: Vec<u32> = Vec::new();
        for part in list.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let from: u32 = from.trim().parse().map_err(|_| invalid())?;
            let to: u32 = to.trim().parse().map_err(|_| invalid())?;
            if from > to {
                return Err(invalid());
            }
            if (to - from) as usize >= MAX_INDICES - indices.len() {
                return Err(KeyError::ArrayTooLong {
                    text: text.to_owned(),
                    limit: MAX_INDICES,
                });
            }
            indices.extend(from..=to);
        }
        indices.sort_unstable();
        indices.dedup();
        Ok(Self { indices, at_most })
    }

    /// Returns the indices, as a runtime takes them.
    pub fn indices(&self) -> ArrayIndices<'_> {
        ArrayIndices {
            indices: &self.indices,
            at_most: self.at_most,
        }
    }

    /// Writes the array as [`parse`](Self::parse) reads it.
    pub(crate) fn text(&self) -> String {
        let indices: Vec<String> = self.indices.iter().map(ToString::to_string).collect();
        let limit = self.at_most.map(|n| format!("%{n}")).unwrap_or_default();
        format!("{}{limit}", indices.join(","))
    }
}
