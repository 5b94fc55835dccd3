//! GPUs that are claimed (`resource.k8s.io/v1`) instead of counted: slices say which of them a node has, claims how many of
//! them a pod wants. To the book they are numbers as all others are: the place of the device among those of its node.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_kubeapi::{Device, DeviceRequest, Pod, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use super::{Ledger, Reconciler, Seat};
use crate::action::ClaimDevices;

/// Slices, claims, and pods of ours that have some.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    slices: BTreeMap<String, ResourceSlice>,
    /// By namespace and name.
    claims: BTreeMap<(String, String), ResourceClaim>,
    /// By uid.
    pods: BTreeMap<String, Pod>,
}

/// What a pod wants by one claim: its name, and of each request the name and how many devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The name of the claim.
    pub claim: String,
    /// Names of requests, and how many devices each is for.
    pub requests: Vec<(String, u32)>,
}

impl Claimed {
    /// Devices of all requests.
    pub fn devices(&self) -> u32 {
        self.requests.iter().map(|(_, count)| count).sum()
    }
}

/// A device: its driver, its pool and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DeviceId {
    driver: String,
    pool: String,
    name: String,
}

impl Reconciler {
    /// All slices there are.
    pub fn all_slices(&mut self, slices: Vec<ResourceSlice>, ledger: &mut impl Ledger) {
        let before = std::mem::take(&mut self.claims.slices);
        self.claims.slices = slices.into_iter().map(|s| (s.metadata.name.clone(), s)).collect();
        let all = before.values().chain(self.claims.slices.values());
        let nodes: BTreeSet<String> = all.filter_map(|s| s.spec.node_name.clone()).collect();
        self.look_at_nodes(nodes, ledger);
    }

    /// A slice is new, or has changed.
    pub fn slice_put(&mut self, slice: ResourceSlice, ledger: &mut impl Ledger) {
        let mut nodes = BTreeSet::from_iter(slice.spec.node_name.clone());
        let before = self.claims.slices.insert(slice.metadata.name.clone(), slice);
        nodes.extend(before.and_then(|s| s.spec.node_name));
        self.look_at_nodes(nodes, ledger);
    }

    /// A slice is gone.
    pub fn slice_gone(&mut self, name: &str, ledger: &mut impl Ledger) {
        let before = self.claims.slices.remove(name);
        self.look_at_nodes(
            before.and_then(|s| s.spec.node_name).into_iter().collect(),
            ledger,
        );
    }

    fn look_at_nodes(&mut self, names: BTreeSet<String>, ledger: &mut impl Ledger) {
        let nodes: Vec<_> = names
            .iter()
            .filter_map(|name| self.node_objects.get(name).cloned())
            .collect();
        for node in nodes {
            self.node_put(&node, ledger);
        }
    }

    /// All claims there are.
    pub fn all_claims(&mut self, claims: Vec<ResourceClaim>, ledger: &mut impl Ledger) {
        self.claims.claims = claims.into_iter().map(|c| (key(&c), c)).collect();
        let pods: Vec<Pod> = self.claims.pods.values().cloned().collect();
        for pod in pods {
            self.pod_put(&pod, ledger);
        }
    }

    /// A claim is new, or has changed.
    pub fn claim_put(&mut self, claim: ResourceClaim, ledger: &mut impl Ledger) {
        let at = key(&claim);
        let is_new = self.claims.claims.insert(at.clone(), claim).is_none();
        if is_new {
            self.look_at_users(&at, ledger);
        }
    }

    /// A claim is gone.
    pub fn claim_gone(&mut self, claim: &ResourceClaim, ledger: &mut impl Ledger) {
        let at = key(claim);
        self.claims.claims.remove(&at);
        self.look_at_users(&at, ledger);
    }

    /// What is wanted of a claim never changes, so that it matters when it comes and when it goes.
    fn look_at_users(&mut self, (namespace, name): &(String, String), ledger: &mut impl Ledger) {
        let uses = |pod: &&Pod| {
            pod.metadata.namespace == *namespace && names(pod).flatten().any(|claim| claim == *name)
        };
        let pods: Vec<Pod> = self.claims.pods.values().filter(uses).cloned().collect();
        for pod in pods {
            self.pod_put(&pod, ledger);
        }
    }

    pub(super) fn keep_claimant(&mut self, pod: &Pod) {
        let over = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        match pod.spec.resource_claims.is_empty() || over {
            true => self.forget_claimant(&pod.metadata.uid),
            false => drop(self.claims.pods.insert(pod.metadata.uid.clone(), pod.clone())),
        }
    }

    pub(super) fn forget_claimant(&mut self, uid: &str) {
        self.claims.pods.remove(uid);
    }

    /// What the pod claims; none while that cannot be told yet.
    pub(super) fn claimed(&self, pod: &Pod) -> Result<Option<Vec<Claimed>>, String> {
        let mut claimed = Vec::new();
        for name in names(pod) {
            let Some(name) = name else { return Ok(None) };
            let at = (pod.metadata.namespace.clone(), name.to_owned());
            let Some(claim) = self.claims.claims.get(&at) else {
                return Ok(None);
            };
            self.is_its_own(pod, name)?;
            let wrong = |why: String| format!("ResourceClaim {name}: {why}");
            claimed.push(self.wanted(claim).map_err(wrong)?);
        }
        Ok(Some(claimed))
    }

    /// Pods that share devices would have to be on one node, which a gang does not promise.
    fn is_its_own(&self, pod: &Pod, name: &str) -> Result<(), String> {
        let shares = |other: &&Pod| {
            other.metadata.uid != pod.metadata.uid
                && other.metadata.namespace == pod.metadata.namespace
                && names(other).flatten().any(|claim| claim == name)
        };
        match self.claims.pods.values().find(shares) {
            None => Ok(()),
            Some(other) => Err(format!(
                "ResourceClaim {name} is that of pod {} too; give each pod its own by resourceClaimTemplateName",
                other.metadata.name
            )),
        }
    }

    fn wanted(&self, claim: &ResourceClaim) -> Result<Claimed, String> {
        let devices = &claim.spec.devices;
        if !devices.constraints.is_empty() {
            return Err("spec.devices.constraints are not supported; leave them out".to_owned());
        }
        let one = |request: &DeviceRequest| {
            let wrong = |why: &str| Err(format!("request {}: {why}", request.name));
            let Some(exactly) = &request.exactly else {
                return wrong("firstAvailable is not supported; use exactly");
            };
            if !self.settings.device_classes.contains(&exactly.device_class_name) {
                return wrong(&format!(
                    "deviceClassName {:?} is none of {} (device_classes of kube.yaml)",
                    exactly.device_class_name,
                    self.settings.device_classes.join(", ")
                ));
            }
            if !exactly.selectors.is_empty() || exactly.admin_access == Some(true) {
                return wrong("selectors and adminAccess are not supported; leave them out");
            }
            match (exactly.allocation_mode.as_str(), u32::try_from(exactly.count)) {
                ("" | "ExactCount", Ok(count)) => Ok((request.name.clone(), count.max(1))),
                _ => wrong("expected allocationMode ExactCount, with a count"),
            }
        };
        Ok(Claimed {
            claim: claim.metadata.name.clone(),
            requests: devices.requests.iter().map(one).collect::<Result<_, _>>()?,
        })
    }

    /// GPUs of a node that are given out by claims.
    pub(super) fn devices(&self, node: &str) -> usize {
        self.device_ids(node).len()
    }

    /// They are numbered by their names, so that whoever leads next numbers them the same.
    fn device_ids(&self, node: &str) -> Vec<DeviceId> {
        let here = |slice: &&ResourceSlice| {
            slice.spec.node_name.as_deref() == Some(node)
                && self.settings.device_classes.contains(&slice.spec.driver)
        };
        let slices: Vec<&ResourceSlice> = self.claims.slices.values().filter(here).collect();
        let newest = |slice: &&&ResourceSlice| {
            let of_pool = |other: &&&ResourceSlice| {
                (&other.spec.driver, &other.spec.pool.name) == (&slice.spec.driver, &slice.spec.pool.name)
            };
            let newest = slices
                .iter()
                .filter(of_pool)
                .map(|s| s.spec.pool.generation)
                .max();
            newest == Some(slice.spec.pool.generation)
        };
        let mut found = Vec::new();
        for slice in slices.iter().filter(newest) {
            found.extend(slice.spec.devices.iter().filter(is_gpu).map(|d| DeviceId {
                driver: slice.spec.driver.clone(),
                pool: slice.spec.pool.name.clone(),
                name: d.name.clone(),
            }));
        }
        // Numbers in names count as numbers.
        found.sort_by(|a, b| {
            (&a.driver, &a.pool, a.name.len(), &a.name).cmp(&(&b.driver, &b.pool, b.name.len(), &b.name))
        });
        found
    }

    /// What is written on the claims of a pod that gets these GPUs of a node; none if the node has them no longer.
    pub(super) fn claim_devices(
        &self,
        namespace: &str,
        claims: &[Claimed],
        node: &str,
        seat: &Seat,
    ) -> Option<Vec<ClaimDevices>> {
        if claims.is_empty() {
            return Some(Vec::new());
        }
        let devices = self.device_ids(node);
        let mut gpus = seat.gpus.iter();
        let mut all = Vec::new();
        for claimed in claims {
            let mut results = Vec::new();
            for (request, count) in &claimed.requests {
                for _ in 0..*count {
                    let device = devices.get(*gpus.next()? as usize)?;
                    results.push(
                        json!({"request": request, "driver": device.driver, "pool": device.pool,
                        "device": device.name}),
                    );
                }
            }
            let only =
                json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
            all.push(ClaimDevices {
                path: format!(
                    "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{}",
                    claimed.claim
                ),
                allocation: json!({"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": only}}),
            });
        }
        Some(all)
    }
}

fn key(claim: &ResourceClaim) -> (String, String) {
    (claim.metadata.namespace.clone(), claim.metadata.name.clone())
}

/// The names of a pod's claims; none for one that was not made from its template yet.
fn names(pod: &Pod) -> impl Iterator<Item = Option<&str>> {
    let made = |name: &str| {
        let mut statuses = pod.status.resource_claim_statuses.iter();
        let made = statuses.find(|status| status.name == name)?;
        made.resource_claim_name.as_deref()
    };
    let all = pod.spec.resource_claims.iter();
    all.map(move |claim| claim.resource_claim_name.as_deref().or_else(|| made(&claim.name)))
}

/// Drivers that have other devices beside GPUs, or parts of GPUs, say so by the attribute `type`.
fn is_gpu(device: &&Device) -> bool {
    let kind = device.attributes.get("type").and_then(|kind| kind.get("string"));
    kind.and_then(Value::as_str).is_none_or(|kind| kind == "gpu")
}
