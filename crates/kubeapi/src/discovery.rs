//! What an API server offers, and what the account of a client may do.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::Client;
use crate::error::Error;
use crate::objects::null_as_default;

/// The resources of a version of an API group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ApiResources {
    /// The resources, with their subresources.
    #[serde(deserialize_with = "null_as_default")]
    pub resources: Vec<ApiResource>,
}

/// A resource, or a subresource such as `pods/status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ApiResource {
    /// Its name in paths.
    pub name: String,
    /// Verbs that it supports.
    #[serde(deserialize_with = "null_as_default")]
    pub verbs: Vec<String>,
}

impl ApiResources {
    /// Returns whether a resource exists and supports a verb.
    pub fn has(&self, name: &str, verb: &str) -> bool {
        let mut resources = self.resources.iter();
        resources.any(|resource| resource.name == name && resource.verbs.iter().any(|v| v == verb))
    }
}

/// Gets the resources of a version of an API group, such as `/api/v1`.
///
/// # Errors
/// When the request fails.
pub async fn resources(client: &Client, group_version: &str) -> Result<ApiResources, Error> {
    client.get(group_version).await
}

/// Returns whether the account of a client may use a verb on a subresource of the core API group, in all namespaces.
///
/// # Errors
/// When the request fails.
pub async fn may(client: &Client, verb: &str, resource: &str, subresource: &str) -> Result<bool, Error> {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": verb, "resource": resource, "subresource": subresource}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer: Value = client.create(path, &review).await?;
    Ok(answer["status"]["allowed"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subresource_exists_with_its_verbs() {
        let text = r#"{"kind": "APIResourceList", "resources": [
            {"name": "pods", "verbs": ["get", "patch"]},
            {"name": "pods/resize", "verbs": ["get", "patch", "update"]}, {"name": "odd", "verbs": null}]}"#;
        let resources: ApiResources = serde_json::from_str(text).unwrap();
        assert!(resources.has("pods/resize", "patch"));
        assert!(!resources.has("pods/resize", "delete"));
        assert!(!resources.has("pods/binding", "patch"));
        assert!(!resources.has("odd", "get"));
    }
}
