//! Templates in commands: `<% $parameters.x %>`, `$data`, `$script`, `$output` and `$secrets`, with indices as in `a[0]`.
//!
//! Secrets are looked up but not written into the text. Their templates remain, in canonical form, until an instance is
//! started.

use std::collections::BTreeMap;

use crate::value::Value;

/// Text before the name of a secret in a rendered command.
pub const SECRET_OPEN: &str = "<% $secrets.";
/// Text after the name of a secret.
pub const SECRET_CLOSE: &str = " %>";

/// What templates can refer to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// Name without `$`, and value; `None` if the job or role does not define it.
    pub(crate) roots: [(&'static str, Option<&'a Value>); 5],
}

/// A rendered text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Rendered {
    /// The text. Templates that refer to nothing are unchanged.
    pub(crate) text: String,
    /// Secrets that it uses, by the name in their template.
    pub(crate) secrets: BTreeMap<String, String>,
    /// Messages about templates that refer to nothing.
    pub(crate) unknown: Vec<String>,
}

/// Renders the templates of a text.
pub(crate) fn render(text: &str, scope: &Scope<'_>) -> Rendered {
    let mut rendered = Rendered::default();
    let mut rest = text;
    while let Some(start) = rest.find("<%") {
        rendered.text.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        let Some(end) = after.find("%>") else {
            rendered.unknown.push("`<%` without `%>`".to_owned());
            rendered.text.push_str(&rest[start..]);
            return rendered;
        };
        let token = &rest[start..start + 2 + end + 2];
        match look_up(after[..end].trim(), scope) {
            Ok((path, value)) => match path.strip_prefix("secrets.") {
                Some(name) => {
                    rendered.text.push_str(SECRET_OPEN);
                    rendered.text.push_str(name);
                    rendered.text.push_str(SECRET_CLOSE);
                    rendered.secrets.insert(name.to_owned(), value);
                }
                None => rendered.text.push_str(&value),
            },
            Err(message) => {
                rendered.unknown.push(format!("`{token}`: {message}"));
                rendered.text.push_str(token);
            }
        }
        rest = &after[end + 2..];
    }
    rendered.text.push_str(rest);
    rendered
}

/// A template that cannot be rendered.
#[derive(Debug, thiserror::Error)]
enum TemplateError {
    #[error(
        "invalid reference: expected one such as $parameters.x, $data.uri[0], $script.name, $output.uri or $secrets.x"
    )]
    Invalid,
    #[error("unknown reference: expected $parameters, $data, $script, $output or $secrets")]
    UnknownRoot,
    #[error("the {owner} has no {root}")]
    Undefined { owner: &'static str, root: String },
    #[error("unknown reference: expected one of {0}")]
    UnknownKey(String),
    #[error("${path} is a list of length {length}")]
    List { path: String, length: usize },
    #[error("${path} is a list of length {length}: expected an index, as in ${path}[0]")]
    NoIndex { path: String, length: usize },
    #[error("${0} is empty")]
    Empty(String),
    #[error("${0} is a single value")]
    Scalar(String),
}

/// Returns the value of a reference such as `$data.uri[0]`, and the reference in canonical form.
fn look_up(reference: &str, scope: &Scope<'_>) -> Result<(String, String), TemplateError> {
    let steps = steps(reference).ok_or(TemplateError::Invalid)?;
    let Some((Step::Key(root), below)) = steps.split_first() else {
        return Err(TemplateError::Invalid);
    };
    let known = scope.roots.iter().find(|(name, _)| name == root);
    let (_, value) = known.ok_or(TemplateError::UnknownRoot)?;
    let mut value = value.ok_or_else(|| TemplateError::Undefined {
        owner: match *root {
            "parameters" | "secrets" => "job",
            _ => "role",
        },
        root: (*root).to_owned(),
    })?;
    let mut path = (*root).to_owned();
    for step in below {
        let next = match step {
            Step::Key(key) => value.get(key),
            Step::Index(index) => match value {
                Value::List(list) => list.get(*index),
                _ => None,
            },
        };
        value = next.ok_or_else(|| missing(&path, value))?;
        match step {
            Step::Key(key) => path.extend([".", key]),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    let text = value.to_text().ok_or_else(|| match value {
        Value::List(list) => TemplateError::NoIndex {
            path: path.clone(),
            length: list.len(),
        },
        _ => missing(&path, value),
    })?;
    Ok((path, text))
}

/// Returns the error for a reference below `value` that does not exist.
fn missing(path: &str, value: &Value) -> TemplateError {
    match value {
        Value::Map(entries) if !entries.is_empty() => {
            let names: Vec<String> = entries.iter().map(|(k, _)| format!("${path}.{k}")).collect();
            TemplateError::UnknownKey(names.join(", "))
        }
        Value::List(list) => TemplateError::List {
            path: path.to_owned(),
            length: list.len(),
        },
        Value::Null | Value::Map(_) => TemplateError::Empty(path.to_owned()),
        _ => TemplateError::Scalar(path.to_owned()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Splits `$data.uri[0]` into data, uri and 0.
fn steps(reference: &str) -> Option<Vec<Step<'_>>> {
    let mut steps = Vec::new();
    for part in reference.strip_prefix('$')?.split('.') {
        let (key, mut indices) = match part.find('[') {
            Some(at) => part.split_at(at),
            None => (part, ""),
        };
        let is_name = |c: char| c.is_alphanumeric() || "_-".contains(c);
        if key.is_empty() || !key.chars().all(is_name) {
            return None;
        }
        steps.push(Step::Key(key));
        while !indices.is_empty() {
            let (index, rest) = indices.strip_prefix('[')?.split_once(']')?;
            steps.push(Step::Index(index.parse().ok()?));
            indices = rest;
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap()
    }

    fn check(text: &str) -> Rendered {
        let parameters = node("{model: resnet50, lr: 0.01, many: [1, 2], deep: {a: {b: true}}}");
        let data = node("{name: cifar, uri: [http://a, http://b]}");
        let secrets = node("{key: hunter2, more: [x, z]}");
        let scope = Scope {
            roots: [
                ("parameters", Some(&parameters)),
                ("data", Some(&data)),
                ("script", None),
                ("output", None),
                ("secrets", Some(&secrets)),
            ],
        };
        render(text, &scope)
    }

    #[test]
    fn names_are_filled_in() {
        for (text, expected) in [
            (
                "--model <% $parameters.model %> --lr=<%$parameters.lr%>",
                "--model resnet50 --lr=0.01",
            ),
            (
                "wget <% $data.uri[1] %> -O <% $data.name %>",
                "wget http://b -O cifar",
            ),
            ("<% $parameters.deep.a.b %><% $parameters.many[0] %>", "true1"),
            (
                "if [ 1 -lt 2 ]; then echo '%>'; fi",
                "if [ 1 -lt 2 ]; then echo '%>'; fi",
            ),
        ] {
            let rendered = check(text);
            assert_eq!(
                (rendered.text.as_str(), &rendered.unknown[..]),
                (expected, &[][..]),
                "{text}"
            );
        }
    }

    #[test]
    fn an_unknown_reference_is_left_unchanged_and_reported() {
        for (text, part) in [
            ("<% $parameters.nope %>", "expected one of $parameters.model"),
            ("<% $parameters.many %>", "$parameters.many[0]"),
            ("<% $parameters.many[2] %>", "a list of length 2"),
            ("<% $parameters.model.size %>", "a single value"),
            ("<% $script.uri %>", "the role has no script"),
            ("<% $nothing.x %>", "expected $parameters"),
            ("<% parameters.x %>", "invalid reference"),
            ("<% $parameters.many[ %>", "invalid reference"),
            ("echo <% $parameters.model", "without"),
        ] {
            let rendered = check(text);
            assert_eq!(rendered.text, text);
            assert!(
                rendered.unknown.len() == 1 && rendered.unknown[0].contains(part),
                "{text}: {rendered:?}"
            );
        }
    }

    #[test]
    fn secrets_are_looked_up_but_not_rendered() {
        let rendered = check("login <%$secrets.key%> <% $secrets.more[1] %>");
        assert_eq!(rendered.text, "login <% $secrets.key %> <% $secrets.more[1] %>");
        assert_eq!(rendered.secrets["key"], "hunter2");
        assert_eq!(rendered.secrets["more[1]"], "z");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_renderer_panic(text in "(<%|%>|\\$|parameters|data|\\.|\\[|\\]|0|[a-z ]|\\PC){0,40}") {
            let rendered = check(&text);
            if !text.contains("<%") {
                prop_assert_eq!(rendered.text, text);
            }
        }
    }
}
