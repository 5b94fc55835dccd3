//! Query parameters that several routes share.

use schemars::JsonSchema;
use serde::Deserialize;

/// Whether a request is only a preview.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DryRunQuery {
    /// Return a preview without changing anything.
    pub(crate) dry_run: bool,
}
