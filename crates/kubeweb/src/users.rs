//! Users of the page, kept in a Secret because Kubernetes is the only store.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dovetail_kubeapi::{Client, Patch};
use dovetail_web::Users;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::PageError;

/// Name of the Secret.
const SECRET: &str = "dovetail-page";
/// Name of the first user, an administrator.
const FIRST_USER: &str = "admin";

/// Merges data into the Secret, and creates it if it is missing.
async fn write_secret(client: &Client, namespace: &str, data: &Value) -> Result<(), dovetail_kubeapi::Error> {
    let folder = format!("/api/v1/namespaces/{namespace}/secrets");
    let patch = json!({ "data": data });
    let patched = client
        .patch::<IgnoredAny>(&format!("{folder}/{SECRET}"), Patch::Merge, &patch)
        .await;
    match patched {
        Err(error) if error.is_not_found() => {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"name": SECRET, "labels": {"app.kubernetes.io/managed-by": "dovetail"}}, "data": data});
            client.post(&folder, &secret).await
        }
        other => other.map(drop),
    }
}

/// Reads the users from the Secret. If it has none, the first administrator is created, and its password and token
/// are written to the Secret as well.
pub(crate) async fn open(client: &Client, namespace: &str) -> Result<Users, PageError> {
    let secret = format!("{namespace}/{SECRET}");
    let failed = |source| PageError::Secret {
        secret: secret.clone(),
        source,
    };
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{SECRET}");
    let encoded = match client.get::<Value>(&path).await {
        Ok(object) => object
            .pointer("/data/users.json")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        Err(error) if error.is_not_found() => String::new(),
        Err(error) => return Err(failed(error)),
    };
    let bytes = STANDARD
        .decode(encoded)
        .map_err(|source| PageError::InvalidSecret {
            secret: secret.clone(),
            source,
        })?;
    let (writer, home) = (client.clone(), namespace.to_owned());
    let keep = move |bytes: &[u8]| {
        let data = json!({"users.json": STANDARD.encode(bytes)});
        let write = write_secret(&writer, &home, &data);
        let written = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(write));
        written.map_err(std::io::Error::other)
    };
    let users = Users::with_storage(&bytes, &format!("secret {secret}"), Box::new(keep))?;
    if bytes.is_empty() {
        let token = users.add(FIRST_USER, true)?;
        let password = users.set_password(FIRST_USER, None, true)?;
        let data =
            json!({"admin-token": STANDARD.encode(token), "admin-password": STANDARD.encode(password)});
        write_secret(client, namespace, &data).await.map_err(failed)?;
        tracing::info!("created user {FIRST_USER}; its password and token are in secret {secret}");
    }
    Ok(users)
}
