//! The agent on a node: finds out what the machine has, dials the scheduler, starts and stops tasks as it is told, and
//! keeps their logs.
//!
//! [`run`] is the agent. Each task is held by a process of its own, the *shim* ([`shim()`]), which starts the task's
//! processes, takes down what they print, ends them in time and writes how they ended to the task's folder. The agent
//! reads those folders when it starts, so killing it loses nothing: tasks go on, and what ended meanwhile is told.
//!
//! Everything that must not be lost is in a file before it is acted upon:
//!
//! | file in the agent's folder | what | written by |
//! |---|---|---|
//! | `identity.json` | the number by which two agents of one name are told apart | agent, once |
//! | `generations` | the last generation known of each job: none is started that is not newer | agent, before a start |
//! | `lease` | until when tasks may run without another word from the scheduler | agent, at each answer |
//! | `tasks/J-G/spec.json` | what to run | agent, before the shim is started |
//! | `tasks/J-G/lock` | locked as long as the shim lives | handed to the shim |
//! | `tasks/J-G/shim.json` | the processes | shim |
//! | `tasks/J-G/stop.json` | that it is to stop, and by when | agent |
//! | `tasks/J-G/exit.json` | how it ended | shim; the agent if the shim is gone |
//! | `tasks/J-G/trainers` | trainers have talked to an agent | agent |
//! | `tasks/J-G/told` | the scheduler has the end in its journal | agent |
//! | `tasks/J-G/log.N` | what the task printed, from byte N on | shim |

mod agent;
mod clock;
mod config;
mod error;
mod files;
mod hardware;
mod link;
mod process;
mod sdk;
mod shim;
mod store;
mod task;
mod trainers;

pub use agent::run;
pub use config::{AgentConfig, Images, Security};
pub use error::NodeError;
pub use hardware::gpus::gpu_count;
pub use shim::shim;
pub use task::log::read_from as read_log;
