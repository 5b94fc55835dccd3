//! Keys of native job files, and how their written forms become keys of a job request.

use std::sync::LazyLock;

use dovetail_cluster::{JobRequest, Role};
use dovetail_model::suggest::nearest;
use serde_json::{Map, Value, json};

use crate::array::ArrayRequest;
use crate::error::KeyError;
use crate::values::{deadline, dependencies, mebibytes, notifications, seconds, stages};

/// Reads a value in its written form.
type ReadValue = fn(&str, &Value) -> Result<Value, KeyError>;

fn duration(key: &str, value: &Value) -> Result<Value, KeyError> {
    seconds(key, value).map(|seconds| json!(seconds))
}

fn as_written(_: &str, value: &Value) -> Result<Value, KeyError> {
    Ok(value.clone())
}

fn memory(key: &str, value: &Value) -> Result<Value, KeyError> {
    mebibytes(key, value).map(|mib| json!(mib))
}

/// Keys that people write, the key of the request that each stands for, and how its value is read.
const WRITTEN_FORMS: [(&str, &str, ReadValue); 7] = [
    ("vc", "tenant", as_written),
    ("stages", "stages_s", stages),
    ("time_limit", "time_limit_s", duration),
    ("expected", "expected_s", duration),
    ("grace", "grace_s", duration),
    ("memory_per_gpu", "memory_mib_per_gpu", memory),
    ("gpu_memory", "gpu_memory_mib", memory),
];

/// Keys of a request that a conversion sets, and a file must not.
pub(crate) const KEYS_OF_CONVERSION: [&str; 2] = ["file", "remarks"];

/// All keys of a native job file, sorted: those of [`JobRequest`], and the forms that people write.
pub(crate) static KEYS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let schema = schemars::schema_for!(JobRequest);
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut keys: Vec<String> = properties
        .into_iter()
        .flat_map(|properties| properties.keys().cloned())
        .filter(|key| !KEYS_OF_CONVERSION.contains(&key.as_str()))
        .collect();
    keys.extend(WRITTEN_FORMS.iter().map(|(written, ..)| (*written).to_owned()));
    keys.sort();
    keys
});

/// Turns the written forms of a file into keys of a request. The array, if any, is taken out.
pub(crate) fn normalize(keys: &mut Map<String, Value>) -> Result<Option<ArrayRequest>, KeyError> {
    if !keys.contains_key("command") && !keys.contains_key("roles") {
        return Err(unknown(keys).unwrap_or(KeyError::MissingCommand));
    }
    split_command(keys);
    for (written, key, read) in WRITTEN_FORMS {
        if let Some(value) = keys.remove(written) {
            set_once(keys, written, key, read(written, &value)?)?;
        }
    }
    for map in ["env", "labels"] {
        scalars_to_strings(keys.get_mut(map));
    }
    if let Some(value) = keys.get_mut("notify") {
        *value = notifications(value.take())?;
    }
    if let Some(value) = keys.get_mut("deadline") {
        *value = deadline(value.take())?;
    }
    if let Some(value) = keys.get_mut("after") {
        *value = dependencies(value.take())?;
    }
    if let Some(Value::Array(roles)) = keys.get_mut("roles") {
        roles
            .iter_mut()
            .enumerate()
            .try_for_each(|(i, role)| normalize_role(i, role))?;
    }
    let array = match keys.remove("array") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(ArrayRequest::parse(&text)?),
        Some(other) => {
            return Err(KeyError::invalid(
                "array",
                &other,
                "indices such as 1-100, 1-100%10 or 1,3,7-9",
            ));
        }
    };
    unknown(keys).map_or(Ok(array), Err)
}

/// Returns an error for the first unknown key.
fn unknown(keys: &Map<String, Value>) -> Option<KeyError> {
    let key = keys.keys().find(|key| !KEYS.contains(*key))?;
    let near = nearest(key, KEYS.iter().map(String::as_str));
    Some(KeyError::Unknown {
        key: key.clone(),
        nearest: near.first().map(|name| (*name).to_owned()),
        known: KEYS.clone(),
    })
}

/// Turns the written forms of a role into keys of [`Role`], and checks the role.
fn normalize_role(index: usize, role: &mut Value) -> Result<(), KeyError> {
    let path = format!("roles[{index}]");
    let Value::Object(keys) = role else {
        return Err(KeyError::invalid(
            path,
            role,
            "keys with values, such as name, instances and command",
        ));
    };
    split_command(keys);
    if let Some(value) = keys.remove("memory") {
        let written = format!("{path}.memory");
        let mib = memory(&written, &value)?;
        set_once(keys, &written, "memory_mib", mib)?;
    }
    scalars_to_strings(keys.get_mut("env"));
    let parsed: Result<Role, _> = serde_json::from_value(Value::Object(keys.clone()));
    parsed.map(drop).map_err(|e| KeyError::Type {
        key: path,
        message: e.to_string(),
    })
}

/// Turns a command in one string into arguments of the shell.
fn split_command(keys: &mut Map<String, Value>) {
    if let Some(Value::String(line)) = keys.get("command") {
        let arguments = json!(["/bin/sh", "-c", line]);
        keys.insert("command".to_owned(), arguments);
    }
}

/// Turns numbers and booleans of a map into strings: `SEED: 7` means `SEED: "7"`.
fn scalars_to_strings(map: Option<&mut Value>) {
    if let Some(Value::Object(values)) = map {
        for value in values.values_mut().filter(|v| v.is_number() || v.is_boolean()) {
            *value = Value::String(value.to_string());
        }
    }
}

fn set_once(keys: &mut Map<String, Value>, written: &str, key: &str, value: Value) -> Result<(), KeyError> {
    match keys.insert(key.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(KeyError::GivenTwice {
            key: written.to_owned(),
            also: key.to_owned(),
        }),
    }
}

/// Deserializes the request. If that fails, each key is read alone to name the one that is wrong.
pub(crate) fn deserialize(keys: Map<String, Value>) -> Result<JobRequest, KeyError> {
    let error = match serde_json::from_value(Value::Object(keys.clone())) {
        Ok(job) => return Ok(job),
        Err(error) => error,
    };
    for (key, value) in keys {
        let alone: Map<String, Value> = [(key.clone(), value)].into_iter().collect();
        if let Err(e) = serde_json::from_value::<JobRequest>(Value::Object(alone)) {
            return Err(KeyError::Type {
                key,
                message: e.to_string(),
            });
        }
    }
    Err(KeyError::Request(error.to_string()))
}
