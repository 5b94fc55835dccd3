//! Events about objects.

use serde::{Deserialize, Serialize};

use crate::objects::{Meta, ObjectRef};
use crate::time::seconds_time;

/// An event about an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// Name and namespace of the event.
    pub metadata: Meta,
    /// The object that the event is about.
    pub involved_object: ObjectRef,
    /// Machine-readable reason.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The component that reports it.
    pub source: EventSource,
    /// When it was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_timestamp: Option<String>,
    /// When it was last seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_timestamp: Option<String>,
    /// Number of occurrences.
    pub count: i32,
}

/// The reporter of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventSource {
    /// The component.
    pub component: String,
}

impl Event {
    /// Returns an event about a pod at a time in microseconds; name, namespace and uid of `pod` are used.
    pub fn about_pod(pod: &Meta, kind: &str, reason: &str, message: &str, component: &str, at: i64) -> Self {
        let pod = ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        };
        Self::about(pod, kind, reason, message, component, at)
    }

    /// Returns an event about an object at a time in microseconds. Events about objects without a namespace are in
    /// `default`.
    pub fn about(
        object: ObjectRef,
        kind: &str,
        reason: &str,
        message: &str,
        component: &str,
        at: i64,
    ) -> Self {
        let namespace = match object.namespace.is_empty() {
            true => "default".to_owned(),
            false => object.namespace.clone(),
        };
        Self {
            metadata: Meta {
                name: format!("{}.{at:x}", object.name),
                namespace,
                ..Meta::default()
            },
            involved_object: object,
            reason: reason.to_owned(),
            message: message.to_owned(),
            kind: kind.to_owned(),
            source: EventSource {
                component: component.to_owned(),
            },
            first_timestamp: Some(seconds_time(at)),
            last_timestamp: Some(seconds_time(at)),
            count: 1,
        }
    }

    /// Returns the path to post the event to.
    pub fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/events", self.metadata.namespace)
    }
}
