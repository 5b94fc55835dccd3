//! `summary.json`: known keys are validated, missing ones have defaults, others are ignored.

use std::path::Path;

use dovetail_model::run::{SolverStats, Summary, TenantSummary};
use serde_json::{Map, Value};

use crate::error::{ReportError, quoted};

/// Returns the bytes of `summary.json`.
pub(crate) fn summary_json(summary: &Summary) -> Vec<u8> {
    // A summary is plain numbers and text, which always serialise.
    let mut bytes = serde_json::to_vec_pretty(summary).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Parses `summary.json`.
pub(crate) fn parse_summary(path: &Path, bytes: &[u8]) -> Result<Summary, ReportError> {
    let invalid = |line: usize, field: &str, found: String, accepted: &str| ReportError::Invalid {
        path: path.into(),
        line: line as u64,
        field: field.into(),
        found,
        accepted: accepted.into(),
    };
    let found: Value = serde_json::from_slice(bytes).map_err(|e| {
        invalid(
            e.line(),
            "JSON",
            e.to_string(),
            "one JSON object with the keys of a summary",
        )
    })?;
    let Value::Object(found) = found else {
        return Err(invalid(
            1,
            "JSON",
            kind(&found),
            "one JSON object with the keys of a summary",
        ));
    };
    if !found.contains_key("policy") {
        let keys = found.keys().cloned().collect::<Vec<_>>().join(", ");
        return Err(invalid(
            1,
            "policy",
            format!("no such key among {}", quoted(&keys)),
            "the name of the policy",
        ));
    }
    let located = |problem: FieldProblem| {
        let key = problem.field.rsplit('.').next().unwrap_or_default();
        invalid(
            line_of(bytes, key),
            &problem.field,
            problem.found,
            problem.accepted,
        )
    };
    let mut template = serde_json::to_value(Summary::default()).unwrap_or_default();
    // Omitted from the file if no programs were solved.
    template["solved"] = serde_json::to_value(SolverStats::default()).unwrap_or_default();
    let tenant = serde_json::to_value(TenantSummary::default()).unwrap_or_default();
    let filled = fill(&template, &Value::Object(found), &tenant, "").map_err(located)?;
    serde_json::from_value(filled).map_err(|e| invalid(1, "JSON", e.to_string(), "the keys of a summary"))
}

struct FieldProblem {
    field: String,
    found: String,
    accepted: &'static str,
}

/// Returns the template with the values of `found`. The type of a default determines the accepted values.
fn fill(template: &Value, found: &Value, item: &Value, field: &str) -> Result<Value, FieldProblem> {
    let problem = |accepted| FieldProblem {
        field: field.to_owned(),
        found: kind(found),
        accepted,
    };
    match (template, found) {
        (_, Value::Null) => Ok(template.clone()),
        (Value::Object(template), Value::Object(found)) => {
            let mut out = Map::new();
            for (key, default) in template {
                let inner = if field.is_empty() {
                    key.clone()
                } else {
                    format!("{field}.{key}")
                };
                let value = found
                    .get(key)
                    .map_or_else(|| Ok(default.clone()), |v| fill(default, v, item, &inner))?;
                out.insert(key.clone(), value);
            }
            Ok(Value::Object(out))
        }
        (Value::Object(_), _) => Err(problem("an object")),
        (Value::Array(_), Value::Array(found)) => {
            let fill_item = |(i, v)| fill(item, v, &Value::Null, &format!("{field}[{i}]"));
            Ok(Value::Array(
                found
                    .iter()
                    .enumerate()
                    .map(fill_item)
                    .collect::<Result<_, _>>()?,
            ))
        }
        (Value::Array(_), _) => Err(problem("a list")),
        (Value::String(_), Value::String(_)) => Ok(found.clone()),
        (Value::String(_), _) => Err(problem("text")),
        (Value::Number(default), Value::Number(number)) if default.is_u64() => {
            let most = if field.starts_with("cluster.") {
                u64::from(u32::MAX)
            } else {
                u64::MAX
            };
            let fits = number.as_u64().is_some_and(|n| n <= most);
            fits.then(|| found.clone())
                .ok_or_else(|| problem("a whole number, not below zero"))
        }
        (Value::Number(_), Value::Number(_)) => Ok(found.clone()),
        (Value::Number(default), _) if default.is_u64() => Err(problem("a whole number, not below zero")),
        (Value::Number(_), _) => Err(problem("a number")),
        (Value::Null | Value::Bool(_), _) => Ok(found.clone()),
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(s) => quoted(s),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// Returns the line, from one, on which a key first occurs.
fn line_of(bytes: &[u8], key: &str) -> usize {
    let key = format!("\"{key}\"");
    let at = bytes
        .windows(key.len())
        .position(|window| window == key.as_bytes())
        .unwrap_or(0);
    1 + bytes[..at].iter().filter(|b| **b == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let shown = match parse_summary(Path::new("summary.json"), json.as_bytes()) {
            Ok(summary) => format!("{} {} {}", summary.policy, summary.jobs, summary.avg_jct_s),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn missing_keys_default_and_unknown_ones_are_ignored() {
        check(
            r#"{"policy": "las", "avg_jct_s": 3, "jain_index": null, "colour": "red"}"#,
            "las 0 3",
        );
    }

    #[test]
    fn errors_name_the_field_and_the_accepted_values() {
        check(
            "{\"policy\": \"las\",\n \"jobs\": -1}",
            "summary.json:2: jobs: found -1, expected a whole number, not below zero",
        );
        check(
            "{\"policy\": \"las\",\n \"cluster\":\n {\"gpus\": \"many\"}}",
            "summary.json:3: cluster.gpus: found \"many\", expected a whole number, not below zero",
        );
        check(
            r#"{"policy": "las", "tenants": [{"tenant": "a"}, {"tenant": 7}]}"#,
            "summary.json:1: tenants[1].tenant: found 7, expected text",
        );
        check(
            r#"{"jobs": 7}"#,
            "summary.json:1: policy: found no such key among \"jobs\", expected the name of the policy",
        );
        check(
            "[]",
            "summary.json:1: JSON: found a list, expected one JSON object with the keys of a summary",
        );
    }
}
