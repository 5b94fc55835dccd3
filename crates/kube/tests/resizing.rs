//! CPU and memory of running pods, on a real API server: policies change them through `pods/resize`, and are refused where that
//! may not be used.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use dovetail_kube::{ClusterFeatures, PodResize};
use dovetail_kubelab::{Behaviour, Kubelet, RESIZE, Settings};
use serde_json::{Value, json};
use support::{API, Cluster, gang, pod};

/// Starts a cluster of one node with 4 GPUs, 48 cores and 512 GiB, whose kubelet takes a second to resize a pod.
fn cluster() -> Option<Cluster> {
    let mut cluster = Cluster::start(1, 4, &Settings::default())?;
    let behaviour = Behaviour {
        resize_delay: Duration::from_secs(1),
        ..Behaviour::default()
    };
    cluster.kubelet = Kubelet::start(cluster.lab.client(), behaviour);
    cluster.install_kinds();
    Some(cluster)
}

fn set_sizing(cluster: &Cluster, sizing: &str) {
    let path = format!("{API}/schedulingpolicies");
    let object = json!({"apiVersion": "dovetail.io/v1alpha1", "kind": "SchedulingPolicy", "metadata": {"name": "cluster"},
        "spec": {"policy": "fifo-backfill", "parts": {"sizing": sizing}}});
    let exists = cluster
        .lab
        .request("GET", &format!("{path}/cluster"), None)
        .unwrap()
        .status
        == 200;
    match exists {
        true => cluster.ask(
            "PATCH",
            &format!("{path}/cluster"),
            Some(&json!({"spec": object["spec"]})),
        ),
        false => cluster.ask("POST", &path, Some(&object)),
    };
    cluster.until("the policy is in use", || {
        let status = cluster.ask("GET", &format!("{path}/cluster"), None)["status"].clone();
        let state = cluster
            .handle
            .as_ref()
            .unwrap()
            .read(|state| state.policy().parts.get("sizing").cloned());
        status["accepted"] == true && state.as_deref() == Some(sizing)
    });
}

/// Creates a pod with one GPU, this many cores, 8 GiB, and a second container with one core.
fn create(cluster: &Cluster, name: &str, cores: u32, more: &Value) {
    let mut pod = pod(name, 1, &gang(name, 1, more));
    let amounts = json!({"nvidia.com/gpu": "1", "cpu": cores.to_string(), "memory": "8Gi"});
    pod["spec"]["containers"][0]["resources"] = json!({"limits": amounts});
    let beside = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let sidecar = json!({"name": "log", "image": "none", "resources": beside});
    pod["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .insert(0, sidecar);
    cluster.make(&pod);
}

/// Returns requests and limits of the container with the GPUs.
fn amounts(cluster: &Cluster, name: &str) -> Value {
    let pod = cluster.get(name).unwrap();
    assert_eq!(pod["spec"]["containers"][1]["name"], "main");
    assert_eq!(
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1",
        "the other container keeps its own"
    );
    assert_eq!(pod["status"]["qosClass"], "Guaranteed");
    pod["spec"]["containers"][1]["resources"].clone()
}

fn has(cluster: &Cluster, name: &str, cpu: &str, memory: &str) -> bool {
    let now = amounts(cluster, name);
    let is = |of: &str| now[of]["cpu"] == cpu && now[of]["memory"] == memory;
    is("requests") && is("limits")
}

#[test]
fn a_policy_changes_cpu_and_memory_of_running_pods() {
    let Some(mut cluster) = cluster() else { return };
    cluster.schedule();
    create(&cluster, "a-0", 4, &json!({}));
    cluster.until("it runs", || cluster.runs("a", 1));
    assert!(has(&cluster, "a-0", "4", "8Gi"));
    let before = cluster.get("a-0").unwrap();

    // A quarter of the node: 12 cores and 128 GiB, of which the other container has one each.
    set_sizing(&cluster, "proportional");
    cluster.until("it has a quarter of the node", || {
        has(&cluster, "a-0", "11", "127Gi")
    });
    let after = cluster.get("a-0").unwrap();
    for path in ["/metadata/uid", "/status/startTime", "/status/phase"] {
        assert_eq!(
            before.pointer(path),
            after.pointer(path),
            "{path}: it was not restarted"
        );
    }
    let requested = &after["metadata"]["annotations"]["dovetail.io/requested"];
    assert_eq!(*requested, r#"{"cpuMilli":5000,"memoryMib":9216}"#);

    // A pod that starts now is bound with its quarter; it never ran with less.
    create(&cluster, "b-0", 2, &json!({}));
    cluster.until("it runs", || cluster.runs("b", 1));
    assert!(
        has(&cluster, "b-0", "11", "127Gi"),
        "{}",
        amounts(&cluster, "b-0")
    );

    // Without such a policy a pod keeps what it was bound with, and what was added later goes to pods that wait for it.
    set_sizing(&cluster, "rigid");
    create(&cluster, "c-0", 30, &json!({}));
    cluster.until("it runs", || cluster.runs("c", 1));
    assert!(has(&cluster, "c-0", "30", "8Gi") && has(&cluster, "a-0", "4", "8Gi"));
    assert!(has(&cluster, "b-0", "11", "127Gi"));
    assert_eq!(cluster.kubelet.rejected(), Vec::<String>::new());
}

#[test]
fn the_next_leader_knows_what_pods_were_granted() {
    let Some(mut cluster) = cluster() else { return };
    cluster.schedule();
    create(&cluster, "a-0", 4, &json!({}));
    cluster.until("it runs", || cluster.runs("a", 1));
    set_sizing(&cluster, "proportional");
    cluster.until("it has a quarter of the node", || {
        has(&cluster, "a-0", "11", "127Gi")
    });
    cluster.schedule();
    cluster.until("it is adopted", || {
        let handle = cluster.handle.as_ref().unwrap();
        handle.read(|state| {
            state
                .unfinished_jobs()
                .filter(|job| job.state.holds_gpus())
                .count()
        }) == 1
    });
    let handle = cluster.handle.as_ref().unwrap();
    let (given, requested) = handle.read(|state| {
        let job = state.job(1).unwrap();
        let share = &job.attempt().unwrap().allocation.shares[0];
        (share.cpu_milli, job.request.cpus_per_gpu.milli())
    });
    assert_eq!((given, requested), (12_000, 5_000));
}

#[test]
fn a_pod_that_its_node_does_not_resize_is_reported() {
    let Some(mut cluster) = cluster() else { return };
    cluster.schedule();
    create(&cluster, "a-0", 4, &json!({RESIZE: "infeasible"}));
    cluster.until("it runs", || cluster.runs("a", 1));
    set_sizing(&cluster, "proportional");
    cluster.until("an event says so", || {
        cluster.events().contains("n0 can never resize pod")
    });
    assert!(cluster.runs("a", 1));
}

#[test]
fn what_the_cluster_lacks_is_found_out() {
    let Some(cluster) = cluster() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let features = |client| runtime.block_on(ClusterFeatures::discover(&client)).unwrap();
    assert_eq!(features(cluster.lab.client()), ClusterFeatures::ALL);
    // An account that was installed before the permission was part of the ClusterRole.
    let account = "old-scheduler";
    let role = json!({"metadata": {"name": "old"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    cluster.ask("POST", &format!("{rbac}/clusterroles"), Some(&role));
    let binding = json!({"metadata": {"name": "old"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "old"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": account}]});
    cluster.ask("POST", &format!("{rbac}/clusterrolebindings"), Some(&binding));
    let identity = cluster.lab.authority().user(account, &[]).unwrap();
    let old = features(cluster.lab.client_as(&identity));
    assert_eq!(old.resize, PodResize::Forbidden);
}
