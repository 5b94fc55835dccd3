//! Values of keys in the forms that people write: durations, sizes of memory, dependencies, notifications.

use dovetail_cluster::After;
use dovetail_model::parse_span;
use dovetail_model::rfc3339::parse_time;
use serde_json::{Map, Value, json};

use crate::error::KeyError;

/// Returns seconds: a number, or a duration with a unit such as `90s`, `30m`, `2h` or `1.5d`.
pub(crate) fn seconds(key: &str, value: &Value) -> Result<f64, KeyError> {
    if let Some(seconds) = value.as_f64() {
        return Ok(seconds);
    }
    let span = value.as_str().and_then(parse_span);
    span.map(|span| span.as_secs_f64())
        .ok_or_else(|| KeyError::invalid(key, value, "seconds, or a duration such as 90s, 30m, 2h or 1.5d"))
}

/// Reads the stages of an iteration, such as `{data: 80ms, gpu: 20ms}` or `data=80ms,gpu=20ms`, as seconds.
pub(crate) fn stages(key: &str, value: &Value) -> Result<Value, KeyError> {
    let invalid = || KeyError::invalid(key, value, "stages such as {data: 80ms, gpu: 20ms, net: 0ms}");
    let stages: Map<String, Value> = match value {
        Value::Object(stages) => stages.clone(),
        Value::String(text) => {
            let pairs = text.split(',').map(|pair| pair.split_once('='));
            let stages = pairs.map(|pair| pair.map(|(k, v)| (k.trim().to_owned(), json!(v))));
            stages.collect::<Option<_>>().ok_or_else(invalid)?
        }
        _ => return Err(invalid()),
    };
    let mut read = Map::new();
    for (stage, time) in stages {
        if !["data", "gpu", "net"].contains(&stage.as_str()) {
            return Err(invalid());
        }
        let time = seconds(&format!("{key}.{stage}"), &time)?;
        read.insert(stage, json!(time));
    }
    Ok(Value::Object(read))
}

/// Reads a deadline: a time such as `2026-11-17T18:00:00Z`, or a duration after submission such as `8h`.
pub(crate) fn deadline(value: Value) -> Result<Value, KeyError> {
    if value.is_object() {
        return Ok(value);
    }
    if let Some(at) = value.as_str().and_then(parse_time) {
        return Ok(json!({ "at_us": at }));
    }
    let span = seconds("deadline", &value);
    span.map(|span| json!({ "after_s": span })).map_err(|_| {
        KeyError::invalid(
            "deadline",
            &value,
            "a time such as 2026-11-17T18:00:00Z, or a duration such as 8h",
        )
    })
}

/// Returns MiB: a number, or a size with a unit such as `512M`, `16G` or `1T`.
pub(crate) fn mebibytes(key: &str, value: &Value) -> Result<u64, KeyError> {
    let invalid = || KeyError::invalid(key, value, "MiB, or a size such as 512M, 16G or 1T");
    if let Some(mib) = value.as_u64() {
        return Ok(mib);
    }
    let text = value.as_str().ok_or_else(invalid)?.trim();
    let text = text.trim_end_matches("iB").trim_end_matches('B');
    let (number, factor) = match text.char_indices().next_back() {
        Some((at, 'M' | 'm')) => (&text[..at], 1.0),
        Some((at, 'G' | 'g')) => (&text[..at], 1_024.0),
        Some((at, 'T' | 't')) => (&text[..at], 1_048_576.0),
        _ => (text, 1.0),
    };
    let number: f64 = number.trim().parse().map_err(|_| invalid())?;
    let mib = number * factor;
    if !(0.0..1e12).contains(&mib) {
        return Err(invalid());
    }
    Ok(mib.ceil() as u64)
}

/// Reads the jobs to wait for: one or a list of `7`, `7:any`, `{job: 7, when: any}`.
pub(crate) fn dependencies(value: Value) -> Result<Value, KeyError> {
    let listed = match value {
        Value::Array(jobs) => jobs,
        one => vec![one],
    };
    let jobs: Vec<After> = listed.iter().map(dependency).collect::<Result<_, _>>()?;
    Ok(json!(jobs))
}

fn dependency(value: &Value) -> Result<After, KeyError> {
    let invalid = || KeyError::invalid("after", value, "a job id, 7:any, 7:not-ok or {job: 7, when: any}");
    let object = match value {
        Value::Number(_) => json!({"job": value}),
        Value::String(text) => {
            let (job, when) = text.split_once(':').unwrap_or((text, "ok"));
            let job: u64 = job.trim().parse().map_err(|_| invalid())?;
            json!({"job": job, "when": when.trim()})
        }
        other => other.clone(),
    };
    serde_json::from_value(object).map_err(|_| invalid())
}

/// Reads the notifications of a job: `false`, `failed`, `[failed, preempted]` or `{on: [failed], pending: 30m}`.
pub(crate) fn notifications(value: Value) -> Result<Value, KeyError> {
    let mut keys = match value {
        Value::Object(keys) => keys,
        Value::Bool(false) => return Ok(json!({"on": []})),
        Value::String(event) => return Ok(json!({"on": [event]})),
        Value::Array(events) => return Ok(json!({"on": events})),
        other => {
            return Err(KeyError::invalid(
                "notify",
                &other,
                "false, a list such as [failed, preempted], or the keys on, email, webhook and pending",
            ));
        }
    };
    if let Some(value) = keys.remove("pending") {
        let seconds = seconds("notify.pending", &value)?;
        if keys.insert("pending_s".to_owned(), json!(seconds)).is_some() {
            return Err(KeyError::GivenTwice {
                key: "notify.pending".to_owned(),
                also: "pending_s".to_owned(),
            });
        }
    }
    Ok(Value::Object(keys))
}
