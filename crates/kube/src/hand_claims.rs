//! Devices are written on claims before the pod that has them is bound.

use std::time::Duration;

use dovetail_kubeapi::{Error, Patch, ResourceClaim};
use serde_json::{Value, json};

use crate::action::{ClaimDevices, PodId};
use crate::carry_out::Hands;

/// Keeps a claim from going while its devices are in use.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

impl Hands {
    /// Gives a claim its devices, however often it takes, as long as we lead. Whether it has them.
    pub(crate) async fn give_devices(&self, claim: &ClaimDevices, pod: &PodId) -> bool {
        let mut wait = Duration::from_millis(50);
        loop {
            let permit = self.at_once.acquire().await;
            if !self.leadership.holds() {
                return false;
            }
            let done = self.try_to_give(claim, pod).await;
            drop(permit);
            match done {
                Ok(given) => return given,
                Err(error) if error.is_passing() || error.is_conflict() => {
                    tracing::info!("{pod}: {error}");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
                Err(error) => {
                    tracing::warn!("{pod}: {error}");
                    return false;
                }
            }
        }
    }

    async fn try_to_give(&self, wanted: &ClaimDevices, pod: &PodId) -> Result<bool, Error> {
        let mut claim: ResourceClaim = self.client.get(&wanted.path).await?;
        let is_ours =
            |claim: &ResourceClaim| claim.status.reserved_for.iter().all(|user| user.uid == pod.uid);
        if !is_ours(&claim) || claim.metadata.deletion_timestamp.is_some() {
            tracing::warn!("{pod}: {} is in use by somebody else, or goes", wanted.path);
            return Ok(false);
        }
        if has(&claim, wanted) && !claim.status.reserved_for.is_empty() {
            return Ok(true);
        }
        if claim.status.allocation.is_some() && !has(&claim, wanted) {
            // Somebody who led before us meant it for another place and never came to bind the pod. What is allocated cannot be
            // changed, only given back.
            let none = json!({"allocation": null, "reservedFor": null});
            claim = self.patch_claim(wanted, &claim, &none).await?;
        }
        if !claim.metadata.finalizers.iter().any(|f| f == FINALIZER) {
            let mut finalizers = claim.metadata.finalizers.clone();
            finalizers.push(FINALIZER.to_owned());
            let version = &claim.metadata.resource_version;
            let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
            claim = self.client.patch(&wanted.path, Patch::Merge, &patch).await?;
        }
        let status = json!({"allocation": wanted.allocation,
            "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid}]});
        self.patch_claim(wanted, &claim, &status).await?;
        Ok(true)
    }

    /// Of the version that was seen: whoever else changes it in between is not overwritten.
    async fn patch_claim(
        &self,
        wanted: &ClaimDevices,
        seen: &ResourceClaim,
        status: &Value,
    ) -> Result<ResourceClaim, Error> {
        let version = &seen.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
        let path = format!("{}/status", wanted.path);
        self.client.patch(&path, Patch::Merge, &patch).await
    }
}

/// Whether the claim has these devices already. The server may have written more beside them.
fn has(claim: &ResourceClaim, wanted: &ClaimDevices) -> bool {
    let results = |allocation: &Value| allocation.pointer("/devices/results").cloned();
    let had = claim.status.allocation.as_ref().and_then(results);
    had.is_some() && had == results(&wanted.allocation)
}
