//! Reads and writes job files.

use dovetail_cluster::{JobRequest, Role};
use dovetail_openpai::{Mode, Remark, is_openpai};
use serde_json::{Map, Value, json};

use crate::array::ArrayRequest;
use crate::error::{FileFault, JobFileError, KeyError};
use crate::keys::{KEYS_OF_CONVERSION, deserialize, normalize};

/// The JSON schema of a job file.
pub const SCHEMA: &str = include_str!("job.schema.json");

/// The contents of a job file.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFile {
    /// The job.
    pub job: JobRequest,
    /// The array of such jobs, where the file asks for one.
    pub array: Option<ArrayRequest>,
    /// Parts of an OpenPAI file that are ignored or work differently here.
    pub ignored: Vec<Remark>,
}

impl JobFile {
    /// Reads the text of a file, native or of OpenPAI. `file` is its name in errors.
    ///
    /// # Errors
    /// When the text is not a valid job file. The error names the file, the key, and what is accepted.
    pub fn parse(text: &str, file: &str) -> Result<Self, JobFileError> {
        let parsed = match is_openpai(text) {
            true => Self::from_openpai(text, Mode::Strict).map_err(FileFault::from),
            false => Self::from_yaml(text),
        };
        parsed.map_err(|fault| JobFileError {
            file: file.to_owned(),
            fault,
        })
    }

    fn from_yaml(text: &str) -> Result<Self, FileFault> {
        let options = serde_saphyr::options! { strict_booleans: true };
        let value: Value = serde_saphyr::from_str_with_options(text, options).map_err(|e| {
            let first = e.to_string().lines().next().unwrap_or_default().to_owned();
            FileFault::Syntax(first)
        })?;
        let Value::Object(keys) = value else {
            return Err(FileFault::NotAMapping);
        };
        Ok(Self::from_keys(keys)?)
    }

    /// Reads the keys of a native job file.
    ///
    /// # Errors
    /// When a key is unknown or has an invalid value. The error names the key and what is accepted.
    pub fn from_keys(mut keys: Map<String, Value>) -> Result<Self, KeyError> {
        let mut array = normalize(&mut keys)?;
        let stated_gpus = keys.get("gpus").and_then(Value::as_u64);
        let mut job = deserialize(keys)?;
        if !job.roles.is_empty() {
            job.size_by_roles()
                .map_err(|e| KeyError::Request(e.to_string()))?;
            if let Some(stated) = stated_gpus.filter(|n| job.gang && *n != u64::from(job.gpus)) {
                return Err(KeyError::GpusDiffer {
                    stated,
                    roles: job.gpus,
                });
            }
            if !job.gang {
                array.get_or_insert(ArrayRequest {
                    indices: (0..instances(&job)).collect(),
                    at_most: None,
                });
            }
        }
        job.validate().map_err(|e| KeyError::Request(e.to_string()))?;
        Ok(Self {
            job,
            array,
            ignored: Vec::new(),
        })
    }

    /// Returns the keys of an equivalent native job file, without defaults and without values that follow from the roles.
    pub fn keys(&self) -> Map<String, Value> {
        let defaults = serde_json::to_value(JobRequest::default()).unwrap_or_default();
        let mut keys = without_defaults(&serde_json::to_value(&self.job).unwrap_or_default(), &defaults);
        for key in KEYS_OF_CONVERSION {
            keys.remove(key);
        }
        if let Some(Value::Array(roles)) = keys.get_mut("roles") {
            let defaults = serde_json::to_value(Role::default()).unwrap_or_default();
            for role in roles {
                *role = Value::Object(without_defaults(role, &defaults));
            }
            for key in ["gpus", "gpus_per_task", "cpus_per_gpu", "memory_mib_per_gpu"] {
                keys.remove(key);
            }
        }
        let all_instances: Vec<u32> = (0..instances(&self.job)).collect();
        let array = self
            .array
            .as_ref()
            .filter(|array| self.job.gang || array.indices != all_instances);
        if let Some(array) = array {
            keys.insert("array".to_owned(), json!(array.text()));
        }
        keys
    }
}

/// Returns the number of instances of all roles.
fn instances(job: &JobRequest) -> u32 {
    job.roles.iter().map(|role| role.instances).sum()
}

/// Returns the keys whose values differ from the defaults.
fn without_defaults(value: &Value, defaults: &Value) -> Map<String, Value> {
    let keys = value.as_object().cloned().unwrap_or_default();
    keys.into_iter()
        .filter(|(key, value)| defaults.get(key) != Some(value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KEYS;
    use dovetail_cluster::Deadline;
    use dovetail_model::Time;
    use proptest::prelude::*;

    #[test]
    fn written_forms_become_keys_of_the_request() {
        let text = "name: train\ncommand: python3 train.py --lr 0.1\ngpus: 4\ntime_limit: 2h\nmemory_per_gpu: 16G\n\
                    env: {SEED: 7, DEBUG: true}\nafter: [3, '4:any']\narray: 1-4%2\nprocesses: per-gpu\n";
        let file = JobFile::parse(text, "job.yaml").unwrap();
        assert_eq!(file.job.command, ["/bin/sh", "-c", "python3 train.py --lr 0.1"]);
        assert_eq!(
            (file.job.gpus, file.job.time_limit),
            (4, Some(Time::from_secs(7200)))
        );
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
    fn a_file_states_how_the_job_behaves() {
        let text = "command: x\nvc: vision\nmodel: resnet50\nstages: {data: 80ms, gpu: 20ms}\nexpected: 2h\n\
                    total_steps: 5000\ndeadline: 8h\nscaling: {1: 1.0, 2: 1.9, 4: 3.4}\n";
        let file = JobFile::parse(text, "job.yaml").unwrap();
        let job = &file.job;
        assert_eq!(
            (job.tenant.as_str(), job.model.as_deref()),
            ("vision", Some("resnet50"))
        );
        let stages = job.stages.unwrap();
        assert_eq!(
            (stages.data, stages.gpu, stages.net),
            (Time(80_000), Time(20_000), Time(0))
        );
        assert_eq!(
            (job.expected, job.total_steps),
            (Some(Time::from_secs(7200)), Some(5000))
        );
        assert_eq!(job.deadline, Some(Deadline::After(Time::from_secs(28_800))));
        let written = serde_saphyr::to_string(&file.keys()).unwrap();
        assert_eq!(JobFile::parse(&written, "again").unwrap(), file);
        let at = JobFile::parse("command: x\ndeadline: 2026-11-17T02:26:56Z", "job.yaml").unwrap();
        assert_eq!(at.job.deadline, Some(Deadline::At(Time(1_794_882_416_000_000))));
    }

    #[test]
    fn errors_name_the_key_and_what_is_accepted() {
        for (text, part) in [
            ("command: x\nstages: {disk: 1s}", "stages: invalid value"),
            (
                "command: x\nstages: {gpu: fast}",
                "stages.gpu: invalid value \"fast\"",
            ),
            ("command: x\nstages: {gpu: 2h}", "at most one hour together"),
            ("command: x\ndeadline: soon", "2026-11-17T18:00:00Z"),
            (
                "command: x\nscaling: {1: 0}",
                "the speed on 1 GPUs must be above 0",
            ),
            ("command: x\nscaling: [1, 2]", "scaling: "),
            ("command: x\ntotal_steps: 0", "total_steps: must be from 1"),
            (
                "command: x\nmodel: ''",
                "model: must have from 1 to 200 bytes and must not begin with `~`",
            ),
            ("command: x\nvc: a\ntenant: b", "conflicts with `tenant`"),
            ("gpus: 1", "command: missing"),
            ("comand: x", "did you mean \"command\"?"),
            ("command: x\ngpu: 1", "did you mean \"gpus\"?"),
            ("command: x\ngpus: many", "gpus: "),
            ("command: x\ngpus: 0", "from 1 to 1000000"),
            ("command: x\ntime_limit: soon", "2h"),
            (
                "command: x\ntime_limit: 2h\ntime_limit_s: 7",
                "conflicts with `time_limit_s`",
            ),
            ("command: x\nmemory_per_gpu: lots", "16G"),
            ("command: x\narray: 5-1", "1-100%10"),
            ("command: x\narray: 1-4000000000", "too many"),
            ("command: x\nafter: [x]", "7:any"),
            ("command: x\nprocesses: some", "processes: "),
            ("- a list", "keys with values"),
            ("a: [", "not YAML"),
        ] {
            let message = JobFile::parse(text, "job.yaml").unwrap_err().to_string();
            assert!(
                message.starts_with("job.yaml: ") && message.contains(part),
                "{text}: {message}"
            );
        }
    }

    #[test]
    fn the_schema_has_every_key_and_no_other() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let mut listed: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        listed.sort();
        assert_eq!(listed, KEYS.iter().collect::<Vec<_>>());
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
            (ROLES.replace("name: ps", "name: worker"), "roles[1].name: "),
            (
                format!("{ROLES}gpus: 3"),
                "gpus: 3 given, but the roles ask for 4",
            ),
            (
                "roles: [x]".to_owned(),
                "roles[0]: invalid value \"x\": expected keys",
            ),
        ] {
            let message = JobFile::parse(&wrong, "job.yaml").unwrap_err().to_string();
            assert!(message.contains(part), "{wrong}: {message}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,200}", key in "[a-z_]{1,12}", value in "\\PC{0,20}") {
            let _ = JobFile::parse(&text, "f");
            let _ = JobFile::parse(&format!("command: x\n{key}: {value}"), "f");
            let _ = ArrayRequest::parse(&value);
        }
    }
}
