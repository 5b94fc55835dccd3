//! Creates and deletes the objects of a submitted job.

use dovetail_kubeapi::{Client, DeleteOptions, Error, List, Patch};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::annotations;
use crate::manifest::Manifest;

/// Returns the path of objects of a kind.
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

fn path_of(object: &Value) -> String {
    path(text(object, "/kind"), text(object, "/metadata/namespace"))
}

/// Creates all objects of a job, or none of them.
///
/// # Errors
/// If the API server rejects one.
pub async fn create_objects(client: &Client, manifest: &Manifest) -> Result<(), Error> {
    let mut created: Vec<String> = Vec::new();
    let mut owners: Vec<Value> = Vec::new();
    for object in manifest.objects() {
        match client.create::<Value>(&path_of(object), object).await {
            Ok(answer) => {
                let name = text(&answer, "/metadata/name");
                created.push(format!("{}/{name}", path_of(object)));
                if text(object, "/kind") == "Job" {
                    owners.push(json!({"apiVersion": "batch/v1", "kind": "Job", "name": name,
                        "uid": text(&answer, "/metadata/uid")}));
                }
            }
            Err(error) => {
                for path in &created {
                    remove(client, path).await;
                }
                return Err(error);
            }
        }
    }
    // The garbage collector deletes the others with the Jobs.
    let patch = json!({"metadata": {"ownerReferences": owners}});
    for object in manifest.secret.iter().chain(&manifest.service) {
        let path = format!("{}/{}", path_of(object), text(object, "/metadata/name"));
        client.patch::<IgnoredAny>(&path, Patch::Merge, &patch).await?;
    }
    Ok(())
}

async fn remove(client: &Client, path: &str) {
    let options = DeleteOptions {
        propagation_policy: Some("Background"),
        ..DeleteOptions::default()
    };
    if let Err(error) = client.delete(path, &options).await {
        tracing::warn!("cannot delete {path}: {error}");
    }
}

/// Deletes the Jobs of a submitted job, and with them all its objects. Returns the number of Jobs.
///
/// # Errors
/// If the API server rejects a request.
pub async fn delete_objects(client: &Client, namespace: &str, name: &str) -> Result<usize, Error> {
    let jobs = path("Job", namespace);
    let list: List<Value> = client
        .list(&jobs, &format!("labelSelector={}={name}", annotations::SENT_AS))
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
