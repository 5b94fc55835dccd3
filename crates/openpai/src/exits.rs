//! The exit codes of OpenPAI: what each means, whether it is retried, and what the owner of the job can do.

/// Cause of an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// The instance succeeded.
    Success,
    /// The job was stopped, or its attempt ended.
    Stopped,
    /// The job failed by itself.
    User,
    /// The platform failed.
    Platform,
    /// GPUs were not available in time.
    Resource,
    /// Unknown.
    Unknown,
}

impl ExitKind {
    /// Returns the name in OpenPAI's API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "USER_SUCCESS",
            Self::Stopped => "USER_STOP",
            Self::User => "USER_FAILURE",
            Self::Platform => "PLATFORM_FAILURE",
            Self::Resource => "RESOURCE_ALLOCATION_TIMEOUT",
            Self::Unknown => "UNKNOWN_FAILURE",
        }
    }
}

/// What happens after an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// No retry.
    Never,
    /// A retry that does not count.
    Always,
    /// A retry that does not count, after an increasing delay.
    AlwaysLater,
    /// A retry, until all retries are used.
    Counted,
}

impl Reaction {
    /// Returns the behavior in OpenPAI's API.
    pub const fn behavior(self) -> &'static str {
        match self {
            Self::Never => "PERMANENT",
            Self::Always => "TRANSIENT",
            Self::AlwaysLater => "TRANSIENT_CONFLICT",
            Self::Counted => "UNKNOWN",
        }
    }

    /// Returns the reaction in OpenPAI's API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "NEVER_RETRY",
            Self::Always => "ALWAYS_RETRY",
            Self::AlwaysLater => "ALWAYS_BACKOFF_RETRY",
            Self::Counted => "RETRY_TO_MAX",
        }
    }
}

/// An exit code and its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Code.
    pub code: i32,
    /// Name.
    pub phrase: &'static str,
    /// Cause.
    pub kind: ExitKind,
    /// What happens next.
    pub reaction: Reaction,
    /// Explanation, and what the owner of the job can do.
    pub hint: &'static str,
}

const fn exit_of(
    code: i32,
    phrase: &'static str,
    kind: ExitKind,
    reaction: Reaction,
    hint: &'static str,
) -> Exit {
    Exit {
        code,
        phrase,
        kind,
        reaction,
        hint,
    }
}

use ExitKind::{Platform, Resource, Stopped, Success, Unknown, User};
use Reaction::{Always, AlwaysLater, Counted, Never};

/// All codes, in ascending order.
#[rustfmt::skip]
pub const EXITS: &[Exit] = &[
    exit_of(-8000, "UnknownNegativeExit", Unknown, Counted, "Unknown exit code. Check the end of the log, or ask an administrator."),
    exit_of(-1300, "InitOutOfMemory", Platform, Always, "The setup of the instance ran out of memory. It is retried automatically."),
    exit_of(-1205, "GpuNotFound", Platform, Always, "A GPU assigned to the instance was not found. It is retried automatically; an administrator should check the node."),
    exit_of(-1204, "ContainerStatusUnknown", Unknown, Counted, "The exit status was lost. Check the node."),
    exit_of(-1203, "StartCommandMissing", Platform, Never, "The program that starts the command is missing in the image. Check the image."),
    exit_of(-1202, "StartCommandDenied", Platform, Never, "The program that starts the command cannot be executed. Check the permissions in the image."),
    exit_of(-1201, "ContainerStartFailed", Unknown, Counted, "The container could not be started. Check the image and the container options."),
    exit_of(-1200, "OutOfMemory", User, Never, "The instance exceeded its memory limit. Request more memory, or load less data at once."),
    exit_of(-1100, "BadJobObject", User, Never, "The job description was rejected. Check the job file."),
    exit_of(-1006, "AdmissionError", Platform, Always, "The node rejected the instance because of an internal error. It is retried automatically."),
    exit_of(-1005, "AdmissionForbidden", User, Never, "The node is not allowed to run the instance. Check what the job requests."),
    exit_of(-1004, "DeadlineExceeded", Stopped, Never, "Time limit reached. Request more time, or resume from a checkpoint."),
    exit_of(-1003, "PreemptedForCritical", Platform, Always, "A critical system service of the node preempted the instance. It is retried automatically."),
    exit_of(-1002, "NodeLackedResources", Platform, Always, "The node had fewer free resources than expected. The instance is retried automatically."),
    exit_of(-1001, "NodeLost", Platform, Always, "The node was lost. The instance is retried automatically."),
    exit_of(-1000, "Evicted", Platform, Always, "The node ran short of a resource and evicted the instance. It is retried automatically."),
    exit_of(-310, "UnknownPodFailure", Unknown, Counted, "The instance failed for an unknown reason. Check the end of the log."),
    exit_of(-300, "UnknownCreationFailure", Unknown, Counted, "The instance could not be created for an unknown reason. Ask an administrator."),
    exit_of(-230, "ScaledDown", Stopped, Never, "The role was scaled down."),
    exit_of(-220, "AttemptEnded", Stopped, Never, "The attempt ended because the completion rule of another instance was met."),
    exit_of(-210, "StopRequested", Stopped, Never, "A user stopped the job."),
    exit_of(-200, "BadPodSpec", User, Never, "The instance has an invalid specification. Check its resources and options."),
    exit_of(-120, "CreationTransient", Platform, Always, "The instance could not be created because of a temporary error. It is retried automatically."),
    exit_of(-111, "CacheTimeout", Platform, Always, "The scheduler lost track of the instance. It is retried automatically."),
    exit_of(-110, "CreationTimeout", Platform, Always, "The instance was not created in time. It is retried automatically."),
    exit_of(-101, "DeletedByOthers", Platform, Always, "The instance was deleted from outside; OpenPAI reports preemption this way as well. It is retried automatically."),
    exit_of(-100, "ConfigDeleted", Platform, Always, "The configuration of the instance was deleted from outside. It is retried automatically."),
    exit_of(0, "Succeeded", Success, Never, "The instance succeeded."),
    exit_of(128, "ExitOrEcc", Unknown, Counted, "Possibly a GPU memory error. Search the log for ECC and Xid; if it occurs again, ask an administrator."),
    exit_of(130, "KilledByInt", Platform, Always, "The instance received SIGINT. It is retried automatically."),
    exit_of(131, "KilledByQuit", Platform, Always, "The instance received SIGQUIT. It is retried automatically."),
    exit_of(132, "IllegalInstruction", User, Never, "The program uses an instruction that this CPU does not support (SIGILL). Build it for the CPUs of the cluster."),
    exit_of(134, "Aborted", Unknown, Counted, "The program aborted (SIGABRT). Check the end of the log for a failed assertion."),
    exit_of(135, "BusError", User, Never, "Bus error (SIGBUS), often caused by a full /dev/shm. Request more shmMB or use fewer data loader workers."),
    exit_of(136, "ArithmeticError", User, Never, "Arithmetic error in native code, such as a division by zero (SIGFPE)."),
    exit_of(137, "Killed", Platform, Always, "The instance received SIGKILL, often because the node ran out of memory. Check its memory usage."),
    exit_of(139, "Segfault", Unknown, Counted, "Segmentation fault (SIGSEGV): a bug in native code, or incompatible libraries."),
    exit_of(141, "BrokenPipe", User, Never, "The program wrote to a closed pipe (SIGPIPE)."),
    exit_of(143, "Terminated", Platform, Always, "The instance received SIGTERM. It is retried automatically."),
    exit_of(220, "CommandFailed", User, Never, "A command failed. Check the end of the log."),
    exit_of(221, "TensorflowOutOfMemory", User, Never, "TensorFlow ran out of GPU memory. Use a smaller batch size."),
    exit_of(222, "MpiSegfault", User, Never, "An MPI rank crashed. Search the log for the first failure."),
    exit_of(223, "CudaEcc", Platform, Always, "A GPU has uncorrectable memory errors. The instance is retried automatically; an administrator should check the GPU."),
    exit_of(224, "CudaMismatch", User, Never, "The CUDA version of the image does not match the driver of the node. Use another image."),
    exit_of(225, "CudnnMismatch", User, Never, "The cuDNN version does not match the one the program was built for. Use another image."),
    exit_of(226, "CudaOutOfMemory", User, Never, "CUDA ran out of GPU memory. Use a smaller batch size, or GPUs with more memory."),
    exit_of(228, "BadParameter", User, Never, "A parameter is invalid. Check the end of the log."),
    exit_of(229, "DataOrModelMissing", User, Never, "Data or a model was not found. Check paths and mounts."),
    exit_of(230, "SavePathMissing", User, Never, "Results could not be saved. Check that the folder exists and is writable."),
    exit_of(231, "SyntaxError", User, Never, "Python syntax error. Check the line named in the log."),
    exit_of(232, "ImportError", User, Never, "A Python module is missing. Install it in the image or at the start of the job."),
    exit_of(233, "IndexError", User, Never, "Index out of range. Check the stack trace in the log."),
    exit_of(234, "SegfaultInLog", User, Never, "The program crashed with a memory access error. Check the stack trace in the log."),
    exit_of(235, "CoreDumped", User, Never, "The program crashed and dumped core."),
    exit_of(249, "SshBarrierTimeout", Platform, Never, "Instances could not reach each other by ssh in time."),
    exit_of(250, "StartBarrierTransient", Platform, Always, "Instances temporarily could not find each other. The attempt is retried automatically."),
    exit_of(251, "GangTimeout", Resource, AlwaysLater, "The gang was not complete in time. It is retried automatically after a delay."),
    exit_of(252, "StartBarrierPermanent", Platform, Never, "Instances could not find each other. Ask an administrator."),
    exit_of(253, "PortConflict", Platform, Always, "A port is in use by another program. The instance is retried automatically with other ports."),
    exit_of(254, "ImageMissing", User, Never, "The image is not available. Check its name, and the credentials to pull it."),
    exit_of(255, "RuntimeUnknown", Unknown, Counted, "The instance exited with code 255 for an unknown reason. Check the end of the log."),
    exit_of(256, "UnknownPositiveExit", Unknown, Counted, "Unknown exit code. Check the end of the log."),
];

/// Returns the entry of a code, or the entry for unknown codes of its sign.
pub fn exit(code: i32) -> &'static Exit {
    let position = |code: i32| EXITS.binary_search_by_key(&code, |e| e.code);
    let fallback = if code < 0 { -8000 } else { 256 };
    let index = position(code).or_else(|_| position(fallback)).unwrap_or_default();
    &EXITS[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_unknown_ones_have_an_entry() {
        assert!(EXITS.windows(2).all(|w| w[0].code < w[1].code));
        assert_eq!(exit(0).kind, ExitKind::Success);
        assert_eq!(
            (exit(137).reaction, exit(226).reaction),
            (Reaction::Always, Reaction::Never)
        );
        assert_eq!(
            (exit(7).phrase, exit(-7).phrase),
            ("UnknownPositiveExit", "UnknownNegativeExit")
        );
        assert_eq!(exit(251).reaction.behavior(), "TRANSIENT_CONFLICT");
    }
}
