//! What the API server does with a request to resize a pod.

use dovetail_kube::ResizePod;
use dovetail_kubeapi::Pod;

/// Returns the pod with its new requests and limits, and with the annotation that is written before.
pub(crate) fn resized(pod: &Pod, resize: &ResizePod) -> Pod {
    let mut pod = pod.clone();
    if let Some(text) = &resize.requested {
        let annotations = &mut pod.metadata.annotations;
        annotations.insert("dovetail.io/requested".to_owned(), text.clone());
    }
    let patch = resize.amounts.patch();
    let patch = &patch["spec"]["containers"][0];
    let mut containers = pod.spec.containers.iter_mut();
    let container = containers.find(|c| patch["name"] == c.name.as_str()).unwrap();
    for (key, amounts) in [
        ("requests", &mut container.resources.requests),
        ("limits", &mut container.resources.limits),
    ] {
        for (resource, amount) in patch["resources"][key].as_object().into_iter().flatten() {
            amounts.insert(resource.clone(), amount.as_str().unwrap().to_owned());
        }
    }
    pod
}
