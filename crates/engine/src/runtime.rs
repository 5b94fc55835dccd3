//! What a runtime can do with jobs: the simulator, the agents of a live cluster, Kubernetes.
//!
//! Each [`Runtime`] declares its [`Capabilities`] and carries out commands; what becomes of them comes back as events. A
//! policy whose parts need a mechanism that the runtime does not have is refused ([`Capabilities::first_unsupported`]).

use crate::needs::{Need, PartNeed, PolicyNeeds};

/// Whatever runs jobs.
pub trait Runtime {
    /// A command as the runtime takes it: one of the engine for a job, or one of the cluster state for a node.
    type Command;

    /// Returns what it can do.
    fn capabilities(&self) -> Capabilities;

    /// Carries out commands in their order. A command is about one attempt of a job: repeated, it changes nothing more.
    fn execute(&mut self, commands: &mut dyn Iterator<Item = Self::Command>);
}

/// Whether a runtime can do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It can, in this way.
    Yes(&'static str),
    /// It cannot, for this reason.
    No(&'static str),
}

impl Support {
    /// Whether the runtime can do it.
    pub fn is_available(self) -> bool {
        matches!(self, Self::Yes(_))
    }

    /// Returns how the runtime does it, or why it cannot.
    pub fn text(self) -> &'static str {
        match self {
            Self::Yes(text) | Self::No(text) => text,
        }
    }
}

/// What a runtime can do with jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the runtime, as in "Kubernetes cannot …".
    pub runtime: &'static str,
    /// Give a job the GPUs with the indices that the scheduler chose.
    pub gpu_choice: Support,
    /// Run several jobs on one GPU.
    pub sharing: Support,
    /// Keep the stages of jobs on one GPU apart, and measure how long a step of all of them takes.
    pub stage_gates: Support,
    /// Give a job other CPU and memory than it asks for, and change them while it runs.
    pub resize: Support,
    /// Measure running jobs with other CPU for some seconds.
    pub cpu_trials: Support,
    /// Give a job another number of GPUs than it asks for, and change it.
    pub width: Support,
    /// Report how far a running job is, and how fast.
    pub progress: Support,
}

impl Capabilities {
    /// A runtime that can do everything, for tests.
    pub const ALL: Self = Self {
        runtime: "this runtime",
        gpu_choice: Support::Yes("any"),
        sharing: Support::Yes("any"),
        stage_gates: Support::Yes("any"),
        resize: Support::Yes("any"),
        cpu_trials: Support::Yes("any"),
        width: Support::Yes("any"),
        progress: Support::Yes("any"),
    };

    /// Returns whether the runtime provides what a part needs; none for data that come with the job.
    pub fn support(&self, need: Need) -> Option<Support> {
        match need {
            Need::Sharing => Some(self.sharing),
            Need::Resize => Some(self.resize),
            Need::Width => Some(self.width),
            Need::Rate => Some(self.progress),
            Need::RemainingTime | Need::Stages | Need::CpuCurve | Need::Slowdowns | Need::Scaling => None,
        }
    }

    /// Returns the first mechanism that a part needs and the runtime does not have, if there is one.
    pub fn first_unsupported(&self, needs: &PolicyNeeds) -> Option<UnsupportedNeed> {
        let mechanisms = needs.iter().filter(|need| need.need.is_mechanism());
        let unsupported = |need: &PartNeed| {
            Some(UnsupportedNeed {
                need: need.clone(),
                runtime: self.runtime,
                reason: self.missing(need.need)?,
            })
        };
        mechanisms.filter_map(unsupported).next()
    }

    /// Returns why the runtime cannot provide what a part needs; none if it can, or if it is data that come with the job.
    pub fn missing(&self, need: Need) -> Option<&'static str> {
        match self.support(need)? {
            Support::Yes(_) => None,
            Support::No(reason) => Some(reason),
        }
    }
}

/// A mechanism that a part needs and a runtime does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedNeed {
    /// The need, and the part that has it.
    pub need: PartNeed,
    /// Name of the runtime.
    pub runtime: &'static str,
    /// Why the runtime does not have it.
    pub reason: &'static str,
}
