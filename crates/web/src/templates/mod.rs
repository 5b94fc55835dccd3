//! Templates: job files with parameters, built in and from a directory.

mod render;

use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::Value;

use crate::accounts::User;
use crate::views::{Parameter, ParameterKind, RenderedTemplate, TemplateValues, TemplateView};
use crate::{Api, Problem};

use render::{check_value, is_name, placeholders};

/// Built-in templates: name and text.
const BUILT_IN: [(&str, &str); 3] = [
    (
        "python",
        include_str!("../../../../examples/templates/python.yaml"),
    ),
    ("sweep", include_str!("../../../../examples/templates/sweep.yaml")),
    (
        "torchrun",
        include_str!("../../../../examples/templates/torchrun.yaml"),
    ),
];

/// The contents of a template file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TemplateFile {
    title: String,
    description: String,
    parameters: Vec<Parameter>,
    job: String,
}

/// Maximum size of a template file, in bytes.
const MAX_FILE: u64 = 256 << 10;
/// Maximum number of template files in a directory.
const MAX_FILES: usize = 500;

/// A template that cannot be used, or not with the given values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum TemplateError {
    /// The file cannot be read.
    #[error("{0}")]
    File(String),
    /// The text is not YAML, or has other keys than expected.
    #[error("not a template: {0}")]
    Yaml(String),
    /// A name that is not a valid identifier.
    #[error("parameter {0:?}: invalid name: expected letters, digits and `_`")]
    Name(String),
    /// A choice without choices.
    #[error("parameter {0:?}: a choice needs `choices`")]
    NoChoices(String),
    /// A default that is not a valid value.
    #[error("default of {0}")]
    Default(Box<TemplateError>),
    /// A placeholder without a parameter.
    #[error("unknown parameter in <% {0} %>")]
    Placeholder(String),
    /// A value for a parameter that does not exist.
    #[error("{name}: unknown parameter of template {template}")]
    Unknown { name: String, template: String },
    /// A number without a value.
    #[error("{0}: missing; expected a number")]
    Missing(String),
    /// A value that is not valid for its parameter.
    #[error("{name}: {problem}")]
    Value { name: String, problem: String },
}

fn parse_yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, TemplateError> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        let first = e.to_string().lines().next().unwrap_or_default().to_owned();
        TemplateError::Yaml(first)
    })
}

/// Parses and checks a template.
fn parse(name: &str, text: &str) -> Result<TemplateView, TemplateError> {
    let file: TemplateFile = parse_yaml(text)?;
    let view = TemplateView {
        name: name.to_owned(),
        title: file.title,
        description: file.description,
        parameters: file.parameters,
        text: file.job,
    };
    for parameter in &view.parameters {
        if !is_name(&parameter.name) {
            return Err(TemplateError::Name(parameter.name.clone()));
        }
        if parameter.kind == ParameterKind::Choice && parameter.choices.as_ref().is_none_or(Vec::is_empty) {
            return Err(TemplateError::NoChoices(parameter.name.clone()));
        }
        if let Some(default) = &parameter.default {
            check_value(parameter, default).map_err(|e| TemplateError::Default(Box::new(e)))?;
        }
    }
    for (_, name) in placeholders(&view.text) {
        if !view.parameters.iter().any(|p| p.name == name) {
            return Err(TemplateError::Placeholder(name.to_owned()));
        }
    }
    parse_yaml::<Value>(&view.text)?;
    Ok(view)
}

/// Returns all templates, by name. Those of the directory replace built-in ones of the same name; invalid ones are logged.
fn all(directory: Option<&FilePath>) -> BTreeMap<String, TemplateView> {
    let mut found = BTreeMap::new();
    let built_in = BUILT_IN.iter().filter_map(|(name, text)| parse(name, text).ok());
    found.extend(built_in.map(|view| (view.name.clone(), view)));
    let entries = directory.and_then(|directory| std::fs::read_dir(directory).ok());
    let mut paths: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect();
    paths.sort();
    for path in paths.into_iter().take(MAX_FILES) {
        let is_yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        let (Some(name), true) = (path.file_stem().and_then(|s| s.to_str()), is_yaml) else {
            continue;
        };
        let text = match std::fs::metadata(&path) {
            Ok(meta) if meta.is_file() && meta.len() <= MAX_FILE => std::fs::read_to_string(&path),
            _ => continue,
        };
        let parsed = text
            .map_err(|e| TemplateError::File(e.to_string()))
            .and_then(|text| parse(name, &text));
        match parsed {
            Ok(view) => drop(found.insert(name.to_owned(), view)),
            Err(error) => tracing::warn!(file = %path.display(), %error, "template skipped"),
        }
    }
    found
}

pub(crate) async fn list(State(api): State<Api>, _user: User) -> Json<Vec<TemplateView>> {
    Json(all(api.config.templates.as_deref()).into_values().collect())
}

pub(crate) async fn render(
    State(api): State<Api>,
    _user: User,
    Path(name): Path<String>,
    body: Result<Json<TemplateValues>, JsonRejection>,
) -> Result<Json<RenderedTemplate>, Problem> {
    let Json(values) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    // The name is looked up among existing templates, and never becomes part of a path.
    let mut templates = all(api.config.templates.as_deref());
    let view = templates
        .remove(&name)
        .ok_or_else(|| Problem::not_found(format!("unknown template {name:?}")))?;
    let text = render::render(&view, &values.values).map_err(|e| Problem::invalid(e.to_string()))?;
    Ok(Json(RenderedTemplate { text }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use dovetail_jobfile::JobFile;

    #[test]
    fn built_in_templates_become_jobs() {
        for (name, text) in BUILT_IN {
            let view = parse(name, text).unwrap_or_else(|e| panic!("{name}: {e}"));
            let text = render::render(&view, &BTreeMap::new()).unwrap();
            JobFile::parse(&text, name).unwrap_or_else(|e| panic!("{e}\n{text}"));
        }
        let python = parse("python", BUILT_IN[0].1).unwrap();
        let text = render::render(
            &python,
            &[
                ("gpus".to_owned(), json!(4)),
                ("name".to_owned(), json!("a: b # c")),
            ]
            .into(),
        )
        .unwrap();
        let job = JobFile::parse(&text, "x").unwrap().job;
        assert_eq!((job.gpus, job.name.as_str()), (4, "a: b # c"));
        assert!(text.contains("\n# "), "comments stay: {text}");
    }

    #[test]
    fn a_directory_is_read_and_invalid_files_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        put("mine.yaml", "title: Mine\njob: 'command: x'\n");
        put("python.yml", "title: Ours\njob: 'command: y'\n");
        put("bad.yaml", "title: Bad\njob: 'command: <% nothing %>'\n");
        put("worse.yaml", "{");
        put(
            "choice.yaml",
            "parameters: [{name: c, type: choice}]\njob: 'command: x'\n",
        );
        put("notes.txt", "no");
        let found = all(Some(dir.path()));
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["mine", "python", "sweep", "torchrun"]);
        assert_eq!(found["python"].title, "Ours");
        assert_eq!(all(Some(FilePath::new("/nowhere"))).len(), 3);
    }
}
