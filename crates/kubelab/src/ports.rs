//! Ports of the control plane's components.

use std::net::TcpListener;
use std::path::Path;

use crate::LabError;

/// Ports on loopback, one for each server of the lab.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) etcd: u16,
    pub(crate) etcd_peers: u16,
    pub(crate) api: u16,
    pub(crate) controllers: u16,
    pub(crate) scheduler: u16,
}

impl Ports {
    /// Chooses five different ports that are free now. Another process may take one before the component does.
    pub(crate) fn free() -> Result<Self, LabError> {
        let no_port = LabError::file(Path::new("127.0.0.1:0"));
        // The listeners stay open until the last port is found, so that the ports differ.
        let listeners: Result<Vec<_>, _> = (0..5).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
        let ports: Result<Vec<_>, _> = listeners
            .map_err(&no_port)?
            .iter()
            .map(|l| l.local_addr().map(|a| a.port()))
            .collect();
        let ports = ports.map_err(&no_port)?;
        Ok(Self {
            etcd: ports[0],
            etcd_peers: ports[1],
            api: ports[2],
            controllers: ports[3],
            scheduler: ports[4],
        })
    }
}
