//! Errors of job requests.

use crate::notifications::NotificationError;

/// Why a job request is not valid. Messages name the field as it is written in a job file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// There is no command.
    #[error("command: missing; expected a program and its arguments, such as [python3, train.py]")]
    MissingCommand,
    /// A number is out of range.
    #[error("{field}: must be from {min} to {max}")]
    OutOfRange {
        /// Name of the field.
        field: &'static str,
        /// Smallest valid value.
        min: u64,
        /// Largest valid value.
        max: u64,
    },
    /// `gpus_per_task` is zero or exceeds `gpus`.
    #[error("gpus_per_task: must be from 1 to `gpus` ({gpus})")]
    GpusPerTask {
        /// GPUs of the job.
        gpus: u32,
    },
    /// One of the sizes of an elastic job exceeds another.
    #[error("`{smaller}` ({small}) must not exceed `{larger}` ({large})")]
    Sizes {
        /// Field that must not be larger.
        smaller: &'static str,
        /// Its value.
        small: u32,
        /// Field that must not be smaller.
        larger: &'static str,
        /// Its value.
        large: u32,
    },
    /// `min_gpus` is zero.
    #[error("min_gpus: must be at least 1")]
    MinGpus,
    /// There is no tenant.
    #[error("tenant: must not be empty")]
    EmptyTenant,
    /// Pods of a gang have sizes of which one does not divide the other.
    #[error(
        "pods with {small} and {large} GPUs cannot be in one gang: the larger number must be a multiple of the smaller"
    )]
    PodSizes {
        /// GPUs of the smaller pods.
        small: u32,
        /// GPUs of the larger pods.
        large: u32,
    },
    /// A time span is not positive or too long.
    #[error("{field}: must be more than 0 and at most ten years, in seconds")]
    Span {
        /// Name of the field.
        field: &'static str,
    },
    /// The name of the model is empty, too long, or begins with a character that is reserved.
    #[error("model: must have from 1 to {max} bytes and must not begin with `~`")]
    Model {
        /// Largest number of bytes.
        max: usize,
    },
    /// A stage of an iteration is negative, or the iteration is empty or too long.
    #[error("stages: must be at least 0 each, and more than 0 and at most one hour together")]
    Stages,
    /// The speeds by number of GPUs are not valid.
    #[error("scaling: {0}")]
    Scaling(dovetail_model::SpeedTableError),
    /// The deadline is before 1970.
    #[error("deadline: must be a time after 1970, such as 2026-11-17T18:00:00Z, or a duration such as 8h")]
    DeadlineTime,
    /// The grace period is negative or too long.
    #[error("grace_s: must be from 0 to 86400 seconds")]
    Grace,
    /// A name of an environment variable is not valid.
    #[error("env: invalid variable name {name:?}; expected a name without `=` and zero bytes")]
    Variable {
        /// The name.
        name: String,
    },
    /// A zero byte, which no process can get.
    #[error("command, env, workdir: must not contain a zero byte")]
    ZeroByte,
    /// The size of the job differs from that of its roles.
    #[error("gpus: the roles ask for {roles} together, not {gpus}")]
    SizeDiffers {
        /// GPUs of all roles.
        roles: u32,
        /// GPUs of the job.
        gpus: u32,
    },
    /// An elastic size for a job with roles.
    #[error("min_gpus, max_gpus: must not be set for a job with roles, whose size follows from the roles")]
    ElasticRoles,
    /// The roles ask for too many GPUs.
    #[error("roles: ask for {gpus} GPUs together, which exceeds {max}")]
    RoleGpus {
        /// GPUs of all roles.
        gpus: u64,
        /// Largest number.
        max: u64,
    },
    /// The roles have too many instances.
    #[error("roles: have {instances} instances, which exceeds {max} {}", if *.gang { "that start together" } else { "of one job" })]
    Instances {
        /// Number of instances.
        instances: u64,
        /// Largest number.
        max: u64,
        /// Whether all instances start together.
        gang: bool,
    },
    /// The sizes of two roles do not divide each other.
    #[error(
        "roles: an instance of {smaller} has {small} GPUs and one of {larger} {large}: the smaller number must divide the \
         larger one, such as {small} and {}", .large.div_ceil(*.small) * .small
    )]
    RoleSizes {
        /// Role with smaller instances.
        smaller: String,
        /// GPUs of one of them.
        small: u32,
        /// Role with larger instances.
        larger: String,
        /// GPUs of one of them.
        large: u32,
    },
    /// A role is not valid.
    #[error("roles[{index}].{error}")]
    Role {
        /// Position of the role.
        index: usize,
        /// What is wrong with it.
        error: RoleError,
    },
    /// The notifications are not valid.
    #[error("notify.{0}")]
    Notifications(#[from] NotificationError),
}

/// Why a role is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// The name is not an identifier.
    #[error("name: must consist of letters, digits and `_`, and must not begin with a digit")]
    Name,
    /// Two roles have the same name.
    #[error("name: must be unique, but there are two roles {0}")]
    DuplicateName(String),
    /// There are no instances.
    #[error("instances: must be at least 1")]
    NoInstances,
    /// There is no command.
    #[error("command: missing; expected a program and its arguments")]
    MissingCommand,
    /// The CPU is out of range.
    #[error("cpus: must be from 0 to 100000")]
    Cpus,
    /// A completion rule is out of range.
    #[error("min_failed, min_succeeded: must be -1 or more")]
    CompletionRule,
    /// The label of a port is not an identifier.
    #[error("ports: invalid label {0:?}; expected letters, digits and `_`")]
    PortLabel(String),
    /// Too many ports of one label.
    #[error("ports: must be at most 64 of one label")]
    TooManyPorts,
}
