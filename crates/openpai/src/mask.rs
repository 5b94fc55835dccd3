//! Job files without their secrets.

use crate::value::Value;

/// Text that replaces a secret.
pub const MASK: &str = "******";

/// Masks all values below `secrets` and the passwords of images.
pub fn masked(tree: &Value) -> Value {
    let Value::Map(entries) = tree else {
        return tree.clone();
    };
    let entry = |(key, value): &(String, Value)| {
        let value = match key.as_str() {
            "secrets" => mask_all(value),
            "prerequisites" => mask_passwords(value),
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    Value::Map(entries.iter().map(entry).collect())
}

/// Masks all scalars.
fn mask_all(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::List(list) => Value::List(list.iter().map(mask_all).collect()),
        Value::Map(entries) => Value::Map(entries.iter().map(|(k, v)| (k.clone(), mask_all(v))).collect()),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => Value::Text(MASK.to_owned()),
    }
}

/// Masks the values of `password`, except templates.
fn mask_passwords(value: &Value) -> Value {
    match value {
        Value::List(list) => Value::List(list.iter().map(mask_passwords).collect()),
        Value::Map(entries) => {
            let entry = |(key, value): &(String, Value)| match (key.as_str(), value) {
                ("password", Value::Text(text)) if is_token(text) => (key.clone(), value.clone()),
                ("password", _) => (key.clone(), mask_all(value)),
                _ => (key.clone(), mask_passwords(value)),
            };
            Value::Map(entries.iter().map(entry).collect())
        }
        other => other.clone(),
    }
}

/// Returns whether the text is a template and nothing else.
fn is_token(text: &str) -> bool {
    let inner = text.trim().strip_prefix("<%").and_then(|t| t.strip_suffix("%>"));
    inner.is_some_and(|inner| !inner.contains("<%") && !inner.contains("%>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_passwords_are_masked_everywhere() {
        let text = "secrets: {a: hunter2, b: [hunter2, {c: 3}]}\nprerequisites:\n- {name: i, auth: {username: me, password: hunter2}}\n\
                    - {name: j, auth: {password: '<% $secrets.a %>'}}\nname: kept\n";
        let tree: Value = serde_saphyr::from_str(text).unwrap();
        let shown = serde_saphyr::to_string(&masked(&tree)).unwrap();
        assert!(!shown.contains("hunter2") && !shown.contains('3'), "{shown}");
        assert!(
            shown.contains("<% $secrets.a %>") && shown.contains("kept") && shown.contains("me"),
            "{shown}"
        );
    }
}
