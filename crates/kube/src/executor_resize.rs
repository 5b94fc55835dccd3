//! Changes CPU and memory of pods in place.

use std::time::Duration;

use dovetail_kubeapi::{Error, Patch};
use serde_json::{Value, json};

use crate::action::{PodId, ResizePod};
use crate::annotations;
use crate::executor::{ActionResult, Executor};
use crate::pod_size::NewAmounts;

/// Resizes a pod and reports the result; returns whether it was resized.
pub(crate) async fn resize_pod(executor: &Executor, resize: &ResizePod) -> bool {
    let result = try_resize(executor, resize).await;
    let is_resized = result.is_ok();
    if let Err(why) = &result {
        tracing::info!("{}: not resized: {why}", resize.pod);
    }
    executor.report(ActionResult::Resized {
        uid: resize.pod.uid.clone(),
        target: resize.target,
        result,
    });
    is_resized
}

async fn try_resize(executor: &Executor, resize: &ResizePod) -> Result<(), String> {
    let pod = &resize.pod;
    if let Some(text) = &resize.requested {
        let patch = json!({"metadata": {"uid": pod.uid, "annotations": {annotations::REQUESTED: text}}});
        patch_pod(executor, pod, "", Patch::Merge, &patch).await?;
    }
    let Err(why) = set_amounts(executor, pod, &resize.amounts).await else {
        return Ok(());
    };
    // Older API servers do not decrease limits of memory: then the CPU is changed alone.
    let Some(parts) = resize.amounts.split() else {
        return Err(why);
    };
    let mut refused = Vec::new();
    for part in &parts {
        if let Err(why) = set_amounts(executor, pod, part).await {
            refused.push(why);
        }
    }
    match refused.is_empty() {
        true => Ok(()),
        false => Err(refused.join("; ")),
    }
}

async fn set_amounts(executor: &Executor, pod: &PodId, amounts: &NewAmounts) -> Result<(), String> {
    let mut patch = amounts.patch();
    patch["metadata"] = json!({"uid": pod.uid});
    patch_pod(executor, pod, "/resize", Patch::Strategic, &patch).await
}

/// Patches a pod, and retries temporary errors as long as this process leads.
async fn patch_pod(
    executor: &Executor,
    pod: &PodId,
    subresource: &str,
    kind: Patch,
    patch: &Value,
) -> Result<(), String> {
    let path = format!("{}{subresource}", pod.path());
    let mut wait = Duration::from_millis(50);
    loop {
        let permit = executor.requests.acquire().await;
        if !executor.leadership.holds() {
            return Err("this process does not lead any more".to_owned());
        }
        let result = executor.client.patch::<Value>(&path, kind, patch).await;
        drop(permit);
        match result {
            Ok(_) => return Ok(()),
            Err(error) if error.is_transient() => {
                tracing::warn!("{pod}: {error}");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(Duration::from_secs(5));
            }
            Err(Error::Refused { status, .. }) => return Err(status.message),
            Err(error) => return Err(error.to_string()),
        }
    }
}
