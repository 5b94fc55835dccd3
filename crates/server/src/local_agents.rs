//! Agents in the process of the server.

use std::path::Path;

use dovetail_agent::{AgentConfig, AgentError, Images};
use dovetail_hub::Authority;

use crate::host_name;

/// Agents of this machine that run in the process of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalAgents {
    /// Number of agents; more than one simulates several nodes.
    pub nodes: u32,
    /// Virtual GPUs of each agent; `None` for the GPUs of this machine.
    pub virtual_gpus: Option<u32>,
    /// How jobs with a container image are treated if there is no container runtime.
    pub images: Images,
}

impl LocalAgents {
    /// Returns the configuration of each agent. They join the server at this address, and have their folders in its
    /// data folder.
    pub(crate) fn configs(
        self,
        data: &Path,
        server: &str,
        authority: &Authority,
    ) -> Result<Vec<AgentConfig>, AgentError> {
        let host = host_name().unwrap_or_else(|| "local".to_owned());
        let config = |i: u32| {
            let (name, folder) = match self.nodes {
                0 | 1 => (host.clone(), data.join("agent")),
                _ => (format!("{host}-{i}"), data.join(format!("agent-{i}"))),
            };
            let mut config = AgentConfig::new(&name, server, folder)
                .with_join_token(&authority.join_token().to_string())?;
            config.virtual_gpus = self.virtual_gpus;
            config.images = self.images;
            Ok(config)
        };
        (0..self.nodes.max(1)).map(config).collect()
    }
}
