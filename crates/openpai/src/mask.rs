//! A job file that can be shown: its secrets are not in it.

use crate::node::Node;

/// What stands where a secret was.
pub const MASK: &str = "******";

/// The tree without its secrets: all values under `secrets`, and passwords of images.
pub fn masked(tree: &Node) -> Node {
    let Node::Keys(keys) = tree else {
        return tree.clone();
    };
    let entry = |(key, value): &(String, Node)| {
        let value = match key.as_str() {
            "secrets" => covered(value),
            "prerequisites" => without_passwords(value),
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    Node::Keys(keys.iter().map(entry).collect())
}

/// The same shape, with nothing in it.
fn covered(node: &Node) -> Node {
    match node {
        Node::Null => Node::Null,
        Node::List(list) => Node::List(list.iter().map(covered).collect()),
        Node::Keys(keys) => Node::Keys(keys.iter().map(|(k, v)| (k.clone(), covered(v))).collect()),
        Node::Flag(_) | Node::Whole(_) | Node::Number(_) | Node::Text(_) => Node::Text(MASK.to_owned()),
    }
}

fn without_passwords(node: &Node) -> Node {
    match node {
        Node::List(list) => Node::List(list.iter().map(without_passwords).collect()),
        Node::Keys(keys) => {
            let entry = |(key, value): &(String, Node)| match (key.as_str(), value) {
                ("password", Node::Text(text)) if is_token(text) => (key.clone(), value.clone()),
                ("password", _) => (key.clone(), covered(value)),
                _ => (key.clone(), without_passwords(value)),
            };
            Node::Keys(keys.iter().map(entry).collect())
        }
        other => other.clone(),
    }
}

/// Whether it is a template and nothing else.
fn is_token(text: &str) -> bool {
    let inner = text.trim().strip_prefix("<%").and_then(|t| t.strip_suffix("%>"));
    inner.is_some_and(|inner| !inner.contains("<%") && !inner.contains("%>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_gone_wherever_they_stand() {
        let text = "secrets: {a: hunter2, b: [hunter2, {c: 3}]}\nprerequisites:\n- {name: i, auth: {username: me, password: hunter2}}\n\
                    - {name: j, auth: {password: '<% $secrets.a %>'}}\nname: kept\n";
        let tree: Node = serde_saphyr::from_str(text).unwrap();
        let shown = serde_saphyr::to_string(&masked(&tree)).unwrap();
        assert!(!shown.contains("hunter2") && !shown.contains('3'), "{shown}");
        assert!(
            shown.contains("<% $secrets.a %>") && shown.contains("kept") && shown.contains("me"),
            "{shown}"
        );
    }
}
