//! The agent on each node: detects the hardware, connects to the server, starts and stops tasks, and stores their logs.
//!
//! [`run`] is the agent. Every task belongs to a process of its own, the *shim* ([`shim()`]), which starts the processes
//! of the task, writes their output to the log, stops them when they are due, and records how they ended. The agent
//! reads these records when it starts, so tasks keep running while it is down and their ends are reported later.
//!
//! Whatever must survive a crash is in a file before it is acted upon:
//!
//! | file in the agent's folder | content | written by |
//! |---|---|---|
//! | `identity.json` | random number that distinguishes two agents that use the same node name | agent, once |
//! | `attempts` | last attempt known of each job; only newer ones are started | agent, before a start |
//! | `lease` | time until which tasks may run without contact to the server | agent, at each acknowledgement |
//! | `tasks/J-A/spec.json` | what to run | agent, before it starts the shim |
//! | `tasks/J-A/lock` | locked while the shim runs | inherited by the shim |
//! | `tasks/J-A/shim.json` | process IDs | shim |
//! | `tasks/J-A/stop.json` | a stop request and its deadlines | agent |
//! | `tasks/J-A/ends` | how instances of roles ended, one per line | shim |
//! | `tasks/J-A/exit.json` | how the task ended | shim; the agent if the shim is gone |
//! | `tasks/J-A/trainers` | a trainer has connected to an agent | agent |
//! | `tasks/J-A/acknowledged` | the end is in the server's journal | agent |
//! | `tasks/J-A/log.N` | output of the task from byte N on | shim |
//!
//! `J` is the job and `A` the attempt.

mod agent;
mod clock;
mod config;
mod error;
mod files;
mod gates;
mod hardware;
mod link;
mod process;
mod sdk;
mod shim;
mod store;
mod task;
mod trainer_socket;

pub use agent::progress::{ProgressFilter, StepReport};
pub use agent::run;
pub use config::{AgentConfig, Images, Security};
pub use error::AgentError;
pub use hardware::gpus::gpu_count;
pub use shim::shim;
pub use task::log::read_from as read_log;
