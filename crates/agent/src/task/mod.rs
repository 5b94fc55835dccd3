//! A task: what it runs, its environment and limits, its folder and its log.

pub(crate) mod cgroup;
pub(crate) mod container;
pub(crate) mod cpus;
pub(crate) mod environment;
pub(crate) mod error;
pub(crate) mod folder;
pub(crate) mod instances;
pub(crate) mod log;
pub(crate) mod record;
pub(crate) mod search;
