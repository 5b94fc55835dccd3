//! Pods on simulated nodes run, end and are removed like on real ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dovetail_kubelab::{
    Behaviour, Component, EXIT_CODE, Kubelet, Lab, NodeShape, RUN_SECONDS, Scheduler, Settings,
};
use serde_json::{Value, json};

/// Returns a lab with ten nodes of eight GPUs and without controllers, for the tests that need no more.
fn lab() -> Option<&'static (Lab, Kubelet)> {
    static LAB: OnceLock<Option<(Lab, Kubelet)>> = OnceLock::new();
    let start = || {
        let lab = Lab::start_or_skip(&Settings::default())?;
        lab.create_nodes("n", 10, &NodeShape::with_gpus(8)).unwrap();
        let kubelet = Kubelet::start(lab.client(), Behaviour::default());
        Some((lab, kubelet))
    };
    LAB.get_or_init(start).as_ref()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn request(lab: &Lab, method: &str, path: &str, body: Option<&Value>) -> Value {
    let response = lab.request(method, path, body).unwrap();
    assert!(response.status < 300, "{method} {path}: {}", response.body);
    response.body
}

/// Creates a pod with GPUs, binds it to a node and returns its path.
fn bound(lab: &Lab, space: &str, name: &str, node: &str, annotations: &Value) -> String {
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let pod = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}});
    request(lab, "POST", &pods, Some(&pod));
    let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
    request(lab, "POST", &format!("{pods}/{name}/binding"), Some(&binding));
    format!("{pods}/{name}")
}

fn phase(lab: &Lab, pod: &str) -> String {
    request(lab, "GET", pod, None)["status"]["phase"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_pod_runs_and_ends_as_its_annotations_specify() {
    let Some((lab, kubelet)) = lab() else { return };
    let space = lab.namespace("ends").unwrap();
    let succeeds = bound(lab, &space, "succeeds", "n0", &json!({RUN_SECONDS: "0.5"}));
    let fails = bound(
        lab,
        &space,
        "fails",
        "n1",
        &json!({RUN_SECONDS: "0.5", EXIT_CODE: "7"}),
    );
    let runs = bound(lab, &space, "runs", "n2", &json!({}));
    until("one pod succeeds", || phase(lab, &succeeds) == "Succeeded");
    until("one pod fails", || phase(lab, &fails) == "Failed");
    until("one pod runs", || phase(lab, &runs) == "Running");
    let failed = request(lab, "GET", &fails, None);
    let end = &failed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(end["exitCode"], 7);
    let running = request(lab, "GET", &runs, None);
    let has_condition = |kind: &str| {
        let all = running["status"]["conditions"].as_array().unwrap();
        all.iter().any(|c| c["type"] == kind && c["status"] == "True")
    };
    assert!(
        has_condition("Ready") && has_condition("PodScheduled"),
        "{running}"
    );
    assert_ne!(running["status"]["podIP"], Value::Null);
    // A running pod ends when it gets an exit code.
    let patch = json!({"metadata": {"annotations": {EXIT_CODE: "0"}}});
    request(lab, "PATCH", &runs, Some(&patch));
    until("the running pod succeeds", || phase(lab, &runs) == "Succeeded");
    assert_eq!(kubelet.rejected(), [""; 0]);
}

#[test]
fn a_deleted_pod_is_removed_when_its_containers_have_ended() {
    let Some((lab, _)) = lab() else { return };
    let space = lab.namespace("goes").unwrap();
    let pod = bound(lab, &space, "a", "n3", &json!({}));
    until("the pod runs", || phase(lab, &pod) == "Running");
    let deleted = request(lab, "DELETE", &pod, None);
    assert_ne!(deleted["metadata"]["deletionTimestamp"], Value::Null);
    until("the pod is removed", || {
        lab.request("GET", &pod, None).unwrap().status == 404
    });
}

#[test]
fn pods_of_a_dead_node_do_not_change_until_it_is_revived() {
    let Some((lab, kubelet)) = lab() else { return };
    let space = lab.namespace("dead").unwrap();
    kubelet.kill_node("n4");
    let waits = bound(lab, &space, "waits", "n4", &json!({}));
    let runs = bound(lab, &space, "runs", "n5", &json!({}));
    until("the pod on the other node runs", || {
        phase(lab, &runs) == "Running"
    });
    request(lab, "DELETE", &waits, None);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(phase(lab, &waits), "Pending");
    kubelet.revive_node("n4");
    until("the pod is removed", || {
        lab.request("GET", &waits, None).unwrap().status == 404
    });
}

#[test]
fn the_kubelet_continues_after_an_outage_of_the_api_server() {
    let Some(lab) = Lab::start_or_skip(&Settings::default()) else {
        return;
    };
    lab.create_nodes("n", 1, &NodeShape::with_gpus(8)).unwrap();
    let kubelet = Kubelet::start(lab.client(), Behaviour::default());
    let space = lab.namespace("away").unwrap();
    let pod = bound(&lab, &space, "a", "n0", &json!({RUN_SECONDS: "1"}));
    until("the pod runs", || phase(&lab, &pod) == "Running");
    lab.kill(Component::ApiServer);
    std::thread::sleep(Duration::from_millis(1500));
    lab.launch(Component::ApiServer).unwrap();
    until("the pod succeeds", || phase(&lab, &pod) == "Succeeded");
    let other = bound(&lab, &space, "b", "n0", &json!({RUN_SECONDS: "0"}));
    until("the next pod succeeds", || phase(&lab, &other) == "Succeeded");
    assert_eq!(kubelet.rejected(), [""; 0]);
}

#[test]
fn upstream_runs_a_gang_job_to_completion_and_detects_a_dead_node() {
    let mut settings = Settings::default()
        .with_gangs()
        .with_controllers(&[
            "job-controller",
            "garbage-collector-controller",
            "namespace-controller",
            "podgroup-protection-controller",
            "node-lifecycle-controller",
        ])
        .with_scheduler(Scheduler::default());
    settings.feature_gates.push("WorkloadWithJob=true".to_owned());
    settings.controller_manager = ["--node-monitor-grace-period=4s", "--node-monitor-period=500ms"]
        .map(str::to_owned)
        .to_vec();
    let Some(lab) = Lab::start_or_skip(&settings) else {
        return;
    };
    lab.create_nodes("n", 5, &NodeShape::with_gpus(8)).unwrap();
    let behaviour = Behaviour {
        heartbeat: Some(Duration::from_millis(500)),
        ..Behaviour::default()
    };
    let kubelet = Kubelet::start(lab.client(), behaviour);
    let space = lab.namespace("job").unwrap();
    let job = json!({"metadata": {"name": "train"}, "spec": {"completionMode": "Indexed", "completions": 4,
        "parallelism": 4, "template": {"metadata": {"annotations": {RUN_SECONDS: "1"}}, "spec": {"restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}}});
    let jobs = format!("/apis/batch/v1/namespaces/{space}/jobs");
    request(&lab, "POST", &jobs, Some(&job));
    until("the job is complete", || {
        request(&lab, "GET", &format!("{jobs}/train"), None)["status"]["succeeded"] == 4
    });
    let pods = request(&lab, "GET", &format!("/api/v1/namespaces/{space}/pods"), None);
    let first = &pods["items"][0];
    assert_ne!(first["spec"]["schedulingGroup"]["podGroupName"], Value::Null);

    let ready = |node: &str| {
        let node = request(&lab, "GET", &format!("/api/v1/nodes/{node}"), None);
        let all = node["status"]["conditions"].as_array().unwrap();
        let ready = all.iter().find(|c| c["type"] == "Ready").unwrap();
        ready["status"].as_str().unwrap().to_owned()
    };
    kubelet.kill_node("n4");
    until("the node is unknown", || ready("n4") == "Unknown");
    until("the other node is ready", || ready("n3") == "True");
    kubelet.revive_node("n4");
    until("the node is ready again", || ready("n4") == "True");
    request(&lab, "DELETE", &format!("/api/v1/namespaces/{space}"), None);
    until("the namespace is removed", || {
        lab.request("GET", &format!("/api/v1/namespaces/{space}"), None)
            .unwrap()
            .status
            == 404
    });
    assert_eq!(kubelet.rejected(), [""; 0]);
}
