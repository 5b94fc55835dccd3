//! Why a job cannot be submitted to Kubernetes.

/// Why a job cannot be submitted to Kubernetes. Each message begins with the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The job waits for others.
    #[error("after: not supported on Kubernetes; submit the job when the others have ended")]
    After,
    /// The job runs one process for each GPU.
    #[error("processes: per-gpu: a pod runs one command; expected per-node, with torchrun in the command")]
    ProcessesPerGpu,
    /// The job runs on its first node only.
    #[error(
        "processes: first-node: on Kubernetes each of the {pods} pods runs the command; expected per-node, or at most {max} GPUs"
    )]
    FirstNode {
        /// Number of pods.
        pods: u32,
        /// Maximum number of GPUs of one pod.
        max: u32,
    },
    /// A role has no image.
    #[error("roles[{0}].image: missing; pods need an image, such as --image pytorch/pytorch:2.9")]
    RoleImage(usize),
    /// A job without roles has no image.
    #[error("image: missing; pods need an image, such as --image pytorch/pytorch:2.9")]
    Image,
    /// The indices of an array are not consecutive.
    #[error("array: indices on Kubernetes must be consecutive from 0; expected 0-{last}")]
    ArrayIndices {
        /// Last index of an array of the same size.
        last: usize,
    },
    /// An array has roles that start together.
    #[error("array: not supported for roles that start together; submit the job several times")]
    ArrayOfGangs,
    /// An array has jobs of several pods.
    #[error("gpus: {gpus} for each job of an array exceeds {max}: each is one pod")]
    ArrayGpus {
        /// Number of GPUs of a job.
        gpus: u32,
        /// Maximum number of GPUs of one pod.
        max: u32,
    },
    /// The job has too many pods.
    #[error("roles: {pods} pods exceed the maximum of one job: at most {max}")]
    Pods {
        /// Number of pods.
        pods: u64,
        /// Maximum number.
        max: u32,
    },
    /// The GPUs do not divide into equal pods.
    #[error(
        "gpus: {gpus} GPUs do not divide evenly into {pods} pods of at most {max} GPUs; expected a multiple of {max}, or roles"
    )]
    UnevenGpus {
        /// Number of GPUs.
        gpus: u32,
        /// Number of pods.
        pods: u32,
        /// Maximum number of GPUs of one pod.
        max: u32,
    },
    /// The name of a Job is too long.
    #[error("roles[{role}].name: the Job name {name:?} has {} characters; at most {max}, so use a shorter name", name.len())]
    NameTooLong {
        /// Index of the role.
        role: usize,
        /// Name of its Job.
        name: String,
        /// Maximum length.
        max: usize,
    },
    /// Two roles have the same name on Kubernetes.
    #[error(
        "roles[{role}].name: {first:?} and {second:?} are the same name on Kubernetes, which has only lower-case letters, digits and `-`"
    )]
    SameName {
        /// Index of the second role.
        role: usize,
        /// Name of the first role.
        first: String,
        /// Name of the second role.
        second: String,
    },
}
