//! Making the objects of a job at the API server, and taking them away.

use dovetail_kubeapi::{Client, DeleteOptions, Error, List, Patch};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::manifest::Manifest;
use crate::words;

/// Where objects of a kind are.
fn path(kind: &str, namespace: &str) -> String {
    match kind {
        "Job" => format!("/apis/batch/v1/namespaces/{namespace}/jobs"),
        "Secret" => format!("/api/v1/namespaces/{namespace}/secrets"),
        _ => format!("/api/v1/namespaces/{namespace}/services"),
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn place(object: &Value) -> String {
    path(text(object, "/kind"), text(object, "/metadata/namespace"))
}

/// Makes all objects of a job, or none of them.
///
/// # Errors
/// As the server says.
pub async fn send(client: &Client, manifest: &Manifest) -> Result<(), Error> {
    let mut made: Vec<String> = Vec::new();
    let mut owners: Vec<Value> = Vec::new();
    for object in manifest.objects() {
        match client.create::<Value>(&place(object), object).await {
            Ok(answer) => {
                let name = text(&answer, "/metadata/name");
                made.push(format!("{}/{name}", place(object)));
                if text(object, "/kind") == "Job" {
                    owners.push(json!({"apiVersion": "batch/v1", "kind": "Job", "name": name,
                        "uid": text(&answer, "/metadata/uid")}));
                }
            }
            Err(error) => {
                for path in &made {
                    take_away(client, path).await;
                }
                return Err(error);
            }
        }
    }
    // What belongs to the Jobs goes when they go.
    let patch = json!({"metadata": {"ownerReferences": owners}});
    for object in manifest.secret.iter().chain(&manifest.service) {
        let path = format!("{}/{}", place(object), text(object, "/metadata/name"));
        client.patch::<IgnoredAny>(&path, Patch::Merge, &patch).await?;
    }
    Ok(())
}

async fn take_away(client: &Client, path: &str) {
    let options = DeleteOptions {
        propagation_policy: Some("Background"),
        ..DeleteOptions::default()
    };
    if let Err(error) = client.delete(path, &options).await {
        tracing::warn!("{path} is left behind: {error}");
    }
}

/// Deletes the Jobs of a job, and with them everything that belongs to it; how many there were.
///
/// # Errors
/// As the server says.
pub async fn delete(client: &Client, namespace: &str, name: &str) -> Result<usize, Error> {
    let jobs = path("Job", namespace);
    let list: List<Value> = client
        .list(&jobs, &format!("labelSelector={}={name}", words::SENT_AS))
        .await?;
    let options = DeleteOptions {
        propagation_policy: Some("Background"),
        ..DeleteOptions::default()
    };
    for job in &list.items {
        let name = text(job, "/metadata/name");
        client.delete(&format!("{jobs}/{name}"), &options).await?;
    }
    Ok(list.items.len())
}
