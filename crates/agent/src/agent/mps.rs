//! Starting and stopping MPS for the server.

use dovetail_proto::v1::agent_message::Body;
use dovetail_proto::v1::{MpsReport, SetMps};

use crate::agent::Agent;
use crate::hardware::mps::{self, MpsError};

/// The result of a request of the server.
#[derive(Debug)]
pub(crate) struct MpsResult {
    request: u64,
    result: Result<(), MpsError>,
}

impl Agent {
    /// Starts or stops MPS on a thread of its own: that takes seconds.
    pub(super) fn set_mps(&mut self, command: &SetMps) {
        let (request, is_on) = (command.request, command.is_on);
        let Some(results) = self.mps.clone() else { return };
        tracing::info!(is_on, "switching MPS");
        tokio::task::spawn_blocking(move || {
            let result = mps::switch(is_on);
            // The agent may be ending.
            let _ = results.send(MpsResult { request, result });
        });
    }

    /// Uses MPS for the tasks that start from now on, or no longer, and tells the server.
    pub(super) fn mps_switched(&mut self, result: MpsResult) {
        self.node.mps = mps::pipe();
        let error = result.result.err().map(|error| error.to_string());
        if let Some(error) = &error {
            tracing::warn!("MPS was not switched: {error}");
        }
        self.server.send_unnumbered(Body::MpsReport(MpsReport {
            request: result.request,
            error: error.unwrap_or_default(),
        }));
    }
}
