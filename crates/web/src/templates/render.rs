//! Rendering of templates. A value stays one value of the job file, whatever characters it contains.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{TemplateError, parse_yaml};
use crate::views::{Parameter, ParameterKind, TemplateView};

/// Whether the text is a valid name of a parameter.
pub(super) fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns the placeholders in a text, each with the name of its parameter.
pub(super) fn placeholders(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("<%") {
        let from = &rest[at..];
        let Some(end) = from.find("%>") else { break };
        let (placeholder, name) = (&from[..end + 2], from[2..end].trim());
        match is_name(name) {
            true => {
                found.push((placeholder, name));
                rest = &from[end + 2..];
            }
            false => rest = &from[2..],
        }
    }
    found
}

/// Returns the value if it is valid for the parameter.
pub(super) fn check_value(parameter: &Parameter, value: &Value) -> Result<Value, TemplateError> {
    let invalid = |problem: String| {
        Err(TemplateError::Value {
            name: parameter.name.clone(),
            problem,
        })
    };
    match (parameter.kind, value) {
        (ParameterKind::Text, Value::String(text)) => {
            match text.len() <= 4_096 && !text.chars().any(char::is_control) {
                true => Ok(value.clone()),
                false => invalid("expected one line of at most 4096 bytes".to_owned()),
            }
        }
        (ParameterKind::Number, Value::Number(number)) => {
            let n = number.as_f64().unwrap_or(f64::NAN);
            let (min, max) = (
                parameter.min.unwrap_or(f64::NEG_INFINITY),
                parameter.max.unwrap_or(f64::INFINITY),
            );
            match (min..=max).contains(&n) {
                true => Ok(integer(n).unwrap_or_else(|| value.clone())),
                false => invalid(format!("invalid value {n}: must be from {min} to {max}")),
            }
        }
        (ParameterKind::Choice, Value::String(word)) => {
            let choices = parameter.choices.as_deref().unwrap_or_default();
            match choices.contains(word) {
                true => Ok(value.clone()),
                false => invalid(format!(
                    "invalid value {word:?}: expected one of {}",
                    choices.join(", ")
                )),
            }
        }
        (ParameterKind::Flag, Value::Bool(_)) => Ok(value.clone()),
        (kind, _) => {
            let expected = match kind {
                ParameterKind::Text | ParameterKind::Choice => "a string",
                ParameterKind::Number => "a number",
                ParameterKind::Flag => "true or false",
            };
            invalid(format!("expected {expected}"))
        }
    }
}

/// Returns `4` for `4.0`.
fn integer(n: f64) -> Option<Value> {
    (n.fract() == 0.0 && n.abs() < 9e15).then(|| Value::from(n as i64))
}

/// Returns the value of each parameter: the given one, or the default.
fn complete(
    view: &TemplateView,
    given: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, Value>, TemplateError> {
    let is_unknown = |name: &&String| !view.parameters.iter().any(|p| p.name == **name);
    if let Some(name) = given.keys().find(is_unknown) {
        return Err(TemplateError::Unknown {
            name: name.clone(),
            template: view.name.clone(),
        });
    }
    let value_of = |p: &Parameter| {
        let fallback = || match p.kind {
            ParameterKind::Text => Some(Value::from("")),
            ParameterKind::Flag => Some(Value::from(false)),
            ParameterKind::Choice => p
                .choices
                .as_ref()
                .and_then(|c| c.first().cloned())
                .map(Value::from),
            ParameterKind::Number => None,
        };
        let given = given.get(&p.name).filter(|v| !v.is_null()).cloned();
        let value = given.or_else(|| p.default.clone()).or_else(fallback);
        let value = value.ok_or_else(|| TemplateError::Missing(p.name.clone()))?;
        Ok((p.name.clone(), check_value(p, &value)?))
    };
    view.parameters.iter().map(value_of).collect()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Replaces placeholders in a tree. A string that is nothing but a placeholder becomes the value itself.
fn render_tree(tree: Value, values: &BTreeMap<String, Value>) -> Value {
    match tree {
        Value::String(text) => {
            let found = placeholders(&text);
            if let [(placeholder, name)] = found[..]
                && placeholder == text
            {
                return values.get(name).cloned().unwrap_or(Value::Null);
            }
            let mut rendered = text.clone();
            for (placeholder, name) in found {
                let value = values.get(name).map(plain).unwrap_or_default();
                rendered = rendered.replacen(placeholder, &value, 1);
            }
            Value::String(rendered)
        }
        Value::Array(items) => items.into_iter().map(|v| render_tree(v, values)).collect(),
        Value::Object(map) => {
            let entry = |(k, v)| (k, render_tree(v, values));
            Value::Object(map.into_iter().map(entry).collect())
        }
        other => other,
    }
}

/// Replaces placeholders in a text. With `quoted`, values that are alone after a key are written as JSON.
fn render_text(text: &str, values: &BTreeMap<String, Value>, quoted: bool) -> String {
    let render_line = |line: &str| {
        let (mut done, mut rest) = (String::new(), line);
        for (placeholder, name) in placeholders(line) {
            let (before, after) = rest.split_once(placeholder).unwrap_or((rest, ""));
            done.push_str(before);
            let is_alone = (done.ends_with(": ") || done.ends_with("- ")) && after.trim().is_empty();
            match values.get(name) {
                Some(value) if is_alone && quoted => done.push_str(&value.to_string()),
                Some(value) => done.push_str(&plain(value)),
                None => {}
            }
            rest = after;
        }
        done + rest
    };
    let lines: Vec<String> = text.split('\n').map(render_line).collect();
    lines.join("\n")
}

/// Returns the job file of a template. The text of the template is kept, with its comments, if it then means the same;
/// otherwise the file is written from scratch.
pub(super) fn render(view: &TemplateView, given: &BTreeMap<String, Value>) -> Result<String, TemplateError> {
    let values = complete(view, given)?;
    let expected = render_tree(parse_yaml(&view.text)?, &values);
    for quoted in [false, true] {
        let text = render_text(&view.text, &values, quoted);
        if parse_yaml::<Value>(&text).is_ok_and(|parsed| parsed == expected) {
            return Ok(text);
        }
    }
    serde_saphyr::to_string(&expected).map_err(|e| TemplateError::Yaml(e.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::parse;
    use super::*;

    #[test]
    fn values_must_have_the_type_and_the_range_of_their_parameter() {
        let view = parse(
            "t",
            "parameters:\n- {name: n, type: number, min: 1, max: 8}\n- {name: c, type: choice, choices: [a, b]}\n\
             - {name: f, type: flag}\n- {name: t}\njob: 'command: x <% n %> <% c %> <% f %> <% t %>'\n",
        )
        .unwrap();
        let render = |values: Value| render(&view, &serde_json::from_value(values).unwrap());
        assert_eq!(
            render(json!({"n": 2, "t": "y"})).unwrap(),
            "command: x 2 a false y"
        );
        for (values, part) in [
            (json!({}), "n: missing"),
            (json!({"n": 9}), "n: invalid value 9: must be from 1 to 8"),
            (json!({"n": "2"}), "n: expected a number"),
            (json!({"n": 2, "c": "z"}), "expected one of a, b"),
            (json!({"n": 2, "f": "yes"}), "f: expected true or false"),
            (json!({"n": 2, "t": "a\nb"}), "t: expected one line"),
            (json!({"n": 2, "x": 1}), "x: unknown parameter"),
        ] {
            let message = render(values.clone()).unwrap_err().to_string();
            assert!(message.contains(part), "{values}: {message}");
        }
    }

    proptest! {
        #[test]
        fn a_value_stays_one_value(text in "[ -~]{0,40}", inside in "[ -~äé]{0,40}") {
            let view = parse("t", "parameters: [{name: a}, {name: b}]\njob: |\n  name: <% a %>\n  command: echo <% b %> end\n  gpus: 2\n").unwrap();
            let values = [("a".to_owned(), json!(text)), ("b".to_owned(), json!(inside))].into();
            let rendered: Value = parse_yaml(&render(&view, &values).unwrap()).unwrap();
            prop_assert_eq!(rendered, json!({"name": text, "command": format!("echo {inside} end"), "gpus": 2}));
        }
    }
}
