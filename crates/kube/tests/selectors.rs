//! Node selectors, required affinity and taints, against a real API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use dovetail_kubelab::Settings;
use serde_json::{Value, json};
use support::{Cluster, pod};

fn patch_node(cluster: &Cluster, node: &str, body: &Value) {
    let answer = cluster
        .lab
        .request("PATCH", &format!("/api/v1/nodes/{node}"), Some(body))
        .unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// Creates a pod with further fields in its spec.
fn create(cluster: &Cluster, name: &str, gpus: u32, spec: &Value) {
    let mut pod = pod(name, gpus, &json!({}));
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    cluster.ask("POST", &cluster.pods_path(), Some(&pod));
}

fn conditions(cluster: &Cluster, name: &str) -> String {
    cluster.get(name).unwrap()["status"]["conditions"].to_string()
}

#[test]
fn pods_run_only_on_nodes_that_match() {
    let Some(mut cluster) = Cluster::start(3, 4, &Settings::default()) else {
        return;
    };
    patch_node(&cluster, "n1", &json!({"metadata": {"labels": {"zone": "a"}}}));
    let team = json!({"spec": {"taints": [{"key": "team", "value": "vision", "effect": "NoSchedule"}]}});
    patch_node(&cluster, "n2", &team);
    cluster.schedule();

    // Two pods fill the untainted nodes, and a third waits although a node is free.
    let zone = json!({"nodeSelector": {"zone": "a"}});
    create(&cluster, "in-zone", 4, &zone);
    cluster.until("the pod is in its zone", || {
        cluster.node_of("in-zone").as_deref() == Some("n1")
    });
    create(&cluster, "plain", 4, &json!({}));
    cluster.until("a plain pod is on the plain node", || {
        cluster.node_of("plain").as_deref() == Some("n0")
    });
    create(&cluster, "second", 2, &json!({}));
    cluster.until("the next pod shows which nodes match", || {
        conditions(&cluster, "second").contains("allows 2 nodes, on which 0 GPUs are free")
    });
    assert_eq!(cluster.node_of("second"), None);
    let tolerates = json!({"tolerations": [{"key": "team", "operator": "Equal", "value": "vision",
        "effect": "NoSchedule"}]});
    create(&cluster, "of-the-team", 2, &tolerates);
    cluster.until("a pod that tolerates the taint runs there", || {
        cluster.node_of("of-the-team").as_deref() == Some("n2")
    });

    // No node matches until one gets the label.
    let nowhere = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["nvme"]}]}]}}},
        "tolerations": [{"operator": "Exists"}]});
    create(&cluster, "with-disk", 1, &nowhere);
    cluster.until("it shows that no node matches", || {
        conditions(&cluster, "with-disk").contains("none of the 3 nodes with GPUs may take pod with-disk")
    });
    patch_node(&cluster, "n2", &json!({"metadata": {"labels": {"disk": "nvme"}}}));
    cluster.until("it runs on the labelled node", || {
        cluster.node_of("with-disk").as_deref() == Some("n2")
    });

    // Without the taint, one GPU of the node is free, and then two.
    patch_node(&cluster, "n2", &json!({"spec": {"taints": null}}));
    cluster.until("one more GPU is needed", || {
        conditions(&cluster, "second").contains("asks for 2 GPUs, 1 ")
    });
    cluster.ask("DELETE", &format!("{}/with-disk", cluster.pods_path()), None);
    cluster.until("it starts on the node without the taint", || {
        cluster.node_of("second").as_deref() == Some("n2")
    });
    cluster.check_gpus();
}

#[test]
fn a_gang_runs_on_matching_nodes_and_a_new_taint_stops_no_pod() {
    let Some(mut cluster) = Cluster::start(4, 2, &Settings::default()) else {
        return;
    };
    for node in ["n1", "n3"] {
        patch_node(&cluster, node, &json!({"metadata": {"labels": {"pool": "big"}}}));
    }
    cluster.schedule();
    let mut pods: Vec<Value> = (0..2)
        .map(|i| pod(&format!("g-{i}"), 2, &support::gang("g", 2, &json!({}))))
        .collect();
    for pod in &mut pods {
        pod["spec"]["nodeSelector"] = json!({"pool": "big"});
        cluster.ask("POST", &cluster.pods_path(), Some(pod));
    }
    cluster.until("the gang runs", || {
        (0..2).all(|i| cluster.phase(&format!("g-{i}")) == "Running")
    });
    let mut nodes: Vec<_> = (0..2)
        .filter_map(|i| cluster.node_of(&format!("g-{i}")))
        .collect();
    nodes.sort();
    assert_eq!(nodes, ["n1", "n3"]);
    // A NoSchedule taint does not stop running pods.
    let taint = json!({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}});
    patch_node(&cluster, "n1", &taint);
    cluster.schedule();
    create(&cluster, "one", 2, &json!({}));
    cluster.until("another pod starts elsewhere", || {
        cluster.node_of("one").is_some()
    });
    assert!(["n0", "n2"].contains(&cluster.node_of("one").unwrap().as_str()));
    assert!((0..2).all(|i| cluster.phase(&format!("g-{i}")) == "Running"));
    cluster.check_gpus();
}
