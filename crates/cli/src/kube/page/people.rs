//! Users of the page, in a Secret: Kubernetes is the only store.

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dovetail_kubeapi::{Client, Patch};
use dovetail_web::Users;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::failure::{Blame, Failure};

/// The Secret.
const NAME: &str = "dovetail-page";
/// The user that is there at the start.
const FIRST: &str = "admin";

async fn write(client: &Client, namespace: &str, data: &Value) -> Result<(), dovetail_kubeapi::Error> {
    let folder = format!("/api/v1/namespaces/{namespace}/secrets");
    let patch = json!({ "data": data });
    let done = client
        .patch::<IgnoredAny>(&format!("{folder}/{NAME}"), Patch::Merge, &patch)
        .await;
    match done {
        Err(error) if error.is_not_found() => {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "dovetail"}}, "data": data});
            client.post(&folder, &secret).await
        }
        other => other.map(drop),
    }
}

/// The users of the Secret; the first administrator is made with it, and its password and token stand beside.
pub(super) async fn open(client: &Client, namespace: &str) -> Result<Users, Failure> {
    let name = format!("secret {namespace}/{NAME}");
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{NAME}");
    let held = match client.get::<Value>(&path).await {
        Ok(secret) => secret
            .pointer("/data/users.json")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        Err(error) if error.is_not_found() => String::new(),
        Err(error) => return Err(error).or_work(),
    };
    let bytes = STANDARD
        .decode(held)
        .with_context(|| format!("{name}: users.json"))
        .or_work()?;
    let (there, home) = (client.clone(), namespace.to_owned());
    let keep = move |bytes: &[u8]| {
        let data = json!({"users.json": STANDARD.encode(bytes)});
        let work = write(&there, &home, &data);
        let done = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work));
        done.map_err(|error| error.to_string())
    };
    let users = Users::kept_by(&bytes, &name, Box::new(keep)).or_work()?;
    if bytes.is_empty() {
        let token = users.add(FIRST, true).or_work()?;
        let password = users.set_password(FIRST, None, true).or_work()?;
        let data =
            json!({"admin-token": STANDARD.encode(token), "admin-password": STANDARD.encode(password)});
        write(client, namespace, &data).await.or_work()?;
        tracing::info!("{name} has the password and a token of the first user, {FIRST}");
    }
    Ok(users)
}
