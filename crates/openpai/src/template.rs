//! Templates in commands: `<% $parameters.x %>`, `$data`, `$script`, `$output`, `$secrets`, with a list index: `a[0]`.
//!
//! Secrets are looked up but not written into the text: their tokens stay, in one spelling, until the job is launched.

use std::collections::BTreeMap;

use crate::node::Node;

/// What stands before the name of a secret in a text that is ready but for its secrets.
pub const SECRET_OPEN: &str = "<% $secrets.";
/// What stands after it.
pub const SECRET_CLOSE: &str = " %>";

/// What names in templates stand for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// The name of a root without its `$`, and its value; none where the role has no such thing.
    pub(crate) roots: [(&'static str, Option<&'a Node>); 5],
}

/// A text with its values filled in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Rendered {
    /// The text; tokens that name nothing stand as they were.
    pub(crate) text: String,
    /// Secrets it uses, by the name in their token.
    pub(crate) secrets: BTreeMap<String, String>,
    /// What is wrong with tokens that name nothing.
    pub(crate) unknown: Vec<String>,
}

/// Fills in what the tokens of a text name.
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
            Err(what) => {
                rendered.unknown.push(format!("`{token}`: {what}"));
                rendered.text.push_str(token);
            }
        }
        rest = &after[end + 2..];
    }
    rendered.text.push_str(rest);
    rendered
}

/// The value of a name such as `$data.uri[0]`, and the name in one spelling.
fn look_up(name: &str, scope: &Scope<'_>) -> Result<(String, String), String> {
    let steps = steps(name).ok_or(
        "is not a name; expected one such as $parameters.x, $data.uri[0], $script.name, $output.uri or $secrets.x",
    )?;
    let Some((Step::Key(root), below)) = steps.split_first() else {
        return Err("names nothing".to_owned());
    };
    let known = scope.roots.iter().find(|(name, _)| name == root);
    let Some((_, value)) = known else {
        return Err("expected $parameters, $data, $script, $output or $secrets".to_owned());
    };
    let mut value = value.ok_or_else(|| match *root {
        "parameters" | "secrets" => format!("the job has no {root}"),
        _ => format!("the role has no {root}"),
    })?;
    let mut path = (*root).to_owned();
    for step in below {
        let next = match step {
            Step::Key(key) => value.get(key),
            Step::Index(index) => match value {
                Node::List(list) => list.get(*index),
                _ => None,
            },
        };
        value = next.ok_or_else(|| missing(&path, value))?;
        match step {
            Step::Key(key) => path.extend([".", key]),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    let shown = value.shown().ok_or_else(|| match value {
        Node::List(list) => format!("${path} is a list of {}; one of them is ${path}[0]", list.len()),
        _ => missing(&path, value),
    })?;
    Ok((path, shown))
}

/// What there is where something else was looked for.
fn missing(path: &str, value: &Node) -> String {
    match value {
        Node::Keys(keys) if !keys.is_empty() => {
            let names: Vec<String> = keys.iter().map(|(k, _)| format!("${path}.{k}")).collect();
            format!("there is no such value; known are {}", names.join(", "))
        }
        Node::List(list) => format!("${path} is a list of {}", list.len()),
        Node::Null | Node::Keys(_) => format!("${path} is empty"),
        _ => format!("${path} is a single value"),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// `$data.uri[0]` as data, uri, 0.
fn steps(name: &str) -> Option<Vec<Step<'_>>> {
    let mut steps = Vec::new();
    for part in name.strip_prefix('$')?.split('.') {
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

    fn node(text: &str) -> Node {
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
    fn what_names_nothing_stays_and_is_named() {
        for (text, part) in [
            ("<% $parameters.nope %>", "known are $parameters.model"),
            ("<% $parameters.many %>", "$parameters.many[0]"),
            ("<% $parameters.many[2] %>", "a list of 2"),
            ("<% $parameters.model.size %>", "a single value"),
            ("<% $script.uri %>", "the role has no script"),
            ("<% $nothing.x %>", "expected $parameters"),
            ("<% parameters.x %>", "is not a name"),
            ("<% $parameters.many[ %>", "is not a name"),
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
    fn secrets_are_found_but_not_shown() {
        let rendered = check("login <%$secrets.key%> <% $secrets.more[1] %>");
        assert_eq!(rendered.text, "login <% $secrets.key %> <% $secrets.more[1] %>");
        assert_eq!(rendered.secrets["key"], "hunter2");
        assert_eq!(rendered.secrets["more[1]"], "z");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(<%|%>|\\$|parameters|data|\\.|\\[|\\]|0|[a-z ]|\\PC){0,40}") {
            let rendered = check(&text);
            if !text.contains("<%") {
                prop_assert_eq!(rendered.text, text);
            }
        }
    }
}
