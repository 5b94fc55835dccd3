//! A task on disk: what it runs, its environment, its folder, its log.

pub(crate) mod cgroup;
pub(crate) mod container;
pub(crate) mod cpus;
pub(crate) mod environment;
pub(crate) mod find;
pub(crate) mod folder;
pub(crate) mod instances;
pub(crate) mod log;
pub(crate) mod record;
