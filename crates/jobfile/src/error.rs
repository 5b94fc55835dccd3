//! Errors of job files.

use dovetail_openpai::Faults;

/// A job file that cannot be read.
///
/// Its text has one line for each fault, and each line begins with the name of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {}", fault.to_string().replace('\n', &format!("\n{file}: ")))]
pub struct JobFileError {
    /// The file, as it is shown.
    pub file: String,
    /// The fault.
    pub fault: FileFault,
}

/// A fault of a job file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// The text is not YAML; the first line of the parser's message.
    #[error("not YAML: {0}")]
    Syntax(String),
    /// The top level is a list or a single value.
    #[error("expected keys with values, such as `command: python3 train.py`")]
    NotAMapping,
    /// A key of a native file is missing, unknown or invalid.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// All mistakes of an OpenPAI file.
    #[error(transparent)]
    OpenPai(#[from] Faults),
}

/// A fault of a key in a native job file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither `command` nor `roles` is given.
    #[error("command: missing; expected a line for the shell or a list of arguments")]
    MissingCommand,
    /// The key does not exist.
    #[error("unknown key {key:?}{}; known keys: {}", did_you_mean(nearest.as_ref()), known.join(", "))]
    Unknown {
        /// The key.
        key: String,
        /// The known key with the most similar name.
        nearest: Option<String>,
        /// All known keys.
        known: Vec<String>,
    },
    /// A value is given in two forms.
    #[error("{key}: conflicts with `{also}`, which sets the same value")]
    GivenTwice {
        /// The form that is easier to write.
        key: String,
        /// The key of the request.
        also: String,
    },
    /// A value that cannot be read.
    #[error("{key}: invalid value {value}: expected {expected}")]
    Invalid {
        /// The key, from the top: `roles[0].memory`.
        key: String,
        /// The value, as JSON.
        value: String,
        /// What is accepted.
        expected: &'static str,
    },
    /// A value of another type than its key has.
    #[error("{key}: {message}")]
    Type {
        /// The key.
        key: String,
        /// Message of the parser about the value.
        message: String,
    },
    /// An array with more indices than one request may have.
    #[error("array: {text:?} has too many indices; the limit is {limit}")]
    ArrayTooLong {
        /// The array, as written.
        text: String,
        /// Maximum number of indices.
        limit: usize,
    },
    /// `gpus` contradicts the roles.
    #[error("gpus: {stated} given, but the roles ask for {roles}; leave `gpus` out")]
    GpusDiffer {
        /// The value of `gpus`.
        stated: u64,
        /// The sum over all roles.
        roles: u32,
    },
    /// The keys are well-formed, but the job they describe is not valid.
    #[error("{0}")]
    Request(String),
}

impl KeyError {
    pub(crate) fn invalid(key: impl Into<String>, value: &serde_json::Value, expected: &'static str) -> Self {
        Self::Invalid {
            key: key.into(),
            value: value.to_string(),
            expected,
        }
    }
}

fn did_you_mean(nearest: Option<&String>) -> String {
    nearest
        .map(|name| format!(" (did you mean {name:?}?)"))
        .unwrap_or_default()
}
