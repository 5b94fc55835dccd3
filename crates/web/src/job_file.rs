//! Jobs in a file: YAML (or JSON) with the keys of a request, in forms that people like to write.

use dovetail_control::{After, JobRequest, Role, parse_span};
use dovetail_openpai::{Mode, Remark, is_openpai};
use serde_json::{Map, Value, json};

use crate::openpai::Converted;
use crate::views::{ArrayRequest, Submission};

/// The JSON schema of a job file.
pub const SCHEMA: &str = include_str!("job.schema.json");

/// A job file that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {what}")]
pub struct JobFileError {
    /// The file.
    pub file: String,
    /// The key and what is wrong with it.
    pub what: String,
}

/// A job file, read.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFile {
    /// The job.
    pub job: JobRequest,
    /// An array of it.
    pub array: Option<ArrayRequest>,
    /// What was left out of a file of another kind, or is not quite the same.
    pub ignored: Vec<Remark>,
}

impl JobFile {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// Names the file, the key, and what would be accepted.
    pub fn parse(text: &str, file: &str) -> Result<Self, JobFileError> {
        let wrong = |what: String| JobFileError {
            file: file.to_owned(),
            what,
        };
        if is_openpai(text) {
            let lines = |faults: Vec<Remark>| {
                let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
                wrong(lines.join(&format!("\n{file}: ")))
            };
            return crate::openpai::convert(text, Mode::Strict)
                .map(Self::from)
                .map_err(lines);
        }
        let options = serde_saphyr::options! { strict_booleans: true };
        let value: Value = serde_saphyr::from_str_with_options(text, options).map_err(|e| {
            let first = e.to_string().lines().next().unwrap_or_default().to_owned();
            wrong(format!("not YAML: {first}"))
        })?;
        let Value::Object(keys) = value else {
            return Err(wrong(
                "expected keys with values, such as `command: python3 train.py`".to_owned(),
            ));
        };
        Self::from_keys(keys).map_err(wrong)
    }

    /// Reads keys with values.
    ///
    /// # Errors
    /// Names the key and what would be accepted.
    pub fn from_keys(mut keys: Map<String, Value>) -> Result<Self, String> {
        match keys.get("command") {
            Some(Value::String(line)) => {
                let words = json!(["/bin/sh", "-c", line]);
                keys.insert("command".to_owned(), words);
            }
            None if !keys.contains_key("roles") => {
                return Err("command: is missing; a line for the shell, or a list of words".to_owned());
            }
            None | Some(_) => {}
        }
        for (written, kept) in [
            ("time_limit", "time_limit_s"),
            ("expected", "expected_s"),
            ("grace", "grace_s"),
        ] {
            if let Some(value) = keys.remove(written) {
                let seconds = span(&value).map_err(|e| format!("{written}: {e}"))?;
                if keys.insert(kept.to_owned(), json!(seconds)).is_some() {
                    return Err(format!("{written}: is given twice, also as {kept}"));
                }
            }
        }
        for (written, kept) in [
            ("memory_per_gpu", "memory_mib_per_gpu"),
            ("gpu_memory", "gpu_memory_mib"),
        ] {
            if let Some(value) = keys.remove(written) {
                let mib = memory(&value).map_err(|e| format!("{written}: {e}"))?;
                if keys.insert(kept.to_owned(), json!(mib)).is_some() {
                    return Err(format!("{written}: is given twice, also as {kept}"));
                }
            }
        }
        for map in ["env", "labels"] {
            if let Some(Value::Object(values)) = keys.get_mut(map) {
                for value in values.values_mut().filter(|v| v.is_number() || v.is_boolean()) {
                    *value = Value::String(value.to_string());
                }
            }
        }
        if let Some(value) = keys.get_mut("notify") {
            *value = notify(value.take())?;
        }
        if let Some(value) = keys.get_mut("after") {
            let listed = match value.take() {
                Value::Array(jobs) => jobs,
                one => vec![one],
            };
            let jobs: Vec<After> = listed.iter().map(after).collect::<Result<_, _>>()?;
            *value = json!(jobs);
        }
        if let Some(Value::Array(roles)) = keys.get_mut("roles") {
            roles.iter_mut().enumerate().try_for_each(|(i, r)| role(i, r))?;
        }
        let array = match keys.remove("array") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(indices(&text)?),
            Some(other) => return Err(format!("array: {other} is none; expected one such as 1-100%10")),
        };
        let known = serde_json::to_value(JobRequest::default()).unwrap_or_default();
        let mut known: Vec<&str> = known
            .as_object()
            .map(|m| m.keys().map(String::as_str).collect())
            .unwrap_or_default();
        known.extend(KEYS_OF_ROLES);
        for key in keys.keys() {
            if !known.contains(&key.as_str()) {
                let near = dovetail_model::suggest::nearest(key, known.iter().copied());
                let hint = near
                    .first()
                    .map(|n| format!(" (did you mean {n}?)"))
                    .unwrap_or_default();
                return Err(format!(
                    "{key}: unknown key{hint}; known are {}",
                    known.join(", ")
                ));
            }
        }
        let said = keys.get("gpus").and_then(Value::as_u64);
        let mut job = one_by_one(keys)?;
        let mut array = array;
        if !job.roles.is_empty() {
            job.size_by_roles()?;
            if let Some(said) = said.filter(|said| job.gang && *said != u64::from(job.gpus)) {
                return Err(format!(
                    "gpus: is {said}, but its roles ask for {} together; leave it out",
                    job.gpus
                ));
            }
            if !job.gang {
                let count = job.roles.iter().map(|r| r.instances).sum();
                array.get_or_insert(ArrayRequest {
                    indices: (0..count).collect(),
                    at_most: None,
                });
            }
        }
        job.validate()?;
        Ok(Self {
            job,
            array,
            ignored: Vec::new(),
        })
    }

    /// The file as people would write it: what is as usual, or follows from its roles, is left out.
    pub fn keys(&self) -> Map<String, Value> {
        let usual = serde_json::to_value(JobRequest::default()).unwrap_or_default();
        let mut keys = unusual(&serde_json::to_value(&self.job).unwrap_or_default(), &usual);
        keys.remove("file");
        keys.remove("remarks");
        if let Some(Value::Array(roles)) = keys.get_mut("roles") {
            let usual = serde_json::to_value(Role::default()).unwrap_or_default();
            for role in roles {
                *role = Value::Object(unusual(role, &usual));
            }
            for key in ["gpus", "gpus_per_task", "cpus_per_gpu", "memory_mib_per_gpu"] {
                keys.remove(key);
            }
        }
        let all = self.job.roles.iter().map(|r| r.instances).sum();
        let array = self
            .array
            .as_ref()
            .filter(|a| self.job.gang || a.indices != (0..all).collect::<Vec<_>>());
        if let Some(array) = array {
            let listed: Vec<String> = array.indices.iter().map(ToString::to_string).collect();
            let most = array.at_most.map(|n| format!("%{n}")).unwrap_or_default();
            keys.insert("array".to_owned(), json!(format!("{}{most}", listed.join(","))));
        }
        keys
    }

    /// What is sent.
    pub fn submission(self, dry_run: bool) -> Submission {
        Submission {
            job: self.job,
            array: self.array,
            dry_run,
        }
    }
}

impl From<Converted> for JobFile {
    fn from(converted: Converted) -> Self {
        Self {
            job: converted.job,
            array: converted.array,
            ignored: converted.remarks,
        }
    }
}

/// Keys of a request that are not there where they are as usual.
const KEYS_OF_ROLES: [&str; 5] = ["roles", "gang", "gpus_per_task", "secrets", "notify"];

/// The keys whose values are not the usual ones.
fn unusual(value: &Value, usual: &Value) -> Map<String, Value> {
    let keys = value.as_object().cloned().unwrap_or_default();
    keys.into_iter()
        .filter(|(key, value)| usual.get(key) != Some(value))
        .collect()
}

/// Forms that people like to write in a role.
fn role(index: usize, role: &mut Value) -> Result<(), String> {
    let Value::Object(keys) = role else {
        return Err(format!(
            "roles[{index}]: expected keys with values, such as name, instances and command"
        ));
    };
    if let Some(Value::String(line)) = keys.get("command") {
        let words = json!(["/bin/sh", "-c", line]);
        keys.insert("command".to_owned(), words);
    }
    if let Some(value) = keys.remove("memory") {
        let mib = memory(&value).map_err(|e| format!("roles[{index}].memory: {e}"))?;
        if keys.insert("memory_mib".to_owned(), json!(mib)).is_some() {
            return Err(format!(
                "roles[{index}].memory: is given twice, also as memory_mib"
            ));
        }
    }
    if let Some(Value::Object(values)) = keys.get_mut("env") {
        for value in values.values_mut().filter(|v| v.is_number() || v.is_boolean()) {
            *value = Value::String(value.to_string());
        }
    }
    let known: Result<Role, _> = serde_json::from_value(Value::Object(keys.clone()));
    known.map(drop).map_err(|e| format!("roles[{index}]: {e}"))
}

/// Reads the whole; if that fails, each key by itself, to name the one that is wrong.
fn one_by_one(keys: Map<String, Value>) -> Result<JobRequest, String> {
    let error = match serde_json::from_value(Value::Object(keys.clone())) {
        Ok(job) => return Ok(job),
        Err(error) => error,
    };
    for (key, value) in keys {
        let alone: Map<String, Value> = [(key.clone(), value)].into_iter().collect();
        if let Err(e) = serde_json::from_value::<JobRequest>(Value::Object(alone)) {
            return Err(format!("{key}: {e}"));
        }
    }
    Err(error.to_string())
}

/// Seconds: a number, or one with a unit such as `90s`, `30m`, `2h`, `1.5d`.
pub(crate) fn span(value: &Value) -> Result<f64, String> {
    let wrong =
        || format!("{value} is no span of time; expected seconds, or one such as 90s, 30m, 2h or 1.5d");
    if let Some(seconds) = value.as_f64() {
        return Ok(seconds);
    }
    let span = value.as_str().and_then(parse_span).ok_or_else(wrong)?;
    Ok(span.as_secs_f64())
}

/// MiB: a number, or one with a unit such as `512M`, `16G`, `1T`.
pub(crate) fn memory(value: &Value) -> Result<u64, String> {
    let wrong = || format!("{value} is no size of memory; expected MiB, or one such as 512M, 16G or 1T");
    if let Some(mib) = value.as_u64() {
        return Ok(mib);
    }
    let text = value.as_str().ok_or_else(wrong)?.trim();
    let text = text.trim_end_matches("iB").trim_end_matches('B');
    let (number, factor) = match text.char_indices().next_back() {
        Some((at, 'M' | 'm')) => (&text[..at], 1.0),
        Some((at, 'G' | 'g')) => (&text[..at], 1_024.0),
        Some((at, 'T' | 't')) => (&text[..at], 1_048_576.0),
        _ => (text, 1.0),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let mib = number * factor;
    if !(0.0..1e12).contains(&mib) {
        return Err(wrong());
    }
    Ok(mib.ceil() as u64)
}

/// A job to wait for: `7`, `7:any`, `{job: 7, when: any}`.
pub(crate) fn after(value: &Value) -> Result<After, String> {
    let wrong = || {
        format!("after: {value} is none; expected a job's number, 7:any, 7:not-ok or {{job: 7, when: any}}")
    };
    match value {
        Value::Number(_) => serde_json::from_value(json!({"job": value})).map_err(|_| wrong()),
        Value::String(text) => {
            let (job, when) = text.split_once(':').unwrap_or((text, "ok"));
            let job: u64 = job.trim().parse().map_err(|_| wrong())?;
            serde_json::from_value(json!({"job": job, "when": when.trim()})).map_err(|_| wrong())
        }
        other => serde_json::from_value(other.clone()).map_err(|_| wrong()),
    }
}

/// Of what its owner is told: `false`, `failed`, `[failed, preempted]`, or keys such as `{on: [failed], pending: 30m}`.
fn notify(value: Value) -> Result<Value, String> {
    let mut keys = match value {
        Value::Object(keys) => keys,
        Value::Bool(false) => return Ok(json!({"on": []})),
        Value::String(word) => return Ok(json!({"on": [word]})),
        Value::Array(words) => return Ok(json!({"on": words})),
        other => {
            return Err(format!(
                "notify: {other} is none; expected false, a list such as [failed, preempted], or on, email, webhook and \
                 pending"
            ));
        }
    };
    if let Some(value) = keys.remove("pending") {
        let seconds = span(&value).map_err(|e| format!("notify.pending: {e}"))?;
        if keys.insert("pending_s".to_owned(), json!(seconds)).is_some() {
            return Err("notify.pending: is given twice, also as pending_s".to_owned());
        }
    }
    Ok(Value::Object(keys))
}

/// `1-100`, `1-100%10`, `1,3,7-9%2`.
pub(crate) fn indices(text: &str) -> Result<ArrayRequest, String> {
    const MOST: usize = 100_000;
    let wrong = || format!("array: {text:?} is none; expected one such as 1-100, 1-100%10 or 1,3,7-9");
    let (list, at_most) = match text.split_once('%') {
        Some((list, most)) => {
            let most: u32 = most.trim().parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?;
            (list, Some(most))
        }
        None => (text, None),
    };
    let mut indices: Vec<u32> = Vec::new();
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let from: u32 = from.trim().parse().map_err(|_| wrong())?;
        let to: u32 = to.trim().parse().map_err(|_| wrong())?;
        if from > to {
            return Err(wrong());
        }
        if (to - from) as usize >= MOST - indices.len() {
            return Err(format!(
                "array: {text:?} has too many indices; at most {MOST} at once"
            ));
        }
        indices.extend(from..=to);
    }
    indices.sort_unstable();
    indices.dedup();
    Ok(ArrayRequest { indices, at_most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_is_read_in_the_forms_people_write() {
        let text = "name: train\ncommand: python3 train.py --lr 0.1\ngpus: 4\ntime_limit: 2h\nmemory_per_gpu: 16G\n\
                    env: {SEED: 7, DEBUG: true}\nafter: [3, '4:any']\narray: 1-4%2\nprocesses: per-gpu\n";
        let file = JobFile::parse(text, "job.yaml").unwrap();
        assert_eq!(file.job.command, ["/bin/sh", "-c", "python3 train.py --lr 0.1"]);
        assert_eq!((file.job.gpus, file.job.time_limit_s), (4, Some(7200.0)));
        assert_eq!(file.job.memory_mib_per_gpu, 16 * 1024);
        assert_eq!(
            (file.job.env["SEED"].as_str(), file.job.env["DEBUG"].as_str()),
            ("7", "true")
        );
        assert_eq!(file.job.after.iter().map(|a| a.job).collect::<Vec<_>>(), [3, 4]);
        let array = file.array.unwrap();
        assert_eq!((array.indices, array.at_most), (vec![1, 2, 3, 4], Some(2)));
    }

    #[test]
    fn mistakes_are_named_with_what_would_be_accepted() {
        for (text, part) in [
            ("gpus: 1", "command: is missing"),
            ("command: x\ngpu: 1", "did you mean gpus?"),
            ("command: x\ngpus: many", "gpus: "),
            ("command: x\ngpus: 0", "from 1 to 1000000"),
            ("command: x\ntime_limit: soon", "2h"),
            ("command: x\nmemory_per_gpu: lots", "16G"),
            ("command: x\narray: 5-1", "1-100%10"),
            ("command: x\narray: 1-4000000000", "too many"),
            ("command: x\nafter: [x]", "7:any"),
            ("command: x\nprocesses: some", "processes: "),
            ("- a list", "keys with values"),
            ("a: [", "not YAML"),
        ] {
            let said = JobFile::parse(text, "job.yaml").unwrap_err().to_string();
            assert!(
                said.starts_with("job.yaml: ") && said.contains(part),
                "{text}: {said}"
            );
        }
    }

    #[test]
    fn the_schema_has_every_key_and_no_other() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let mut listed: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        let request = serde_json::to_value(JobRequest::default()).unwrap();
        let mut keys: Vec<String> = request.as_object().unwrap().keys().cloned().collect();
        let forms = ["time_limit", "expected", "grace", "memory_per_gpu", "gpu_memory"];
        keys.extend(forms.map(str::to_owned));
        keys.extend(KEYS_OF_ROLES.map(str::to_owned));
        keys.sort();
        listed.sort();
        assert_eq!(listed, keys.iter().collect::<Vec<_>>());
    }

    const ROLES: &str = "name: two\nroles:\n- {name: worker, instances: 2, gpus: 2, cpus: 1, memory: 1G, command: train}\n\
                         - {name: ps, command: [serve], env: {N: 1}, min_failed: -1}\n";

    #[test]
    fn roles_are_read_and_written_back() {
        let file = JobFile::parse(ROLES, "job.yaml").unwrap();
        assert_eq!(
            (file.job.gpus, file.job.gpus_per_task, file.job.memory_mib_per_gpu),
            (4, 2, 512)
        );
        let text = serde_saphyr::to_string(&file.keys()).unwrap();
        assert!(
            !text.contains("gpus_per_task") && !text.contains("retries"),
            "{text}"
        );
        assert_eq!(JobFile::parse(&text, "again").unwrap(), file);
        let alone = JobFile::parse(&format!("{ROLES}gang: false\n"), "job.yaml").unwrap();
        assert_eq!(alone.array.as_ref().unwrap().indices, [0, 1, 2]);
        assert_eq!(
            JobFile::parse(&serde_saphyr::to_string(&alone.keys()).unwrap(), "again").unwrap(),
            alone
        );
        for (wrong, part) in [
            (
                ROLES.replace("memory: 1G", "memry: 1G"),
                "roles[0]: unknown field `memry`",
            ),
            (
                ROLES.replace("name: ps", "name: worker"),
                "roles[1].name: there are two roles worker",
            ),
            (format!("{ROLES}gpus: 3"), "gpus: is 3, but its roles ask for 4"),
            ("roles: [x]".to_owned(), "roles[0]: expected keys"),
        ] {
            let said = JobFile::parse(&wrong, "job.yaml").unwrap_err().to_string();
            assert!(said.contains(part), "{wrong}: {said}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}", key in "[a-z_]{1,12}", value in "\\PC{0,20}") {
            let _ = JobFile::parse(&text, "f");
            let _ = JobFile::parse(&format!("command: x\n{key}: {value}"), "f");
            let _ = indices(&value);
        }
    }
}
