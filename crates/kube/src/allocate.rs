//! Allocates devices to ResourceClaims before their pods are bound.

use std::time::Duration;

use dovetail_kubeapi::{Error, Patch, ResourceClaim};
use serde_json::{Value, json};

use crate::action::{ClaimDevices, PodId};
use crate::executor::Executor;

/// Finalizer that keeps a claim while its devices are in use.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

impl Executor {
    /// Allocates devices to a claim, and retries temporary errors as long as this process leads. Returns whether the claim has them.
    pub(crate) async fn allocate_devices(&self, claim: &ClaimDevices, pod: &PodId) -> bool {
        let mut wait = Duration::from_millis(50);
        loop {
            let permit = self.requests.acquire().await;
            if !self.leadership.holds() {
                return false;
            }
            let result = self.try_allocate(claim, pod).await;
            drop(permit);
            match result {
                Ok(is_allocated) => return is_allocated,
                Err(error) if error.is_transient() || error.is_conflict() => {
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

    async fn try_allocate(&self, devices: &ClaimDevices, pod: &PodId) -> Result<bool, Error> {
        let mut claim: ResourceClaim = self.client.get(&devices.path).await?;
        let is_reserved_for_pod =
            |claim: &ResourceClaim| claim.status.reserved_for.iter().all(|user| user.uid == pod.uid);
        if !is_reserved_for_pod(&claim) || claim.metadata.deletion_timestamp.is_some() {
            tracing::warn!(
                "{pod}: {} is reserved for another pod or being deleted",
                devices.path
            );
            return Ok(false);
        }
        if has_devices(&claim, devices) && !claim.status.reserved_for.is_empty() {
            return Ok(true);
        }
        if claim.status.allocation.is_some() && !has_devices(&claim, devices) {
            // An earlier leader allocated devices elsewhere and did not bind the pod. An allocation cannot be changed, only
            // released.
            let released = json!({"allocation": null, "reservedFor": null});
            claim = self.patch_claim(devices, &claim, &released).await?;
        }
        if !claim.metadata.finalizers.iter().any(|f| f == FINALIZER) {
            let mut finalizers = claim.metadata.finalizers.clone();
            finalizers.push(FINALIZER.to_owned());
            let version = &claim.metadata.resource_version;
            let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
            claim = self.client.patch(&devices.path, Patch::Merge, &patch).await?;
        }
        let status = json!({"allocation": devices.allocation,
            "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid}]});
        self.patch_claim(devices, &claim, &status).await?;
        Ok(true)
    }

    /// Patches the status of a claim. The resource version makes a concurrent change a conflict.
    async fn patch_claim(
        &self,
        devices: &ClaimDevices,
        seen: &ResourceClaim,
        status: &Value,
    ) -> Result<ResourceClaim, Error> {
        let version = &seen.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
        let path = format!("{}/status", devices.path);
        self.client.patch(&path, Patch::Merge, &patch).await
    }
}

/// Checks whether the claim already has these devices. The server may have added fields to the allocation.
fn has_devices(claim: &ResourceClaim, devices: &ClaimDevices) -> bool {
    let results = |allocation: &Value| allocation.pointer("/devices/results").cloned();
    let current = claim.status.allocation.as_ref().and_then(results);
    current.is_some() && current == results(&devices.allocation)
}
