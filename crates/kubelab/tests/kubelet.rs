//! Pods that are bound to nodes which are only an object run, end and go as on real ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dovetail_kubelab::{
    Behaviour, EXIT_CODE, Kubelet, Lab, NodeShape, Part, RUN_SECONDS, Scheduler, Settings,
};
use serde_json::{Value, json};

/// A lab with ten nodes of eight GPUs and without controllers, for all tests that need no more.
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

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ask(lab: &Lab, method: &str, path: &str, body: Option<&Value>) -> Value {
    let answer = lab.request(method, path, body).unwrap();
    assert!(answer.status < 300, "{method} {path}: {}", answer.body);
    answer.body
}

/// A pod that asks for GPUs, bound to a node at once.
fn bound(lab: &Lab, space: &str, name: &str, node: &str, annotations: &Value) -> String {
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let pod = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}});
    ask(lab, "POST", &pods, Some(&pod));
    let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
    ask(lab, "POST", &format!("{pods}/{name}/binding"), Some(&binding));
    format!("{pods}/{name}")
}

fn phase(lab: &Lab, pod: &str) -> String {
    ask(lab, "GET", pod, None)["status"]["phase"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_pod_runs_and_ends_as_its_annotations_say() {
    let Some((lab, kubelet)) = lab() else { return };
    let space = lab.namespace("ends").unwrap();
    let well = bound(lab, &space, "well", "n0", &json!({RUN_SECONDS: "0.5"}));
    let badly = bound(
        lab,
        &space,
        "badly",
        "n1",
        &json!({RUN_SECONDS: "0.5", EXIT_CODE: "7"}),
    );
    let on = bound(lab, &space, "on", "n2", &json!({}));
    until("one succeeds", || phase(lab, &well) == "Succeeded");
    until("one fails", || phase(lab, &badly) == "Failed");
    until("one runs", || phase(lab, &on) == "Running");
    let failed = ask(lab, "GET", &badly, None);
    let end = &failed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(end["exitCode"], 7);
    let running = ask(lab, "GET", &on, None);
    let is = |kind: &str| {
        let all = running["status"]["conditions"].as_array().unwrap();
        all.iter().any(|c| c["type"] == kind && c["status"] == "True")
    };
    assert!(is("Ready") && is("PodScheduled"), "{running}");
    assert_ne!(running["status"]["podIP"], Value::Null);
    // It is told to end while it runs.
    let told = json!({"metadata": {"annotations": {EXIT_CODE: "0"}}});
    ask(lab, "PATCH", &on, Some(&told));
    until("it ends", || phase(lab, &on) == "Succeeded");
    assert_eq!(kubelet.refused(), [""; 0]);
}

#[test]
fn a_pod_that_is_deleted_goes_when_its_containers_have_ended() {
    let Some((lab, _)) = lab() else { return };
    let space = lab.namespace("goes").unwrap();
    let pod = bound(lab, &space, "a", "n3", &json!({}));
    until("it runs", || phase(lab, &pod) == "Running");
    let going = ask(lab, "DELETE", &pod, None);
    assert_ne!(going["metadata"]["deletionTimestamp"], Value::Null);
    until("it is gone", || {
        lab.request("GET", &pod, None).unwrap().status == 404
    });
}

#[test]
fn nothing_happens_on_a_node_that_was_killed_until_it_is_back() {
    let Some((lab, kubelet)) = lab() else { return };
    let space = lab.namespace("dead").unwrap();
    kubelet.kill_node("n4");
    let waits = bound(lab, &space, "waits", "n4", &json!({}));
    let runs = bound(lab, &space, "runs", "n5", &json!({}));
    until("the other runs", || phase(lab, &runs) == "Running");
    ask(lab, "DELETE", &waits, None);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(phase(lab, &waits), "Pending");
    kubelet.revive_node("n4");
    until("it is gone", || {
        lab.request("GET", &waits, None).unwrap().status == 404
    });
}

#[test]
fn an_api_server_that_is_away_for_a_while_misses_nothing() {
    let Some(lab) = Lab::start_or_skip(&Settings::default()) else {
        return;
    };
    lab.create_nodes("n", 1, &NodeShape::with_gpus(8)).unwrap();
    let kubelet = Kubelet::start(lab.client(), Behaviour::default());
    let space = lab.namespace("away").unwrap();
    let pod = bound(&lab, &space, "a", "n0", &json!({RUN_SECONDS: "1"}));
    until("it runs", || phase(&lab, &pod) == "Running");
    lab.kill(Part::ApiServer);
    std::thread::sleep(Duration::from_millis(1500));
    lab.launch(Part::ApiServer).unwrap();
    until("it succeeds", || phase(&lab, &pod) == "Succeeded");
    let other = bound(&lab, &space, "b", "n0", &json!({RUN_SECONDS: "0"}));
    until("the next succeeds", || phase(&lab, &other) == "Succeeded");
    assert_eq!(kubelet.refused(), [""; 0]);
}

#[test]
fn upstream_runs_a_gang_of_a_job_from_end_to_end_and_notices_a_dead_node() {
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
    ask(&lab, "POST", &jobs, Some(&job));
    until("the job is complete", || {
        ask(&lab, "GET", &format!("{jobs}/train"), None)["status"]["succeeded"] == 4
    });
    let pods = ask(&lab, "GET", &format!("/api/v1/namespaces/{space}/pods"), None);
    let first = &pods["items"][0];
    assert_ne!(first["spec"]["schedulingGroup"]["podGroupName"], Value::Null);

    let ready = |node: &str| {
        let node = ask(&lab, "GET", &format!("/api/v1/nodes/{node}"), None);
        let all = node["status"]["conditions"].as_array().unwrap();
        let ready = all.iter().find(|c| c["type"] == "Ready").unwrap();
        ready["status"].as_str().unwrap().to_owned()
    };
    kubelet.kill_node("n4");
    until("nothing is known of the node", || ready("n4") == "Unknown");
    until("it is known of the others", || ready("n3") == "True");
    kubelet.revive_node("n4");
    until("the node is back", || ready("n4") == "True");
    ask(&lab, "DELETE", &format!("/api/v1/namespaces/{space}"), None);
    until("the namespace is empty and gone", || {
        lab.request("GET", &format!("/api/v1/namespaces/{space}"), None)
            .unwrap()
            .status
            == 404
    });
    assert_eq!(kubelet.refused(), [""; 0]);
}
