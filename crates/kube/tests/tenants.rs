//! Virtual clusters on a real API server: cells, guaranteed GPUs, borrowers, elastic pods, drained nodes, changed definitions, and
//! missed events.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use dovetail_kubelab::{Component, RUN_SECONDS, Settings};
use serde_json::{Value, json};
use support::{API, Cluster, pod};

/// Four nodes of four GPUs, in pools of two; each of the virtual clusters `a` and `b` owns a pool.
fn with_pools(settings: &Settings) -> Option<Cluster> {
    let cluster = Cluster::start(4, 4, settings)?;
    cluster.install_kinds();
    let pool = |one: &str, two: &str| json!({"cellType": "POOL", "cellChildren": [{"cellAddress": one}, {"cellAddress": two}]});
    let spec = json!({
        "cellTypes": {"NODE": {"childCellType": "GPU", "childCellNumber": 4, "isNodeLevel": true},
            "POOL": {"childCellType": "NODE", "childCellNumber": 2}},
        "physicalCells": [pool("n0", "n1"), pool("n2", "n3")]});
    let topology = json!({"apiVersion": "dovetail.io/v1alpha1", "kind": "ClusterTopology",
        "metadata": {"name": "main"}, "spec": spec});
    cluster.ask("POST", &format!("{API}/clustertopologies"), Some(&topology));
    for name in ["a", "b"] {
        cluster.virtual_cluster(
            name,
            &json!({"virtualCells": [{"cellType": "POOL", "cellNumber": 1}]}),
        );
    }
    Some(cluster)
}

/// Annotations of a pod of a virtual cluster.
fn of(cluster: &str, priority: i32) -> Value {
    json!({"dovetail.io/virtual-cluster": cluster, "dovetail.io/priority": priority.to_string()})
}

/// Returns the pool of the nodes; `None` if they are in both.
fn pool(nodes: &std::collections::BTreeSet<String>) -> Option<u8> {
    let of_one = |name: &String| u8::from(name == "n2" || name == "n3");
    let pools: std::collections::BTreeSet<u8> = nodes.iter().map(of_one).collect();
    (pools.len() == 1).then(|| pools.into_iter().next()).flatten()
}

#[test]
fn cells_are_reserved_for_their_virtual_cluster() {
    let Some(mut cluster) = with_pools(&Settings::default()) else {
        return;
    };
    cluster.schedule();
    // Eight GPUs in four pods run in the pool that `a` owns.
    cluster.gang("first", 4, 2, &of("a", 0));
    cluster.until("the gang runs", || cluster.runs("first", 4));
    let own = cluster.nodes_of("first", 4);
    assert!(own.len() == 2 && pool(&own).is_some(), "{}", cluster.picture());

    // The other pool is free, but `b` owns it: `a` waits and is told why.
    cluster.gang("second", 1, 1, &of("a", 0));
    cluster.until("it shows why it waits", || {
        cluster.why("second-0").contains(": queued")
    });
    cluster.gang("theirs", 2, 4, &of("b", 0));
    cluster.until("the owner gets its pool", || cluster.runs("theirs", 2));
    let theirs = cluster.nodes_of("theirs", 2);
    assert_eq!(pool(&theirs), pool(&own).map(|p| 1 - p), "{}", cluster.picture());
    assert_eq!(cluster.node_of("second-0"), None);
    cluster.until("the status shows the usage", || {
        let (a, b) = (cluster.vc_status("a"), cluster.vc_status("b"));
        a["used"] == 8 && a["waiting"] == 1 && b["used"] == 8 && b["running"] == 1
    });

    // `b` keeps a cell that it does not use.
    cluster.delete("theirs-0");
    cluster.delete("theirs-1");
    cluster.until("the gang has ended", || cluster.vc_status("b")["used"] == 0);
    assert_eq!(cluster.node_of("second-0"), None, "{}", cluster.picture());
    for i in 0..4 {
        cluster.delete(&format!("first-{i}"));
    }
    cluster.until("the waiting pod gets a GPU of its own pool", || {
        cluster.runs("second", 1)
    });
    cluster.check_gpus();
}

#[test]
fn borrowers_use_cells_of_others_and_are_preempted() {
    let Some(mut cluster) = with_pools(&Settings::default()) else {
        return;
    };
    cluster.schedule();
    cluster.gang("mine", 2, 4, &of("a", 0));
    cluster.until("the pool of a is in use", || cluster.runs("mine", 2));
    // A finalizer keeps the pods, so that their annotations can be read after they have ended.
    for i in 0..2 {
        let annotations = support::gang("x", 2, &of("a", -1));
        let mut one = pod(&format!("x-{i}"), 4, &annotations);
        one["metadata"]["finalizers"] = json!(["example.com/kept"]);
        cluster.make(&one);
    }
    cluster.until("a borrows the pool of b", || cluster.runs("x", 2));
    let place = cluster.nodes_of("x", 2);
    cluster.gang("owner", 2, 4, &of("b", 0));
    cluster.until("the owner gets its pool", || cluster.runs("owner", 2));
    assert_eq!(cluster.nodes_of("owner", 2), place);
    assert!(cluster.runs("mine", 2), "{}", cluster.picture());
    let message = format!("preempted by {}/owner", cluster.space);
    for i in 0..2 {
        let pod = cluster.get(&format!("x-{i}")).unwrap();
        assert_eq!(pod["status"]["phase"], "Failed", "{}", cluster.picture());
        let by = pod["metadata"]["annotations"]["dovetail.io/preempted-by"].as_str();
        assert!(by.unwrap().contains(&message), "{by:?}");
    }
    cluster.until("the conditions have the reason after the eviction", || {
        (0..2).all(|i| {
            let pod = cluster.get(&format!("x-{i}")).unwrap();
            let mut conditions = pod["status"]["conditions"].as_array().unwrap().iter();
            conditions.any(|c| c["type"] == "DisruptionTarget" && c["message"].to_string().contains(&message))
        })
    });
    let events = cluster.ask(
        "GET",
        &format!("/api/v1/namespaces/{}/events", cluster.space),
        None,
    );
    let told = |pod: String| {
        events["items"].as_array().unwrap().iter().any(|e| {
            e["reason"] == "Preempted"
                && e["involvedObject"]["name"] == pod
                && e["message"].to_string().contains(&message)
        })
    };
    assert!((0..2).all(|i| told(format!("x-{i}"))), "{events}");
    cluster.check_gpus();
    // The pods are released, the owner ends, and its pool can be borrowed again.
    for i in 0..2 {
        let path = format!("{}/x-{i}", cluster.pods_path());
        cluster.ask("PATCH", &path, Some(&json!({"metadata": {"finalizers": null}})));
    }
    (0..2).for_each(|i| cluster.delete(&format!("owner-{i}")));
    cluster.gang("z", 2, 4, &of("a", -1));
    cluster.until("the pool is borrowed again", || cluster.runs("z", 2));
    cluster.check_gpus();
}

#[test]
fn a_gang_starts_with_its_minimum() {
    let Some(mut cluster) = Cluster::start(2, 2, &Settings::default()) else {
        return;
    };
    cluster.schedule();
    let annotations = support::gang("g", 4, &json!({"dovetail.io/gang-min": "2"}));
    cluster.pod("g-0", 1, &annotations);
    cluster.until("one pod is too few", || {
        cluster.why("g-0").contains("has 1 of 2 pods")
    });
    cluster.pod("g-1", 1, &annotations);
    cluster.until("two pods are enough", || cluster.runs("g", 2));
    // The third pod starts when there is room; the fourth is queued.
    cluster.pod("g-2", 1, &annotations);
    cluster.until("the third runs", || cluster.runs("g", 3));
    cluster.pod("other", 1, &json!({}));
    cluster.until("another pod runs", || cluster.phase("other") == "Running");
    cluster.pod("g-3", 1, &annotations);
    cluster.until("the fourth is queued by itself", || {
        cluster.why("g-3").contains("job 4: ")
    });
    // A restart changes nothing.
    cluster.halt();
    cluster.schedule();
    cluster.until("three run, and the fourth is queued", || {
        cluster.runs("g", 3) && cluster.why("g-3").contains("job")
    });
    assert_eq!(cluster.node_of("g-3"), None, "{}", cluster.picture());
    // The waiting elastic pod gets the vacant slot of the gang.
    let place = cluster.node_of("g-0");
    cluster.delete("g-0");
    cluster.until("the fourth replaces the first", || {
        cluster.phase("g-3") == "Running"
    });
    assert_eq!(cluster.node_of("g-3"), place);
    cluster.check_gpus();
}

#[test]
fn gangs_of_a_drained_node_restart_elsewhere() {
    let settings = Settings::default().with_controllers(&["job-controller", "garbage-collector-controller"]);
    let Some(mut cluster) = Cluster::start(3, 2, &settings) else {
        return;
    };
    cluster.schedule();
    let job = |name: &str, pods: u32, gpus: u32| {
        let mut template = pod("x", gpus, &json!({}));
        template["metadata"].as_object_mut().unwrap().remove("name");
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 20,
                "template": template}});
        let path = format!("/apis/batch/v1/namespaces/{}/jobs", cluster.space);
        cluster.ask("POST", &path, Some(&job));
    };
    let running = |name: &str| -> Vec<String> {
        let all = cluster.all().into_iter();
        let mine = all.filter(|p| p["metadata"]["labels"]["job-name"] == name);
        mine.filter(|p| p["status"]["phase"] == "Running" && p["metadata"]["deletionTimestamp"].is_null())
            .map(|p| p["spec"]["nodeName"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    job("gang", 2, 2);
    cluster.until("the gang runs on two nodes", || running("gang").len() == 2);
    let drained = running("gang")[0].clone();
    // Like `kubectl drain`.
    let node = format!("/api/v1/nodes/{drained}");
    cluster.ask("PATCH", &node, Some(&json!({"spec": {"unschedulable": true}})));
    for pod in cluster
        .all()
        .iter()
        .filter(|p| p["spec"]["nodeName"] == drained.as_str())
    {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let path = format!("{}/{name}/eviction", cluster.pods_path());
        cluster.ask("POST", &path, Some(&eviction));
    }
    cluster.until("the gang runs again without the node", || {
        let nodes = running("gang");
        nodes.len() == 2 && !nodes.contains(&drained)
    });
    cluster.check_gpus();
    // The node has all its GPUs when it is back.
    cluster.ask("PATCH", &node, Some(&json!({"spec": {"unschedulable": false}})));
    cluster.pod("after", 2, &json!({}));
    cluster.until("the node is used again", || {
        cluster.node_of("after").as_deref() == Some(&drained)
    });
    assert_eq!(running("gang").len(), 2);
    cluster.check_gpus();
}

#[test]
fn virtual_clusters_change_while_jobs_run() {
    let Some(mut cluster) = Cluster::start(2, 4, &Settings::default()) else {
        return;
    };
    cluster.install_kinds();
    for name in ["a", "b"] {
        cluster.virtual_cluster(name, &json!({"guaranteedGpus": 4}));
    }
    cluster.schedule();
    cluster.gang("one", 1, 4, &of("a", 0));
    cluster.gang("two", 1, 2, &of("a", 0));
    cluster.until("the first runs, and the second shows why it waits", || {
        cluster.runs("one", 1) && cluster.why("two-0").contains(": queued")
    });
    let edit = |name: &str, spec: &Value| {
        let path = format!("{API}/virtualclusters/{name}");
        let object = cluster.ask("PATCH", &path, Some(&json!({"spec": spec})));
        object["metadata"]["generation"].clone()
    };

    // An invalid edit is reported, and the previous definition stays in use.
    let generation = edit("a", &json!({"guaranteedGpus": 8, "order": "fastest"}));
    cluster.until("it is rejected with a message", || {
        let status = cluster.vc_status("a");
        status["observedGeneration"] == generation
            && status["accepted"] == false
            && status["message"].to_string().contains("fastest")
    });
    assert_eq!(cluster.node_of("two-0"), None, "{}", cluster.picture());
    assert!(cluster.runs("one", 1));
    // The previous definition applies to new jobs too.
    cluster.gang("theirs", 1, 4, &of("b", 0));
    cluster.until("b has its four GPUs", || cluster.runs("theirs", 1));

    // A valid edit: GPUs of `b` become GPUs of `a` when they are free.
    edit("b", &json!({"guaranteedGpus": 2}));
    let generation = edit("a", &json!({"guaranteedGpus": 6, "order": null}));
    cluster.until("it is in use", || {
        let status = cluster.vc_status("a");
        status["observedGeneration"] == generation && status["accepted"] == true
    });
    assert!(cluster.runs("one", 1), "nothing was restarted");
    cluster.delete("theirs-0");
    cluster.until("the share moved", || cluster.runs("two", 1));
    cluster.gang("more", 1, 3, &of("b", 0));
    cluster.until("b has fewer GPUs now", || {
        cluster.why("more-0").contains("guaranteed 2") && cluster.node_of("more-0").is_none()
    });
    cluster.check_gpus();
}

#[test]
fn missed_changes_are_found_by_a_new_list() {
    let Some(mut cluster) = Cluster::start(2, 4, &Settings::default()) else {
        return;
    };
    cluster.install_kinds();
    cluster.proxy = Some(cluster.lab.proxy().unwrap());
    cluster.schedule();
    cluster.gang("stays", 2, 1, &json!({}));
    cluster.gang("goes", 2, 2, &json!({}));
    cluster.gang("ends", 2, 1, &json!({RUN_SECONDS: "3600"}));
    cluster.until("all run", || {
        ["stays", "goes", "ends"].iter().all(|g| cluster.runs(g, 2))
    });
    let before = cluster.nodes_of("stays", 2);
    let seen = cluster.ask("GET", &cluster.pods_path(), None)["metadata"]["resourceVersion"].clone();

    // Without a watch, pods are replaced under the same names and a node is added.
    let proxy = &cluster.proxy.as_ref().unwrap().0;
    proxy.cut();
    for i in 0..2 {
        cluster.ask(
            "DELETE",
            &format!("{}/goes-{i}?gracePeriodSeconds=0", cluster.pods_path()),
            None,
        );
        let path = format!("{}/ends-{i}", cluster.pods_path());
        let ends = json!({"metadata": {"annotations": {RUN_SECONDS: "0"}}});
        cluster.ask("PATCH", &path, Some(&ends));
    }
    cluster.until("they are deleted and ended", || {
        cluster.get("goes-0").is_none()
            && cluster.get("goes-1").is_none()
            && (0..2).all(|i| cluster.phase(&format!("ends-{i}")) == "Succeeded")
    });
    cluster.gang("goes", 3, 2, &json!({}));
    cluster
        .lab
        .create_nodes("late", 1, &dovetail_kubelab::NodeShape::with_gpus(2))
        .unwrap();
    cluster.gang("new", 1, 2, &json!({}));

    // A restarted API server has no history.
    cluster.lab.kill(Component::ApiServer);
    cluster.lab.launch(Component::ApiServer).unwrap();
    let version = seen.as_str().unwrap();
    let watch = format!("/api/v1/pods?watch=true&timeoutSeconds=1&resourceVersion={version}");
    let answer = cluster.lab.request("GET", &watch, None).unwrap();
    assert!(
        answer.status == 410 || answer.body["object"]["code"] == 410,
        "the history still exists: {answer:?}"
    );
    cluster.proxy.as_ref().unwrap().0.restore();
    cluster.until("the new pods run", || {
        cluster.runs("goes", 3) && cluster.runs("new", 1)
    });
    assert_eq!(cluster.nodes_of("stays", 2), before);
    assert!(cluster.runs("stays", 2), "{}", cluster.picture());
    cluster.check_gpus();
    // All ten GPUs are in use: two of `stays`, six of `goes`, two of `new`.
    cluster.pod("full", 1, &json!({}));
    cluster.until("the next pod waits", || cluster.why("full").contains(": queued"));
    cluster.delete("new-0");
    cluster.until("it gets the free GPU", || cluster.phase("full") == "Running");
    cluster.check_gpus();
}
