//! What the simulator can do with jobs.

use dovetail_engine::{Capabilities, Support};

/// What the simulator can do with jobs.
pub const SIMULATOR: Capabilities = Capabilities {
    runtime: "the simulator",
    gpu_choice: Support::Yes("any GPU of a node"),
    sharing: Support::Yes("jobs slow one another down as measured or modelled"),
    stage_gates: Support::No("how stages interleave is modelled"),
    resize: Support::Yes("at once"),
    cpu_trials: Support::No("jobs come with their CPU curves"),
    width: Support::Yes("restart"),
    progress: Support::Yes("exact"),
};
