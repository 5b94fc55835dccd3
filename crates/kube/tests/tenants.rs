//! What many teams see of one cluster, at a real API server: cells and numbers that belong to somebody, borrowers that give
//! way, gangs that start small, nodes that are drained, promises that change, and changes that were missed.

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

/// Which pool the nodes are in; none if they are in both.
fn pool(nodes: &std::collections::BTreeSet<String>) -> Option<u8> {
    let of_one = |name: &String| u8::from(name == "n2" || name == "n3");
    let pools: std::collections::BTreeSet<u8> = nodes.iter().map(of_one).collect();
    (pools.len() == 1).then(|| pools.into_iter().next()).flatten()
}

#[test]
fn cells_belong_to_whoever_owns_them() {
    let Some(mut cluster) = with_pools(&Settings::default()) else {
        return;
    };
    cluster.schedule();
    // Eight GPUs as four pods of two: inside the pool that `a` owns, whichever that is.
    cluster.gang("first", 4, 2, &of("a", 0));
    cluster.until("the gang runs", || cluster.runs("first", 4));
    let own = cluster.nodes_of("first", 4);
    assert!(own.len() == 2 && pool(&own).is_some(), "{}", cluster.picture());

    // The other pool is free, and belongs to `b`: `a` waits, and is told.
    cluster.gang("second", 1, 1, &of("a", 0));
    cluster.until("it says why it waits", || {
        cluster.why("second-0").contains("queued")
    });
    cluster.gang("theirs", 2, 4, &of("b", 0));
    cluster.until("the owner gets its pool", || cluster.runs("theirs", 2));
    let theirs = cluster.nodes_of("theirs", 2);
    assert_eq!(pool(&theirs), pool(&own).map(|p| 1 - p), "{}", cluster.picture());
    assert_eq!(cluster.node_of("second-0"), None);
    cluster.until("use is told", || {
        let (a, b) = (cluster.promise("a"), cluster.promise("b"));
        a["used"] == 8 && a["waiting"] == 1 && b["used"] == 8 && b["running"] == 1
    });

    // A cell that `b` gives back stays its own.
    cluster.delete("theirs-0");
    cluster.delete("theirs-1");
    cluster.until("the gang is gone", || cluster.promise("b")["used"] == 0);
    assert_eq!(cluster.node_of("second-0"), None, "{}", cluster.picture());
    for i in 0..4 {
        cluster.delete(&format!("first-{i}"));
    }
    cluster.until("who waited gets a GPU of its own pool", || {
        cluster.runs("second", 1)
    });
    cluster.check_gpus();
}

#[test]
fn borrowers_use_what_others_own_and_give_way() {
    let Some(mut cluster) = with_pools(&Settings::default()) else {
        return;
    };
    cluster.schedule();
    cluster.gang("mine", 2, 4, &of("a", 0));
    cluster.until("what a owns is in use", || cluster.runs("mine", 2));
    // Kept by a finalizer, so that what is written on them can be read after they have ended.
    for i in 0..2 {
        let annotations = support::gang("x", 2, &of("a", -1));
        let mut one = pod(&format!("x-{i}"), 4, &annotations);
        one["metadata"]["finalizers"] = json!(["example.com/kept"]);
        cluster.make(&one);
    }
    cluster.until("a borrows what b owns", || cluster.runs("x", 2));
    let place = cluster.nodes_of("x", 2);
    cluster.gang("owner", 2, 4, &of("b", 0));
    cluster.until("the owner gets its pool", || cluster.runs("owner", 2));
    assert_eq!(cluster.nodes_of("owner", 2), place);
    assert!(cluster.runs("mine", 2), "{}", cluster.picture());
    let said = format!("preempted by {}/owner", cluster.space);
    for i in 0..2 {
        let pod = cluster.get(&format!("x-{i}")).unwrap();
        assert_eq!(pod["status"]["phase"], "Failed", "{}", cluster.picture());
        let by = pod["metadata"]["annotations"]["dovetail.io/preempted-by"].as_str();
        assert!(by.unwrap().contains(&said), "{by:?}");
    }
    cluster.until("conditions say it too, after the eviction", || {
        (0..2).all(|i| {
            let pod = cluster.get(&format!("x-{i}")).unwrap();
            let mut conditions = pod["status"]["conditions"].as_array().unwrap().iter();
            conditions.any(|c| c["type"] == "DisruptionTarget" && c["message"].to_string().contains(&said))
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
                && e["message"].to_string().contains(&said)
        })
    };
    assert!((0..2).all(|i| told(format!("x-{i}"))), "{events}");
    cluster.check_gpus();
    // Nobody keeps the pods any more; the owner leaves, and what it held can be borrowed again.
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
fn a_gang_starts_with_as_many_pods_as_it_has_to() {
    let Some(mut cluster) = Cluster::start(2, 2, &Settings::default()) else {
        return;
    };
    cluster.schedule();
    let annotations = support::gang("g", 4, &json!({"dovetail.io/gang-min": "2"}));
    cluster.pod("g-0", 1, &annotations);
    cluster.until("one is too few, and that is said", || {
        cluster.why("g-0").contains("has 1 of 2 pods")
    });
    cluster.pod("g-1", 1, &annotations);
    cluster.until("two are enough", || cluster.runs("g", 2));
    // The third follows as soon as there is room; the fourth stands in line.
    cluster.pod("g-2", 1, &annotations);
    cluster.until("the third follows", || cluster.runs("g", 3));
    cluster.pod("other", 1, &json!({}));
    cluster.until("somebody else is there", || cluster.phase("other") == "Running");
    cluster.pod("g-3", 1, &annotations);
    cluster.until("the fourth stands in line for itself", || {
        cluster.why("g-3").contains("job 4: ")
    });
    // After a restart it is the same.
    cluster.halt();
    cluster.schedule();
    cluster.until("three run, and the fourth stands in line", || {
        cluster.runs("g", 3) && cluster.why("g-3").contains("job")
    });
    assert_eq!(cluster.node_of("g-3"), None, "{}", cluster.picture());
    // A place of the gang itself that falls empty goes to the one that waits.
    let place = cluster.node_of("g-0");
    cluster.delete("g-0");
    cluster.until("the fourth takes the place of the first", || {
        cluster.phase("g-3") == "Running"
    });
    assert_eq!(cluster.node_of("g-3"), place);
    cluster.check_gpus();
}

#[test]
fn pods_of_a_drained_node_come_back_elsewhere() {
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
    let up = |name: &str| -> Vec<String> {
        let all = cluster.all().into_iter();
        let mine = all.filter(|p| p["metadata"]["labels"]["job-name"] == name);
        mine.filter(|p| p["status"]["phase"] == "Running" && p["metadata"]["deletionTimestamp"].is_null())
            .map(|p| p["spec"]["nodeName"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    job("gang", 2, 2);
    cluster.until("the gang runs on two nodes", || up("gang").len() == 2);
    let drained = up("gang")[0].clone();
    // As `kubectl drain` does it.
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
    cluster.until("the gang is whole again, without the node", || {
        let nodes = up("gang");
        nodes.len() == 2 && !nodes.contains(&drained)
    });
    cluster.check_gpus();
    // Nothing is left behind: the node takes as much as it has when it is back.
    cluster.ask("PATCH", &node, Some(&json!({"spec": {"unschedulable": false}})));
    cluster.pod("after", 2, &json!({}));
    cluster.until("the node is used again", || {
        cluster.node_of("after").as_deref() == Some(&drained)
    });
    assert_eq!(up("gang").len(), 2);
    cluster.check_gpus();
}

#[test]
fn promises_change_while_jobs_run() {
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
    cluster.until("the first runs, and the second is told why not", || {
        cluster.runs("one", 1) && cluster.why("two-0").contains("queued")
    });
    let edit = |name: &str, spec: &Value| {
        let path = format!("{API}/virtualclusters/{name}");
        let object = cluster.ask("PATCH", &path, Some(&json!({"spec": spec})));
        object["metadata"]["generation"].clone()
    };

    // An edit that cannot be: it is said, and what was in force stays in force.
    let generation = edit("a", &json!({"guaranteedGpus": 8, "order": "fastest"}));
    cluster.until("it is refused in words", || {
        let status = cluster.promise("a");
        status["observedGeneration"] == generation
            && status["accepted"] == false
            && status["message"].to_string().contains("fastest")
    });
    assert_eq!(cluster.node_of("two-0"), None, "{}", cluster.picture());
    assert!(cluster.runs("one", 1));
    // It holds to what was in force for those who come as well.
    cluster.gang("theirs", 1, 4, &of("b", 0));
    cluster.until("b has its four GPUs", || cluster.runs("theirs", 1));

    // One that can be: GPUs of `b` become GPUs of `a` when they are free.
    edit("b", &json!({"guaranteedGpus": 2}));
    let generation = edit("a", &json!({"guaranteedGpus": 6, "order": null}));
    cluster.until("it is in force", || {
        let status = cluster.promise("a");
        status["observedGeneration"] == generation && status["accepted"] == true
    });
    assert!(cluster.runs("one", 1), "nothing was restarted");
    cluster.delete("theirs-0");
    cluster.until("the share has moved", || cluster.runs("two", 1));
    cluster.gang("more", 1, 3, &of("b", 0));
    cluster.until("b has less now", || {
        cluster.why("more-0").contains("guaranteed 2") && cluster.node_of("more-0").is_none()
    });
    cluster.check_gpus();
}

#[test]
fn changes_that_were_missed_are_found_by_listing_again() {
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

    // Nobody hears of this: pods and a node go and come, under names that were there before.
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
    cluster.until("they are gone and ended", || {
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

    // A server that has just started remembers nothing of before.
    cluster.lab.kill(Component::ApiServer);
    cluster.lab.launch(Component::ApiServer).unwrap();
    let version = seen.as_str().unwrap();
    let watch = format!("/api/v1/pods?watch=true&timeoutSeconds=1&resourceVersion={version}");
    let answer = cluster.lab.request("GET", &watch, None).unwrap();
    assert!(
        answer.status == 410 || answer.body["object"]["code"] == 410,
        "the history is gone: {answer:?}"
    );
    cluster.proxy.as_ref().unwrap().0.restore();
    cluster.until("what came meanwhile runs", || {
        cluster.runs("goes", 3) && cluster.runs("new", 1)
    });
    assert_eq!(cluster.nodes_of("stays", 2), before);
    assert!(cluster.runs("stays", 2), "{}", cluster.picture());
    cluster.check_gpus();
    // Ten GPUs, of which all are in use: two of `stays`, six of `goes`, two of `new`. Nothing is leaked and nothing is over.
    cluster.pod("full", 1, &json!({}));
    cluster.until("the next one waits", || cluster.why("full").contains("queued"));
    cluster.delete("new-0");
    cluster.until("and gets what falls free", || cluster.phase("full") == "Running");
    cluster.check_gpus();
}
