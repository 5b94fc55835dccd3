//! The API's access to agents.

use dovetail_cluster::{LoadPoint, LogPiece, LogRequest};
use dovetail_hub::Hub;
use dovetail_model::{NodeId, Time};
use dovetail_web::{LogError, Nodes};
use tokio::sync::{mpsc, watch};

/// The nodes of a hub, as the API sees them.
pub(crate) struct HubNodes(pub(crate) Hub);

impl Nodes for HubNodes {
    fn is_connected(&self, node: NodeId) -> bool {
        self.0.is_connected(node)
    }

    fn read_log(&self, request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, LogError> {
        self.0.read_log(request).map_err(|e| LogError(e.to_string()))
    }

    fn last_event(&self) -> watch::Receiver<u64> {
        self.0.last_event()
    }

    fn loads(&self, node: NodeId, since: Time) -> Vec<LoadPoint> {
        self.0.loads(node, since)
    }

    fn journal_error(&self) -> Option<String> {
        self.0.journal_error().borrow().clone()
    }
}
