//! GPUs that are allocated by ResourceClaims (`resource.k8s.io/v1`) instead of by count. ResourceSlices list the devices of a
//! node; claims request a number of them. To the scheduler a device is a slot: its index among the devices of its node.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_kubeapi::{Device, DeviceRequest, Pod, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use super::gang::TaskSlot;
use crate::action::ClaimDevices;

/// ResourceSlices, ResourceClaims, and the pods that use claims.
#[derive(Debug, Default)]
pub(crate) struct DeviceTable {
    /// Device classes that are GPUs; their drivers have the same names.
    classes: Vec<String>,
    slices: BTreeMap<String, ResourceSlice>,
    /// By namespace and name.
    claims: BTreeMap<(String, String), ResourceClaim>,
    /// Pods with claims, by uid.
    pods: BTreeMap<String, Pod>,
}

/// Devices that a pod requests by one claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodClaim {
    /// Name of the claim.
    pub claim: String,
    /// Name of each request, and its number of devices.
    pub requests: Vec<(String, u32)>,
}

impl PodClaim {
    /// Returns the number of devices of all requests.
    pub fn devices(&self) -> u32 {
        self.requests.iter().map(|(_, count)| count).sum()
    }
}

/// Why the claims of a pod are not supported. The message is written on the pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// Two pods use one claim. They would have to run on one node, which a gang does not guarantee.
    #[error(
        "ResourceClaim {claim} is also used by pod {pod}; give each pod its own with resourceClaimTemplateName"
    )]
    Shared {
        /// Name of the claim.
        claim: String,
        /// Name of the other pod.
        pod: String,
    },
    /// The claim has constraints.
    #[error("ResourceClaim {0}: spec.devices.constraints are not supported; remove them")]
    Constraints(String),
    /// A request is not supported.
    #[error("ResourceClaim {claim}: request {request}: {error}")]
    Request {
        /// Name of the claim.
        claim: String,
        /// Name of the request.
        request: String,
        /// What is not supported.
        error: RequestError,
    },
}

/// Why a request of a claim is not supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request has alternatives.
    #[error("firstAvailable is not supported; use exactly")]
    Alternatives,
    /// The device class is not one of GPUs.
    #[error(
        "unknown deviceClassName {class:?}: expected one of {} (device_classes in kube.yaml)",
        known.join(", ")
    )]
    Class {
        /// The class.
        class: String,
        /// Classes that are GPUs.
        known: Vec<String>,
    },
    /// The request selects devices.
    #[error("selectors and adminAccess are not supported; remove them")]
    Selectors,
    /// The request is not for a number of devices.
    #[error("expected allocationMode ExactCount with a count")]
    Mode,
}

/// Identifies a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DeviceId {
    driver: String,
    pool: String,
    name: String,
}

impl DeviceTable {
    pub(super) fn new(classes: Vec<String>) -> Self {
        Self {
            classes,
            ..Self::default()
        }
    }

    /// Replaces all slices and returns the nodes whose devices may have changed.
    pub(super) fn set_slices(&mut self, slices: Vec<ResourceSlice>) -> BTreeSet<String> {
        let before = std::mem::take(&mut self.slices);
        self.slices = slices.into_iter().map(|s| (s.metadata.name.clone(), s)).collect();
        let all = before.values().chain(self.slices.values());
        all.filter_map(|s| s.spec.node_name.clone()).collect()
    }

    /// Adds or replaces a slice and returns the nodes whose devices may have changed.
    pub(super) fn put_slice(&mut self, slice: ResourceSlice) -> BTreeSet<String> {
        let mut nodes = BTreeSet::from_iter(slice.spec.node_name.clone());
        let before = self.slices.insert(slice.metadata.name.clone(), slice);
        nodes.extend(before.and_then(|s| s.spec.node_name));
        nodes
    }

    /// Removes a slice and returns its node.
    pub(super) fn remove_slice(&mut self, name: &str) -> BTreeSet<String> {
        let before = self.slices.remove(name);
        before.and_then(|s| s.spec.node_name).into_iter().collect()
    }

    /// Replaces all claims and returns the pods that use claims.
    pub(super) fn set_claims(&mut self, claims: Vec<ResourceClaim>) -> Vec<Pod> {
        self.claims = claims.into_iter().map(|c| (key(&c), c)).collect();
        self.pods.values().cloned().collect()
    }

    /// Adds or replaces a claim and returns the pods that waited for it. The spec of a claim is immutable, so replacing it
    /// affects no pod.
    pub(super) fn put_claim(&mut self, claim: ResourceClaim) -> Vec<Pod> {
        let key = key(&claim);
        let is_new = self.claims.insert(key.clone(), claim).is_none();
        if is_new { self.users(&key) } else { Vec::new() }
    }

    /// Removes a claim and returns the pods that use it.
    pub(super) fn remove_claim(&mut self, claim: &ResourceClaim) -> Vec<Pod> {
        let key = key(claim);
        self.claims.remove(&key);
        self.users(&key)
    }

    fn users(&self, (namespace, name): &(String, String)) -> Vec<Pod> {
        let uses = |pod: &&Pod| {
            pod.metadata.namespace == *namespace && claim_names(pod).flatten().any(|claim| claim == *name)
        };
        self.pods.values().filter(uses).cloned().collect()
    }

    /// Remembers a pod that uses claims, until it has ended.
    pub(super) fn put_pod(&mut self, pod: &Pod) {
        let has_ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        if pod.spec.resource_claims.is_empty() || has_ended {
            self.remove_pod(&pod.metadata.uid);
        } else {
            self.pods.insert(pod.metadata.uid.clone(), pod.clone());
        }
    }

    pub(super) fn remove_pod(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    /// Returns the claims of a pod; `None` while one of them does not exist.
    pub(super) fn claims_of(&self, pod: &Pod) -> Result<Option<Vec<PodClaim>>, ClaimError> {
        let mut claims = Vec::new();
        for name in claim_names(pod) {
            let Some(name) = name else { return Ok(None) };
            let key = (pod.metadata.namespace.clone(), name.to_owned());
            let Some(claim) = self.claims.get(&key) else {
                return Ok(None);
            };
            self.check_not_shared(pod, name)?;
            claims.push(self.pod_claim(claim)?);
        }
        Ok(Some(claims))
    }

    fn check_not_shared(&self, pod: &Pod, claim: &str) -> Result<(), ClaimError> {
        let shares = |other: &&Pod| {
            other.metadata.uid != pod.metadata.uid
                && other.metadata.namespace == pod.metadata.namespace
                && claim_names(other).flatten().any(|name| name == claim)
        };
        match self.pods.values().find(shares) {
            None => Ok(()),
            Some(other) => Err(ClaimError::Shared {
                claim: claim.to_owned(),
                pod: other.metadata.name.clone(),
            }),
        }
    }

    fn pod_claim(&self, claim: &ResourceClaim) -> Result<PodClaim, ClaimError> {
        let (name, devices) = (&claim.metadata.name, &claim.spec.devices);
        if !devices.constraints.is_empty() {
            return Err(ClaimError::Constraints(name.clone()));
        }
        let count = |request: &DeviceRequest| match self.count(request) {
            Ok(count) => Ok((request.name.clone(), count)),
            Err(error) => Err(ClaimError::Request {
                claim: name.clone(),
                request: request.name.clone(),
                error,
            }),
        };
        Ok(PodClaim {
            claim: name.clone(),
            requests: devices.requests.iter().map(count).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the number of devices of a request.
    fn count(&self, request: &DeviceRequest) -> Result<u32, RequestError> {
        let exactly = request.exactly.as_ref().ok_or(RequestError::Alternatives)?;
        if !self.classes.contains(&exactly.device_class_name) {
            return Err(RequestError::Class {
                class: exactly.device_class_name.clone(),
                known: self.classes.clone(),
            });
        }
        if !exactly.selectors.is_empty() || exactly.admin_access == Some(true) {
            return Err(RequestError::Selectors);
        }
        match (exactly.allocation_mode.as_str(), u32::try_from(exactly.count)) {
            ("" | "ExactCount", Ok(count)) => Ok(count.max(1)),
            _ => Err(RequestError::Mode),
        }
    }

    /// Returns the number of GPUs of a node that are allocated by claims.
    pub(super) fn devices_on(&self, node: &str) -> u32 {
        self.device_ids(node).len() as u32
    }

    /// Returns the devices of a node, sorted by name, so that every leader numbers them the same.
    fn device_ids(&self, node: &str) -> Vec<DeviceId> {
        let on_node = |slice: &&ResourceSlice| {
            slice.spec.node_name.as_deref() == Some(node) && self.classes.contains(&slice.spec.driver)
        };
        let slices: Vec<&ResourceSlice> = self.slices.values().filter(on_node).collect();
        let is_newest = |slice: &&&ResourceSlice| {
            let same_pool = |other: &&&ResourceSlice| {
                (&other.spec.driver, &other.spec.pool.name) == (&slice.spec.driver, &slice.spec.pool.name)
            };
            let of_pool = slices.iter().filter(same_pool);
            of_pool.map(|s| s.spec.pool.generation).max() == Some(slice.spec.pool.generation)
        };
        let mut found = Vec::new();
        for slice in slices.iter().filter(is_newest) {
            found.extend(slice.spec.devices.iter().filter(is_gpu).map(|d| DeviceId {
                driver: slice.spec.driver.clone(),
                pool: slice.spec.pool.name.clone(),
                name: d.name.clone(),
            }));
        }
        // By length first, so that numbers in names compare as numbers.
        found.sort_by(|a, b| {
            (&a.driver, &a.pool, a.name.len(), &a.name).cmp(&(&b.driver, &b.pool, b.name.len(), &b.name))
        });
        found
    }

    /// Returns the allocation of each claim of a pod in a slot; `None` if the node no longer has the devices.
    pub(super) fn allocate(
        &self,
        namespace: &str,
        claims: &[PodClaim],
        node: &str,
        slot: &TaskSlot,
    ) -> Option<Vec<ClaimDevices>> {
        if claims.is_empty() {
            return Some(Vec::new());
        }
        let devices = self.device_ids(node);
        let mut gpus = slot.gpus.iter();
        let mut allocations = Vec::new();
        for claim in claims {
            let mut results = Vec::new();
            for (request, count) in &claim.requests {
                for _ in 0..*count {
                    let device = devices.get(*gpus.next()? as usize)?;
                    results.push(
                        json!({"request": request, "driver": device.driver, "pool": device.pool,
                        "device": device.name}),
                    );
                }
            }
            let terms =
                json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
            allocations.push(ClaimDevices {
                path: format!(
                    "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{}",
                    claim.claim
                ),
                allocation: json!({"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}),
            });
        }
        Some(allocations)
    }
}

fn key(claim: &ResourceClaim) -> (String, String) {
    (claim.metadata.namespace.clone(), claim.metadata.name.clone())
}

/// Returns the names of the claims of a pod; `None` for one that was not created from its template yet.
fn claim_names(pod: &Pod) -> impl Iterator<Item = Option<&str>> {
    let created = |name: &str| {
        let mut statuses = pod.status.resource_claim_statuses.iter();
        let status = statuses.find(|status| status.name == name)?;
        status.resource_claim_name.as_deref()
    };
    let all = pod.spec.resource_claims.iter();
    all.map(move |claim| {
        claim
            .resource_claim_name
            .as_deref()
            .or_else(|| created(&claim.name))
    })
}

/// Checks whether a device is a whole GPU. Drivers mark other devices with the attribute `type`.
fn is_gpu(device: &&Device) -> bool {
    let kind = device.attributes.get("type").and_then(|kind| kind.get("string"));
    kind.and_then(Value::as_str).is_none_or(|kind| kind == "gpu")
}
