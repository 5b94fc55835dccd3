//! Names that objects carry.

/// Our own prefix of annotations, labels and kinds.
pub const GROUP: &str = "dovetail.io";

/// The name of the gang a pod belongs to, within its namespace.
pub(crate) const GANG: &str = "dovetail.io/gang";
/// How many pods that gang has.
pub(crate) const GANG_SIZE: &str = "dovetail.io/gang-size";
/// With how many it starts; the others follow one by one.
pub(crate) const GANG_MIN: &str = "dovetail.io/gang-min";
/// The virtual cluster.
pub(crate) const VIRTUAL_CLUSTER: &str = "dovetail.io/virtual-cluster";
/// Larger is more urgent, below zero only borrows; the pod's own priority where nothing is said.
pub(crate) const PRIORITY: &str = "dovetail.io/priority";
/// Only this kind of GPU.
pub(crate) const GPU_TYPE: &str = "dovetail.io/gpu-type";
/// GPUs of a node or pod that no device plugin counts.
pub(crate) const GPUS_WANTED: &str = "dovetail.io/gpu-count";
/// How long it should take, in seconds, where that is known.
pub(crate) const EXPECTED: &str = "dovetail.io/expected-seconds";
/// Who sent it.
pub(crate) const USER: &str = "dovetail.io/user";
/// Seconds between a warning and the end, to write a checkpoint in.
pub(crate) const CHECKPOINT_SECONDS: &str = "dovetail.io/checkpoint-seconds";
/// Written on a pod that is about to be stopped: when.
pub(crate) const PREEMPT_AT: &str = "dovetail.io/preempt-at";
/// Written on a pod that is stopped: for whom, and by which rule.
pub(crate) const PREEMPTED_BY: &str = "dovetail.io/preempted-by";

/// Written on a bound pod: the number of its job.
pub(crate) const JOB: &str = "dovetail.io/job";
/// Written on a bound pod: the launch it belongs to.
pub(crate) const ATTEMPT: &str = "dovetail.io/attempt";
/// Written on a bound pod: its GPUs, such as `0,1`.
pub(crate) const GPUS: &str = "dovetail.io/gpus";
/// Written on a bound pod that was not there when its gang started: the job of the gang, its launch, and
/// which of those beside it it is, such as `17/4/1`.
pub(crate) const RIDES_ON: &str = "dovetail.io/rides-on";
/// Written on the first pod of a gang before any of them is bound: where each of them goes.
pub const PLAN: &str = "dovetail.io/plan";

/// What the sender calls the job.
pub(crate) const JOB_NAME: &str = "dovetail.io/job-name";
/// The number the book gave the job when it was sent; where pods start alone, that of the first of them.
pub const NUMBER: &str = "dovetail.io/number";
/// So many pods of a role that succeed make the gang a success; `never`: only when all are over.
pub(crate) const MIN_SUCCEEDED: &str = "dovetail.io/min-succeeded";
/// So many pods of a role that fail for good make the gang a failure; `never`: none does.
pub(crate) const MIN_FAILED: &str = "dovetail.io/min-failed";
/// How often a pod that fails is made anew before it has failed for good.
pub(crate) const RETRIES: &str = "dovetail.io/retries";
/// A label: the role of a pod.
pub(crate) const ROLE: &str = "dovetail.io/role";
/// Written on a Job that was suspended because its job was stopped: by whom.
pub const STOPPED_BY: &str = "dovetail.io/stopped-by";
/// A label: all objects that were made for one job.
pub const SENT_AS: &str = "dovetail.io/sent-as";
/// Marks of a job's owner, as annotations.
pub(crate) const LABEL_PREFIX: &str = "label.dovetail.io/";

/// The rack of a node.
pub(crate) const RACK: &str = "dovetail.io/rack";

/// Labels that name the kind of a node's GPUs, the first that is there counts.
pub(crate) const GPU_TYPE_LABELS: [&str; 4] = [
    GPU_TYPE,
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
];

/// Where native pod groups are.
pub(crate) const GROUPS_API: &str = "scheduling.k8s.io/v1alpha2";
