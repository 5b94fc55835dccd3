//! Templates: job files with parameters, from a folder. What is filled in stays a value, whatever it holds.

use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::Value;

use crate::people::User;
use crate::views::{Filled, Filling, Parameter, ParameterKind, TemplateView};
use crate::{Api, Problem};

/// Those that are there without a folder.
const BUILT_IN: [(&str, &str); 3] = [
    ("python", include_str!("../../../examples/templates/python.yaml")),
    ("sweep", include_str!("../../../examples/templates/sweep.yaml")),
    (
        "torchrun",
        include_str!("../../../examples/templates/torchrun.yaml"),
    ),
];

/// A file of the folder.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    title: String,
    description: String,
    parameters: Vec<Parameter>,
    job: String,
}

/// The largest file, and the most of them.
const LARGEST: u64 = 256 << 10;
const MOST: usize = 500;

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|e| e.to_string().lines().next().unwrap_or_default().to_owned())
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Reads a template; what is wrong with it otherwise.
fn read(name: &str, text: &str) -> Result<TemplateView, String> {
    let file: File = yaml(text)?;
    let view = TemplateView {
        name: name.to_owned(),
        title: file.title,
        description: file.description,
        parameters: file.parameters,
        text: file.job,
    };
    for parameter in &view.parameters {
        let wrong = |what: &str| Err(format!("parameter {:?}: {what}", parameter.name));
        if !is_name(&parameter.name) {
            return wrong("its name has more than letters, digits and _");
        }
        if parameter.kind == ParameterKind::Choice && parameter.choices.as_ref().is_none_or(Vec::is_empty) {
            return wrong("a choice needs choices");
        }
        if let Some(default) = &parameter.default {
            fit(parameter, default).map_err(|e| format!("default of {e}"))?;
        }
    }
    for (_, name) in places(&view.text) {
        if !view.parameters.iter().any(|p| p.name == name) {
            return Err(format!("<% {name} %> is no parameter of it"));
        }
    }
    yaml::<Value>(&view.text).map_err(|e| format!("job: {e}"))?;
    Ok(view)
}

/// Those of the folder, and those that are built in unless the folder has others of the same name.
fn all(folder: Option<&FilePath>) -> BTreeMap<String, TemplateView> {
    let mut found = BTreeMap::new();
    let built_in = BUILT_IN.iter().filter_map(|(name, text)| read(name, text).ok());
    found.extend(built_in.map(|view| (view.name.clone(), view)));
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    let mut paths: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect();
    paths.sort();
    for path in paths.into_iter().take(MOST) {
        let is_yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        let (Some(name), true) = (path.file_stem().and_then(|s| s.to_str()), is_yaml) else {
            continue;
        };
        let text = match std::fs::metadata(&path) {
            Ok(meta) if meta.is_file() && meta.len() <= LARGEST => std::fs::read_to_string(&path),
            _ => continue,
        };
        match text.map_err(|e| e.to_string()).and_then(|text| read(name, &text)) {
            Ok(view) => drop(found.insert(name.to_owned(), view)),
            Err(why) => tracing::warn!(file = %path.display(), why, "a template cannot be used"),
        }
    }
    found
}

/// Where parameters go in a text: what stands there, and the name.
fn places(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("<%") {
        let from = &rest[at..];
        let Some(end) = from.find("%>") else { break };
        let (whole, name) = (&from[..end + 2], from[2..end].trim());
        match is_name(name) {
            true => {
                found.push((whole, name));
                rest = &from[end + 2..];
            }
            false => rest = &from[2..],
        }
    }
    found
}

/// The value, if it is of the parameter's kind.
fn fit(parameter: &Parameter, value: &Value) -> Result<Value, String> {
    let wrong = |what: String| Err(format!("{}: {what}", parameter.name));
    match (parameter.kind, value) {
        (ParameterKind::Text, Value::String(text)) => {
            match text.len() <= 4_096 && !text.chars().any(char::is_control) {
                true => Ok(value.clone()),
                false => wrong("expected one line of at most 4096 bytes".to_owned()),
            }
        }
        (ParameterKind::Number, Value::Number(number)) => {
            let n = number.as_f64().unwrap_or(f64::NAN);
            let (least, most) = (
                parameter.min.unwrap_or(f64::NEG_INFINITY),
                parameter.max.unwrap_or(f64::INFINITY),
            );
            match (least..=most).contains(&n) {
                true => Ok(whole_number(n).unwrap_or_else(|| value.clone())),
                false => wrong(format!("{n} is not from {least} to {most}")),
            }
        }
        (ParameterKind::Choice, Value::String(word)) => {
            let choices = parameter.choices.as_deref().unwrap_or_default();
            match choices.contains(word) {
                true => Ok(value.clone()),
                false => wrong(format!(
                    "{word:?} is none; expected one of {}",
                    choices.join(", ")
                )),
            }
        }
        (ParameterKind::Flag, Value::Bool(_)) => Ok(value.clone()),
        (kind, _) => {
            let kind = match kind {
                ParameterKind::Text | ParameterKind::Choice => "a text",
                ParameterKind::Number => "a number",
                ParameterKind::Flag => "true or false",
            };
            wrong(format!("expected {kind}"))
        }
    }
}

/// `4.0` is written as `4`.
fn whole_number(n: f64) -> Option<Value> {
    (n.fract() == 0.0 && n.abs() < 9e15).then(|| Value::from(n as i64))
}

/// What is filled in: what was said, and the rest as the template has it.
fn values(view: &TemplateView, said: &BTreeMap<String, Value>) -> Result<BTreeMap<String, Value>, String> {
    if let Some(stranger) = said
        .keys()
        .find(|k| !view.parameters.iter().any(|p| p.name == **k))
    {
        return Err(format!("{stranger}: is no parameter of {}", view.name));
    }
    let one = |p: &Parameter| {
        let usual = || match p.kind {
            ParameterKind::Text => Some(Value::from("")),
            ParameterKind::Flag => Some(Value::from(false)),
            ParameterKind::Choice => p
                .choices
                .as_ref()
                .and_then(|c| c.first().cloned())
                .map(Value::from),
            ParameterKind::Number => None,
        };
        let said = said.get(&p.name).filter(|v| !v.is_null()).cloned();
        let value = said.or_else(|| p.default.clone()).or_else(usual);
        let value = value.ok_or_else(|| format!("{}: is missing; expected a number", p.name))?;
        Ok((p.name.clone(), fit(p, &value)?))
    };
    view.parameters.iter().map(one).collect()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The tree with everything filled in: a text that is nothing but a place becomes the value itself.
fn filled_tree(tree: Value, values: &BTreeMap<String, Value>) -> Value {
    match tree {
        Value::String(text) => {
            let found = places(&text);
            if let [(whole, name)] = found[..]
                && whole == text
            {
                return values.get(name).cloned().unwrap_or(Value::Null);
            }
            let mut done = text.clone();
            for (whole, name) in found {
                done = done.replacen(whole, &values.get(name).map(plain).unwrap_or_default(), 1);
            }
            Value::String(done)
        }
        Value::Array(all) => all.into_iter().map(|v| filled_tree(v, values)).collect(),
        Value::Object(map) => {
            let one = |(k, v)| (k, filled_tree(v, values));
            Value::Object(map.into_iter().map(one).collect())
        }
        other => other,
    }
}

/// The text with everything filled in; values that stand alone in quotes if asked for.
fn filled_text(text: &str, values: &BTreeMap<String, Value>, quoted: bool) -> String {
    let line = |line: &str| {
        let (mut done, mut rest) = (String::new(), line);
        for (whole, name) in places(line) {
            let (before, after) = rest.split_once(whole).unwrap_or((rest, ""));
            done.push_str(before);
            let value = values.get(name);
            let alone = (done.ends_with(": ") || done.ends_with("- ")) && after.trim().is_empty();
            match value {
                Some(value) if alone && quoted => done.push_str(&value.to_string()),
                Some(value) => done.push_str(&plain(value)),
                None => {}
            }
            rest = after;
        }
        done + rest
    };
    let lines: Vec<String> = text.split('\n').map(line).collect();
    lines.join("\n")
}

/// A job file: the template's own text where that means the same, else one that is written anew.
fn fill(view: &TemplateView, said: &BTreeMap<String, Value>) -> Result<String, String> {
    let values = values(view, said)?;
    let meant = filled_tree(yaml(&view.text)?, &values);
    for quoted in [false, true] {
        let text = filled_text(&view.text, &values, quoted);
        if yaml::<Value>(&text).is_ok_and(|read| read == meant) {
            return Ok(text);
        }
    }
    serde_saphyr::to_string(&meant).map_err(|e| e.to_string())
}

pub(crate) async fn list(State(api): State<Api>, _user: User) -> Json<Vec<TemplateView>> {
    Json(all(api.config.templates.as_deref()).into_values().collect())
}

pub(crate) async fn render(
    State(api): State<Api>,
    _user: User,
    Path(name): Path<String>,
    body: Result<Json<Filling>, JsonRejection>,
) -> Result<Json<Filled>, Problem> {
    let Json(filling) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    // Names are looked up among those that are there, and never become part of a path.
    let mut known = all(api.config.templates.as_deref());
    let view = known
        .remove(&name)
        .ok_or_else(|| Problem::not_found(format!("there is no template {name:?}")))?;
    let text = fill(&view, &filling.values).map_err(Problem::invalid)?;
    Ok(Json(Filled { text }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::JobFile;

    #[test]
    fn those_that_are_built_in_become_jobs() {
        for (name, text) in BUILT_IN {
            let view = read(name, text).unwrap_or_else(|e| panic!("{name}: {e}"));
            let text = fill(&view, &BTreeMap::new()).unwrap();
            JobFile::parse(&text, name).unwrap_or_else(|e| panic!("{e}\n{text}"));
        }
        let python = read("python", BUILT_IN[0].1).unwrap();
        let text = fill(
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
        assert!(text.contains("# Everything on one node"), "comments stay: {text}");
    }

    #[test]
    fn values_are_of_their_kind_and_within_their_limits() {
        let view = read(
            "t",
            "parameters:\n- {name: n, type: number, min: 1, max: 8}\n- {name: c, type: choice, choices: [a, b]}\n\
             - {name: f, type: flag}\n- {name: t}\njob: 'command: x <% n %> <% c %> <% f %> <% t %>'\n",
        )
        .unwrap();
        let say = |values: Value| fill(&view, &serde_json::from_value(values).unwrap());
        assert_eq!(say(json!({"n": 2, "t": "y"})).unwrap(), "command: x 2 a false y");
        for (wrong, part) in [
            (json!({}), "n: is missing"),
            (json!({"n": 9}), "n: 9 is not from 1 to 8"),
            (json!({"n": "2"}), "n: expected a number"),
            (json!({"n": 2, "c": "z"}), "expected one of a, b"),
            (json!({"n": 2, "f": "yes"}), "f: expected true or false"),
            (json!({"n": 2, "t": "a\nb"}), "t: expected one line"),
            (json!({"n": 2, "x": 1}), "x: is no parameter"),
        ] {
            let said = say(wrong.clone()).unwrap_err();
            assert!(said.contains(part), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_folder_is_read_and_what_is_wrong_in_it_left_out() {
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

    proptest! {
        #[test]
        fn what_is_filled_in_stays_one_value(text in "[ -~]{0,40}", inside in "[ -~äé]{0,40}") {
            let view = read("t", "parameters: [{name: a}, {name: b}]\njob: |\n  name: <% a %>\n  command: echo <% b %> end\n  gpus: 2\n").unwrap();
            let said = [("a".to_owned(), json!(text)), ("b".to_owned(), json!(inside))].into();
            let made: Value = yaml(&fill(&view, &said).unwrap()).unwrap();
            prop_assert_eq!(made, json!({"name": text, "command": format!("echo {inside} end"), "gpus": 2}));
        }
    }
}
