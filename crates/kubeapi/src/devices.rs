//! Devices and claims of `resource.k8s.io/v1` with the fields that a scheduler needs.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::objects::{Meta, null_as_default};

/// A list of devices, usually of one node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceSlice {
    /// Name and uid.
    pub metadata: Meta,
    /// The devices.
    pub spec: SliceSpec,
}

/// Content of a resource slice.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceSpec {
    /// The driver that manages them.
    pub driver: String,
    /// Their node; `None` for devices that several nodes can reach.
    pub node_name: Option<String>,
    /// The pool they belong to.
    pub pool: Pool,
    /// The devices.
    #[serde(deserialize_with = "null_as_default")]
    pub devices: Vec<Device>,
}

/// A pool of slices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    /// Its name, unique for the driver.
    pub name: String,
    /// Generation; slices of an older one are obsolete.
    pub generation: i64,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Its name, unique in the pool.
    pub name: String,
    /// Its attributes.
    #[serde(deserialize_with = "null_as_default")]
    pub attributes: Map<String, Value>,
    /// Taints, such as a defect.
    #[serde(deserialize_with = "null_as_default")]
    pub taints: Vec<Value>,
}

/// A claim on devices.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceClaim {
    /// Name and uid.
    pub metadata: Meta,
    /// The requested devices.
    pub spec: ClaimSpec,
    /// The allocation.
    pub status: ClaimStatus,
}

/// Content of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimSpec {
    /// The requested devices.
    pub devices: ClaimedDevices,
}

/// Requests of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimedDevices {
    /// The requests.
    #[serde(deserialize_with = "null_as_default")]
    pub requests: Vec<DeviceRequest>,
    /// Constraints over several devices.
    #[serde(deserialize_with = "null_as_default")]
    pub constraints: Vec<Value>,
}

/// A request for devices.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// Its name in the claim.
    pub name: String,
    /// The exact request; `None` if there are alternatives.
    pub exactly: Option<ExactRequest>,
}

/// A number of devices of one class.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactRequest {
    /// The class.
    pub device_class_name: String,
    /// `ExactCount` or `All`.
    pub allocation_mode: String,
    /// Number of devices.
    pub count: i64,
    /// Selectors that the devices must match.
    #[serde(deserialize_with = "null_as_default")]
    pub selectors: Vec<Value>,
    /// Whether access is for administration rather than for use.
    pub admin_access: Option<bool>,
}

/// Allocation of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    /// The allocated devices.
    pub allocation: Option<Value>,
    /// Pods that may use them.
    #[serde(deserialize_with = "null_as_default")]
    pub reserved_for: Vec<ClaimUser>,
}

/// A pod that may use the claimed devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimUser {
    /// `pods`.
    pub resource: String,
    /// The name of the pod.
    pub name: String,
    /// Its uid.
    pub uid: String,
}
