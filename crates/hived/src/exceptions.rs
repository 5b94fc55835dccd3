//! Steps of the recorded scenarios at which Dovetail differs from HiveD on purpose.

/// A step at which Dovetail differs from HiveD on purpose.
#[derive(Debug, Clone, Copy)]
pub struct Exception {
    /// The scenario.
    pub scenario: &'static str,
    /// The step, from 0.
    pub step: usize,
    /// Kind of Dovetail's answer.
    pub kind: &'static str,
    /// Whether the state differs from this step on.
    pub state_differs: bool,
    /// The reason.
    pub reason: &'static str,
}

/// All steps of the published scenarios at which Dovetail differs on purpose.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        scenario: "unit/02-suggested-nodes",
        step: 9,
        kind: "wait",
        state_differs: true,
        reason: "a victim is Allocated again when its preemption is cancelled; HiveD leaves it BeingPreempted",
    },
    Exception {
        scenario: "unit/04-stateful-preemption",
        step: 9,
        kind: "ok",
        state_differs: true,
        reason: "a victim is Allocated again when its preemption is cancelled; HiveD leaves it BeingPreempted",
    },
    Exception {
        scenario: "weakness/greedy-gap",
        step: 1,
        kind: "bind",
        state_differs: true,
        reason: "the group fits (3 | 2+2); HiveD's single sweep over machines does not find the placement",
    },
    Exception {
        scenario: "weakness/lazy-preempt-side-effect",
        step: 2,
        kind: "preempt",
        state_differs: true,
        reason: "an attempt that is not committed has no effect; HiveD's downgrades its victim permanently",
    },
    Exception {
        scenario: "weakness/pod-of-being-preempted-gang",
        step: 2,
        kind: "wait",
        state_differs: false,
        reason: "a late pod of a group that is being preempted waits; HiveD crashes",
    },
    Exception {
        scenario: "weakness/cancelled-preemption-state",
        step: 2,
        kind: "ok",
        state_differs: true,
        reason: "a victim is Allocated again when its preemption is cancelled; HiveD leaves it BeingPreempted",
    },
    Exception {
        scenario: "weakness/cancelled-preemption-state",
        step: 3,
        kind: "bind",
        state_differs: true,
        reason: "a late pod of the former victim gets its place; HiveD crashes",
    },
];
