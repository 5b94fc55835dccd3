//! Transactions on a cluster state without a driver.

use dovetail_cluster::{ClusterState, Fact, GangRequest, Refusal};
use dovetail_kube::ClusterTransaction;
use dovetail_model::Time;

/// A transaction at one moment.
pub(crate) struct TestTransaction<'a> {
    pub(crate) state: &'a mut ClusterState,
    pub(crate) now: Time,
}

impl ClusterTransaction for TestTransaction<'_> {
    fn state(&self) -> &ClusterState {
        self.state
    }

    fn record(&mut self, fact: Fact) {
        self.state.apply(self.now, &fact);
    }

    fn check(&self, request: &GangRequest) -> Result<(), Refusal> {
        Ok(request.job().map(drop)?)
    }
}
