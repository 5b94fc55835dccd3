//! Names of annotations and labels on pods, Jobs and nodes.

/// Prefix of our annotations, labels and API group.
pub const GROUP: &str = "dovetail.io";

/// Name of the gang of a pod, within its namespace.
pub(crate) const GANG: &str = "dovetail.io/gang";
/// Number of pods in the gang.
pub(crate) const GANG_SIZE: &str = "dovetail.io/gang-size";
/// Number of pods with which the gang starts; the others are elastic pods.
pub(crate) const GANG_MIN: &str = "dovetail.io/gang-min";
/// Virtual cluster of the job.
pub(crate) const VIRTUAL_CLUSTER: &str = "dovetail.io/virtual-cluster";
/// Priority of the job: larger is more urgent, negative is opportunistic. Defaults to the priority of the pod.
pub(crate) const PRIORITY: &str = "dovetail.io/priority";
/// GPU type that the job requires.
pub(crate) const GPU_TYPE: &str = "dovetail.io/gpu-type";
/// Number of GPUs of a node or pod, where no device plugin counts them.
pub(crate) const GPU_COUNT: &str = "dovetail.io/gpu-count";
/// Expected run time of the job, in seconds.
pub(crate) const EXPECTED: &str = "dovetail.io/expected-seconds";
/// Name of the model that the job trains.
pub(crate) const MODEL: &str = "dovetail.io/model";
/// Number of steps of the job.
pub(crate) const TOTAL_STEPS: &str = "dovetail.io/total-steps";
/// Seconds of the stages of one iteration.
pub(crate) const STAGES: &str = "dovetail.io/stages";
/// Speeds by number of GPUs.
pub(crate) const SCALING: &str = "dovetail.io/scaling";
/// When the job should have ended.
pub(crate) const DEADLINE: &str = "dovetail.io/deadline";
/// User who submitted the job.
pub(crate) const USER: &str = "dovetail.io/user";
/// Seconds between the warning and the eviction of a pod, for a checkpoint.
pub(crate) const CHECKPOINT_SECONDS: &str = "dovetail.io/checkpoint-seconds";
/// Time at which a pod will be evicted; written with the warning.
pub(crate) const PREEMPT_AT: &str = "dovetail.io/preempt-at";
/// Reason for which a pod is evicted.
pub(crate) const PREEMPTED_BY: &str = "dovetail.io/preempted-by";

/// Job id of a bound pod.
pub(crate) const JOB: &str = "dovetail.io/job";
/// Attempt of a bound pod.
pub(crate) const ATTEMPT: &str = "dovetail.io/attempt";
/// Attempt of a pod that was bound by a version before [`ATTEMPT`]; only read.
pub(crate) const ATTEMPT_BEFORE_RENAME: &str = "dovetail.io/launch";
/// GPUs of a bound pod, such as `0,1`.
pub(crate) const GPUS: &str = "dovetail.io/gpus";
/// Start of the attempt of a bound pod, and what its job received before.
pub(crate) const HISTORY: &str = "dovetail.io/history";
/// Step from which a bound pod resumes: that of the last checkpoint.
pub(crate) const RESUME_STEP: &str = "dovetail.io/resume-step";
/// Job of a waiting pod, and since when it is queued.
pub(crate) const QUEUED: &str = "dovetail.io/queued";
/// Gang of a bound elastic pod: job, attempt and number of the elastic pod, such as `17/4/1`.
pub(crate) const ELASTIC_OF: &str = "dovetail.io/rides-on";
/// What the manifest of a pod requested, written before the pod is resized.
pub(crate) const REQUESTED: &str = "dovetail.io/requested";
/// Placement of all pods of a gang; written on its first pod before any of them is bound.
pub const PLAN: &str = "dovetail.io/plan";

/// Name that the user gave the job.
pub(crate) const JOB_NAME: &str = "dovetail.io/job-name";
/// Id that the job got when it was submitted; of pods that start alone, the id of the first.
pub const NUMBER: &str = "dovetail.io/number";
/// Number of pods of a role that must succeed for the gang to succeed; `never`: all of them.
pub(crate) const MIN_SUCCEEDED: &str = "dovetail.io/min-succeeded";
/// Number of pods of a role that must fail for the gang to fail; `never`: no number does.
pub(crate) const MIN_FAILED: &str = "dovetail.io/min-failed";
/// Number of times a failed pod is recreated.
pub(crate) const RETRIES: &str = "dovetail.io/retries";
/// Label with the role of a pod.
pub(crate) const ROLE: &str = "dovetail.io/role";
/// User who stopped a job; written on its suspended Jobs.
pub const STOPPED_BY: &str = "dovetail.io/stopped-by";
/// Label that all objects of one submitted job share.
pub const SENT_AS: &str = "dovetail.io/sent-as";
/// Prefix of annotations with the labels that a user gave a job.
pub(crate) const LABEL_PREFIX: &str = "label.dovetail.io/";

/// Rack of a node.
pub(crate) const RACK: &str = "dovetail.io/rack";

/// Labels with the GPU type of a node, in order of precedence.
pub(crate) const GPU_TYPE_LABELS: [&str; 4] = [
    GPU_TYPE,
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
];

/// API group of native pod groups.
pub(crate) const POD_GROUP_API: &str = "scheduling.k8s.io/v1alpha2";
