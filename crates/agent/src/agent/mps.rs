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

/// Starts or stops MPS on a thread of its own: that takes seconds.
pub(super) fn switch(agent: &Agent, command: &SetMps) {
    let (request, is_on) = (command.request, command.is_on);
    let Some(results) = agent.mps.clone() else { return };
    tracing::info!(is_on, "switching MPS");
    tokio::task::spawn_blocking(move || {
        let result = mps::switch(is_on);
        // The agent may be ending.
        let _ = results.send(MpsResult { request, result });
    });
}

/// Uses MPS for the tasks that start from now on, or no longer, and tells the server.
pub(super) fn finish(agent: &mut Agent, result: MpsResult) {
    agent.node.mps = mps::pipe();
    let error = result.result.err().map(|error| error.to_string());
    if let Some(error) = &error {
        tracing::warn!("MPS was not switched: {error}");
    }
    agent.server.send_unnumbered(Body::MpsReport(MpsReport {
        request: result.request,
        error: error.unwrap_or_default(),
    }));
}
