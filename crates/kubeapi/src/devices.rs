//! Devices and claims on them, as `resource.k8s.io/v1` has them, as far as they matter to a scheduler.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::objects::{Meta, lenient};

/// Devices of a node, or some of them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceSlice {
    /// Its name.
    pub metadata: Meta,
    /// The devices.
    pub spec: SliceSpec,
}

/// Devices of a node, or some of them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceSpec {
    /// Who looks after them.
    pub driver: String,
    /// Where they are; none for those that several nodes can reach.
    pub node_name: Option<String>,
    /// What they are part of.
    pub pool: Pool,
    /// The devices.
    #[serde(deserialize_with = "lenient")]
    pub devices: Vec<Device>,
}

/// Slices that belong together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    /// Its name, unique for the driver.
    pub name: String,
    /// Slices of an older generation say what was.
    pub generation: i64,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Its name, unique in the pool.
    pub name: String,
    /// What it is like.
    #[serde(deserialize_with = "lenient")]
    pub attributes: Map<String, Value>,
    /// Why it is not to be used, where that is so.
    #[serde(deserialize_with = "lenient")]
    pub taints: Vec<Value>,
}

/// A claim on devices.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceClaim {
    /// Its name.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: ClaimSpec,
    /// What it got.
    pub status: ClaimStatus,
}

/// What is claimed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimSpec {
    /// Devices.
    pub devices: ClaimedDevices,
}

/// Devices that are claimed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimedDevices {
    /// Each for some devices of a kind.
    #[serde(deserialize_with = "lenient")]
    pub requests: Vec<DeviceRequest>,
    /// What they have to have in common.
    #[serde(deserialize_with = "lenient")]
    pub constraints: Vec<Value>,
}

/// Some devices of a kind.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// Its name in the claim.
    pub name: String,
    /// Exactly these; none where there is a choice.
    pub exactly: Option<ExactRequest>,
}

/// So many of a class.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactRequest {
    /// The class.
    pub device_class_name: String,
    /// `ExactCount` or `All`.
    pub allocation_mode: String,
    /// How many.
    pub count: i64,
    /// What they have to be like.
    #[serde(deserialize_with = "lenient")]
    pub selectors: Vec<Value>,
    /// To look after them, not to use them.
    pub admin_access: Option<bool>,
}

/// What a claim got.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    /// The devices.
    pub allocation: Option<Value>,
    /// Who may use them.
    #[serde(deserialize_with = "lenient")]
    pub reserved_for: Vec<ClaimUser>,
}

/// Who may use what was claimed.
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
