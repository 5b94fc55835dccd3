use super::*;

fn pod(container: Value, status: Value) -> Pod {
    let mut container = container;
    container["name"] = json!("main");
    let sidecar = json!({"name": "log", "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}});
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [sidecar, container]}, "status": status});
    serde_json::from_value(pod).unwrap()
}

fn size(container: Value, status: Value) -> PodSize {
    PodSize::of(&pod(container, status), &["nvidia.com/gpu".to_owned()]).unwrap()
}

fn guaranteed() -> Value {
    json!({"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "4", "memory": "8Gi"}}})
}

#[test]
fn the_container_with_the_gpus_gets_what_the_others_do_not_request() {
    let size = size(guaranteed(), json!({}));
    assert_eq!(size.desired, Share::new(4_500, 8_704));
    let patch = size.change_to(Share::new(2_500, 4_608), true).unwrap().patch();
    let amounts = json!({"cpu": "2000m", "memory": "4096Mi"});
    let resources = json!({"requests": amounts, "limits": amounts});
    assert_eq!(
        patch,
        json!({"spec": {"containers": [{"name": "main", "resources": resources}]}})
    );
    assert_eq!(size.change_to(size.desired, true), None);
}

#[test]
fn limits_stay_where_they_were_above_requests_and_are_not_added() {
    let burstable = json!({"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "6"},
        "requests": {"cpu": "4", "memory": "1Gi"}}});
    let size = size(burstable, json!({}));
    let patch = size.change_to(Share::new(8_500, 2_560), true).unwrap().patch();
    let resources = &patch["spec"]["containers"][0]["resources"];
    assert_eq!(resources["requests"], json!({"cpu": "8000m", "memory": "2048Mi"}));
    assert_eq!(resources["limits"], json!({"cpu": "10000m"}));
}

#[test]
fn a_resource_that_is_not_requested_is_not_changed() {
    let size = size(
        json!({"resources": {"limits": {"nvidia.com/gpu": "1"}}}),
        json!({}),
    );
    assert_eq!(size.change_to(Share::new(64_000, 65_536), true), None);
}

#[test]
fn a_running_container_that_a_change_would_restart_keeps_that_resource() {
    let mut container = guaranteed();
    container["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"},
        {"resourceName": "cpu", "restartPolicy": "NotRequired"}]);
    let size = size(container, json!({}));
    let target = Share::new(2_500, 4_608);
    let resources = |is_bound| {
        let patch = size.change_to(target, is_bound).unwrap().patch();
        patch["spec"]["containers"][0]["resources"]["requests"].clone()
    };
    assert_eq!(resources(true), json!({"cpu": "2000m"}));
    assert_eq!(resources(false), json!({"cpu": "2000m", "memory": "4096Mi"}));
    assert_eq!(size.kept(target), Some(("main", "memory")));
    assert_eq!(size.kept(Share::new(2_500, 8_704)), None);
}

#[test]
fn a_pod_holds_what_its_node_has_not_taken_back() {
    let running = |conditions: Value, accepted: &str, now: &str| {
        let status = json!({"conditions": conditions, "containerStatuses": [{"name": "main",
            "allocatedResources": {"cpu": accepted, "memory": "8Gi"},
            "resources": {"requests": {"cpu": now, "memory": "8Gi"}}}]});
        size(guaranteed(), status)
    };
    let granted = Share::new(4_500, 8_704);
    let shrinking = running(json!([]), "4", "16");
    assert_eq!(shrinking.held_beyond(granted), Share::new(12_000, 0));
    assert_eq!(
        running(json!([]), "4", "4").held_beyond(granted),
        Share::default()
    );
    assert_eq!(
        running(json!([]), "4005m", "4").held_beyond(granted),
        Share::default()
    );
    let pending = |reason: &str| json!([{"type": "PodResizePending", "status": "True", "reason": reason, "message": "m"}]);
    // A growth that can never be made holds nothing; one that waits may be made at any moment.
    assert_eq!(running(pending("Infeasible"), "2", "2").held.cpu_milli, 2_500);
    assert_eq!(running(pending("Deferred"), "2", "2").held.cpu_milli, 4_500);
    assert_eq!(
        running(pending("Infeasible"), "2", "2").trouble,
        Some(ResizeTrouble::Infeasible("m".to_owned()))
    );
}

#[test]
fn what_a_manifest_requested_is_written_once() {
    let mut pod = pod(guaranteed(), json!({}));
    let resources = ["nvidia.com/gpu".to_owned()];
    let before = PodSize::of(&pod, &resources).unwrap();
    let text = before.requested_text().unwrap();
    let patch = before.change_to(Share::new(9_000, 9_000), true).unwrap().patch();
    let amounts = &patch["spec"]["containers"][0]["resources"]["requests"];
    let requests = &mut pod.spec.containers[1].resources.requests;
    for resource in ["cpu", "memory"] {
        requests.insert(
            resource.to_owned(),
            amounts[resource].as_str().unwrap().to_owned(),
        );
    }
    pod.metadata
        .annotations
        .insert("dovetail.io/requested".to_owned(), text);
    let after = PodSize::of(&pod, &resources).unwrap();
    assert_eq!(after.requested, Some(before.desired));
    assert_eq!(after.desired, Share::new(9_000, 9_000));
    assert_eq!(after.requested_text(), None);
}
