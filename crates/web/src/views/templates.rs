//! Bodies of templates: job files with parameters.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateView {
    /// Name, by which it is requested.
    pub name: String,
    /// Title that is shown.
    pub title: String,
    /// Purpose of the template.
    pub description: String,
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// Job file, with `<% name %>` in place of parameters.
    pub text: String,
}

/// A parameter of a template.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Parameter {
    /// Name: letters, digits and `_`.
    pub name: String,
    /// Type of its values.
    #[serde(rename = "type")]
    pub kind: ParameterKind,
    /// Default value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<serde_json::Value>,
    /// Values of a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<String>>,
    /// Explanation for the user.
    pub help: String,
    /// Minimum of a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Maximum of a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ParameterKind {
    /// Text in one line.
    #[default]
    Text,
    /// A number.
    Number,
    /// One of several words.
    Choice,
    /// True or false.
    Flag,
}

/// Values for the parameters of a template.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TemplateValues {
    /// Values by parameter; parameters that are missing have their default.
    pub values: BTreeMap<String, serde_json::Value>,
}

/// A template with values in place of its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RenderedTemplate {
    /// Job file.
    pub text: String,
}
