//! The exit codes of OpenPAI: whose fault each is, what is done about it, and what its owner can do.

/// Whose fault an exit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Nobody's: it succeeded.
    Success,
    /// Its owner stopped it, or the attempt ended around it.
    Stopped,
    /// Its own.
    User,
    /// The platform's.
    Platform,
    /// GPUs did not come in time.
    Resource,
    /// Nobody knows.
    Unknown,
}

impl Blame {
    /// As OpenPAI writes it.
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

/// What is done after an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing: it is over.
    Never,
    /// It is started again, and that is not counted.
    Always,
    /// The same, after longer and longer.
    AlwaysLater,
    /// It is started again until the retries are used up.
    Counted,
}

impl Reaction {
    /// The behaviour as OpenPAI writes it.
    pub const fn behavior(self) -> &'static str {
        match self {
            Self::Never => "PERMANENT",
            Self::Always => "TRANSIENT",
            Self::AlwaysLater => "TRANSIENT_CONFLICT",
            Self::Counted => "UNKNOWN",
        }
    }

    /// The reaction as OpenPAI writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "NEVER_RETRY",
            Self::Always => "ALWAYS_RETRY",
            Self::AlwaysLater => "ALWAYS_BACKOFF_RETRY",
            Self::Counted => "RETRY_TO_MAX",
        }
    }
}

/// An exit code and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// The code.
    pub code: i32,
    /// Its name.
    pub phrase: &'static str,
    /// Whose fault it is.
    pub blame: Blame,
    /// What is done about it.
    pub reaction: Reaction,
    /// What its owner can do.
    pub hint: &'static str,
}

const fn exit_of(
    code: i32,
    phrase: &'static str,
    blame: Blame,
    reaction: Reaction,
    hint: &'static str,
) -> Exit {
    Exit {
        code,
        phrase,
        blame,
        reaction,
        hint,
    }
}

use Blame::{Platform, Resource, Stopped, Success, Unknown, User};
use Reaction::{Always, AlwaysLater, Counted, Never};

/// All codes, ascending.
#[rustfmt::skip]
pub const EXITS: &[Exit] = &[
    exit_of(-8000, "UnknownNegativeExit", Unknown, Counted, "No code of the table: look at the end of the log, and ask an administrator if it says nothing."),
    exit_of(-1300, "InitOutOfMemory", Platform, Always, "The set-up of the instance ran out of memory; it is started again by itself."),
    exit_of(-1205, "GpuNotFound", Platform, Always, "A GPU it was given is not there; it is started again, and an administrator should look at the node."),
    exit_of(-1204, "ContainerStatusUnknown", Unknown, Counted, "Nobody saw how it ended: look at the node."),
    exit_of(-1203, "StartCommandMissing", Platform, Never, "The program that starts the command is not in the image: check the image."),
    exit_of(-1202, "StartCommandDenied", Platform, Never, "The program that starts the command may not be run: check permissions in the image."),
    exit_of(-1201, "ContainerStartFailed", Unknown, Counted, "The container could not be started: check the image and its options."),
    exit_of(-1200, "OutOfMemory", User, Never, "It used more memory than it asked for: ask for more, or load less at once."),
    exit_of(-1100, "BadJobObject", User, Never, "The job's description was not accepted: check the job file."),
    exit_of(-1006, "AdmissionError", Platform, Always, "The node did not take it for reasons of its own; it is started again by itself."),
    exit_of(-1005, "AdmissionForbidden", User, Never, "The node may not run it: check what the job asks for."),
    exit_of(-1004, "DeadlineExceeded", Stopped, Never, "It ran longer than it may: ask for more time, or save its state and go on later."),
    exit_of(-1003, "PreemptedForCritical", Platform, Always, "Something the node itself needs took its place; it is started again by itself."),
    exit_of(-1002, "NodeLackedResources", Platform, Always, "The node had less than was thought; it is started again by itself."),
    exit_of(-1001, "NodeLost", Platform, Always, "Its node was lost; it is started again by itself."),
    exit_of(-1000, "Evicted", Platform, Always, "The node was short of something and put it out; it is started again by itself."),
    exit_of(-310, "UnknownPodFailure", Unknown, Counted, "Nobody knows why it failed: look at the end of the log."),
    exit_of(-300, "UnknownCreationFailure", Unknown, Counted, "It could not be created, and nobody knows why: ask an administrator."),
    exit_of(-230, "ScaledDown", Stopped, Never, "Its role was made smaller."),
    exit_of(-220, "AttemptEnded", Stopped, Never, "The attempt was over: the completion rule of another instance was met."),
    exit_of(-210, "StopRequested", Stopped, Never, "Somebody stopped the job."),
    exit_of(-200, "BadPodSpec", User, Never, "What the instance asks for is not valid: check its resources and options."),
    exit_of(-120, "CreationTransient", Platform, Always, "It could not be created for a moment; it is started again by itself."),
    exit_of(-111, "CacheTimeout", Platform, Always, "The scheduler lost sight of it; it is started again by itself."),
    exit_of(-110, "CreationTimeout", Platform, Always, "The scheduler did not see it come; it is started again by itself."),
    exit_of(-101, "DeletedByOthers", Platform, Always, "Something outside removed it; in OpenPAI this is also what preemption looks like. It is started again by itself."),
    exit_of(-100, "ConfigDeleted", Platform, Always, "Its configuration was removed from outside; it is started again by itself."),
    exit_of(0, "Succeeded", Success, Never, "It succeeded."),
    exit_of(128, "ExitOrEcc", Unknown, Counted, "Perhaps an error of the GPU's memory: look for ECC and Xid in the log, and ask an administrator if it comes back."),
    exit_of(130, "KilledByInt", Platform, Always, "Something sent it SIGINT; it is started again."),
    exit_of(131, "KilledByQuit", Platform, Always, "Something sent it SIGQUIT; it is started again."),
    exit_of(132, "IllegalInstruction", User, Never, "The program has an instruction this CPU does not know: build it for the CPUs of the cluster."),
    exit_of(134, "Aborted", Unknown, Counted, "The program gave up (SIGABRT): look at its last lines for a failed check."),
    exit_of(135, "BusError", User, Never, "SIGBUS: often a full /dev/shm; ask for more shmMB or use fewer loader workers."),
    exit_of(136, "ArithmeticError", User, Never, "SIGFPE: a division by zero in native code."),
    exit_of(137, "Killed", Platform, Always, "Something sent it SIGKILL, often the kernel because the node ran out of memory: check how much memory it uses."),
    exit_of(139, "Segfault", Unknown, Counted, "SIGSEGV: a bug in native code, or libraries that do not fit together."),
    exit_of(141, "BrokenPipe", User, Never, "SIGPIPE: it wrote to a program that was gone."),
    exit_of(143, "Terminated", Platform, Always, "Something sent it SIGTERM; it is started again."),
    exit_of(220, "CommandFailed", User, Never, "A command failed: look at the end of the log."),
    exit_of(221, "TensorflowOutOfMemory", User, Never, "TensorFlow ran out of GPU memory: use a smaller batch."),
    exit_of(222, "MpiSegfault", User, Never, "A rank of MPI crashed: look for the first one in the log."),
    exit_of(223, "CudaEcc", Platform, Always, "A GPU has errors in its memory that cannot be mended; it is started again, and an administrator should look at the GPU."),
    exit_of(224, "CudaMismatch", User, Never, "CUDA of the image and the driver of the node do not fit: use another image."),
    exit_of(225, "CudnnMismatch", User, Never, "cuDNN is not the one the program was built for: use another image."),
    exit_of(226, "CudaOutOfMemory", User, Never, "CUDA ran out of GPU memory: use a smaller batch, or GPUs with more memory."),
    exit_of(228, "BadParameter", User, Never, "A parameter was not accepted: look at the end of the log."),
    exit_of(229, "DataOrModelMissing", User, Never, "Data or a model was not found: check paths and mounts."),
    exit_of(230, "SavePathMissing", User, Never, "Results could not be saved: check that the folder exists and may be written."),
    exit_of(231, "SyntaxError", User, Never, "Python did not understand the program: look at the line it names."),
    exit_of(232, "ImportError", User, Never, "A Python module is missing: install it in the image or at the start."),
    exit_of(233, "IndexError", User, Never, "An index was out of range: look at the trace in the log."),
    exit_of(234, "SegfaultInLog", User, Never, "The program crashed on an address of its own: look at the trace in the log."),
    exit_of(235, "CoreDumped", User, Never, "The program crashed and left a core dump."),
    exit_of(249, "SshBarrierTimeout", Platform, Never, "Instances did not reach each other by ssh in time."),
    exit_of(250, "StartBarrierTransient", Platform, Always, "Instances did not find each other for a moment; it is started again by itself."),
    exit_of(251, "GangTimeout", Resource, AlwaysLater, "The whole gang was not there in time; it is tried again later."),
    exit_of(252, "StartBarrierPermanent", Platform, Never, "Instances could not find each other: ask an administrator."),
    exit_of(253, "PortConflict", Platform, Always, "A port was taken by another program; it is started again with others."),
    exit_of(254, "ImageMissing", User, Never, "The image was not found: check its name and the account that fetches it."),
    exit_of(255, "RuntimeUnknown", Unknown, Counted, "It ended with 255 and nobody knows why: look at the end of the log."),
    exit_of(256, "UnknownPositiveExit", Unknown, Counted, "No code of the table: look at the end of the log."),
];

/// What is known of a code: its own entry, or the one for all others of its sign.
pub fn exit(code: i32) -> &'static Exit {
    let found = EXITS.binary_search_by_key(&code, |e| e.code);
    let other = || {
        let fallback = if code < 0 { -8000 } else { 256 };
        EXITS.binary_search_by_key(&fallback, |e| e.code)
    };
    let index = found.or_else(|_| other()).unwrap_or_default();
    &EXITS[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_others_fall_back() {
        assert!(EXITS.windows(2).all(|w| w[0].code < w[1].code));
        assert_eq!(exit(0).blame, Blame::Success);
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
