//! The scheduler on a real API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use dovetail_kubelab::{Component, RUN_SECONDS, Settings};
use serde_json::json;
use support::{Cluster, pod};

#[test]
fn gangs_start_together_and_end() {
    let Some(mut cluster) = Cluster::start(2, 4, &Settings::default()) else {
        return;
    };
    cluster.schedule();
    cluster.pod("one", 1, &json!({RUN_SECONDS: "0.5"}));
    cluster.until("the pod runs to its end", || cluster.phase("one") == "Succeeded");
    let one = cluster.get("one").unwrap();
    assert_eq!(one["metadata"]["annotations"]["dovetail.io/gpus"], "0");

    // Three of four pods are not complete: no pod is bound.
    let annotations = support::gang("g", 4, &json!({}));
    for i in 0..3 {
        cluster.pod(&format!("g-{i}"), 2, &annotations);
    }
    cluster.until("the gang shows what it waits for", || {
        let pod = cluster.get("g-0").unwrap();
        pod["status"]["conditions"]
            .to_string()
            .contains("has 3 of 4 pods")
    });
    assert!((0..3).all(|i| cluster.node_of(&format!("g-{i}")).is_none()));
    cluster.pod("g-3", 2, &annotations);
    cluster.until("all four run", || {
        (0..4).all(|i| cluster.phase(&format!("g-{i}")) == "Running")
    });
    cluster.check_gpus();

    // A second gang waits and shows why.
    cluster.gang("h", 2, 4, &json!({}));
    cluster.until("it shows why it waits", || {
        let pod = cluster.get("h-0").unwrap();
        pod["status"]["conditions"].to_string().contains(": queued")
    });
    assert!(cluster.node_of("h-0").is_none() && cluster.node_of("h-1").is_none());
    for i in 0..4 {
        cluster.ask("DELETE", &format!("{}/g-{i}", cluster.pods_path()), None);
    }
    cluster.until("the second gang runs", || {
        (0..2).all(|i| cluster.phase(&format!("h-{i}")) == "Running")
    });
    cluster.check_gpus();
    let events = cluster.ask(
        "GET",
        &format!("/api/v1/namespaces/{}/events", cluster.space),
        None,
    );
    assert!(events["items"].to_string().contains("bound to n"), "{events}");
}

#[test]
fn a_more_urgent_job_preempts_another_which_restarts() {
    let settings = Settings::default().with_controllers(&["job-controller", "garbage-collector-controller"]);
    let Some(mut cluster) = Cluster::start(1, 2, &settings) else {
        return;
    };
    cluster.settings.policy.policy = "fifo-backfill:priority=true".to_owned();
    cluster
        .settings
        .policy
        .parts
        .insert("discipline".to_owned(), "preempt".to_owned());
    cluster.schedule();
    let job = |name: &str, priority: &str, seconds: &str| {
        let mut template = pod(
            "x",
            1,
            &json!({"dovetail.io/priority": priority, RUN_SECONDS: seconds}),
        );
        template["metadata"].as_object_mut().unwrap().remove("name");
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 20, "template": template}});
        cluster.ask(
            "POST",
            &format!("/apis/batch/v1/namespaces/{}/jobs", cluster.space),
            Some(&job),
        );
    };
    let of = |name: &str, phase: &str| {
        let mine = cluster
            .all()
            .into_iter()
            .filter(|p| p["metadata"]["labels"]["job-name"] == name);
        mine.filter(|p| p["status"]["phase"] == phase && p["metadata"]["deletionTimestamp"].is_null())
            .count()
    };
    job("low", "0", "3600");
    cluster.until("the first job runs", || of("low", "Running") == 2);
    job("high", "10", "2");
    cluster.until("the second runs", || of("high", "Running") == 2);
    cluster.check_gpus();
    let events = cluster.ask(
        "GET",
        &format!("/api/v1/namespaces/{}/events", cluster.space),
        None,
    );
    let message = format!("preempted by {}/high", cluster.space);
    assert!(events["items"].to_string().contains(&message), "{message}");
    cluster.until("the second is done, and the first runs again", || {
        of("high", "Succeeded") == 2 && of("low", "Running") == 2
    });
    cluster.check_gpus();
}

#[test]
fn cordoned_and_deleted_nodes_and_lost_gpus_are_not_used() {
    let settings = Settings::default().with_controllers(&["job-controller"]);
    let Some(mut cluster) = Cluster::start(2, 2, &settings) else {
        return;
    };
    cluster.schedule();
    let cordon = |on: bool| {
        let body = json!({"spec": {"unschedulable": on}});
        let client = cluster.lab.client();
        let patch = async move {
            client
                .patch::<serde_json::Value>("/api/v1/nodes/n0", dovetail_kubeapi::Patch::Merge, &body)
                .await
                .unwrap();
        };
        tokio::runtime::Runtime::new().unwrap().block_on(patch);
    };
    cordon(true);
    std::thread::sleep(Duration::from_millis(300));
    cluster.gang("a", 2, 1, &json!({}));
    cluster.until("both are on the schedulable node", || {
        (0..2).all(|i| cluster.node_of(&format!("a-{i}")).as_deref() == Some("n1"))
    });
    cluster.pod("b", 1, &json!({}));
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(cluster.node_of("b"), None);
    cordon(false);
    cluster.until("the node is used again", || {
        cluster.node_of("b").as_deref() == Some("n0")
    });

    // A device plugin loses a GPU: no further pod fits.
    let status = json!({"status": {"allocatable": {"nvidia.com/gpu": "1"}}});
    let client = cluster.lab.client();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        client
            .patch::<serde_json::Value>("/api/v1/nodes/n0/status", dovetail_kubeapi::Patch::Merge, &status)
            .await
            .unwrap();
    });
    std::thread::sleep(Duration::from_millis(300));
    cluster.pod("c", 1, &json!({}));
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(cluster.node_of("c"), None, "{}", cluster.picture());

    // A node is deleted with a gang on it: a gang without controller ends, and its other GPUs are free.
    cluster.ask("DELETE", "/api/v1/nodes/n1", None);
    for i in 0..2 {
        cluster.ask(
            "DELETE",
            &format!("{}/a-{i}?gracePeriodSeconds=0", cluster.pods_path()),
            None,
        );
    }
    cluster.ask("DELETE", &format!("{}/b", cluster.pods_path()), None);
    cluster.until("the waiting pod gets the GPU", || {
        cluster.node_of("c").as_deref() == Some("n0")
    });
    cluster.check_gpus();
}

#[test]
fn a_restarted_scheduler_adopts_running_gangs() {
    let Some(mut cluster) = Cluster::start(4, 4, &Settings::default()) else {
        return;
    };
    cluster.schedule();
    cluster.gang("a", 4, 2, &json!({}));
    cluster.until("the gang runs", || {
        (0..4).all(|i| cluster.phase(&format!("a-{i}")) == "Running")
    });
    let before: Vec<_> = (0..4).map(|i| cluster.node_of(&format!("a-{i}"))).collect();
    for round in 0..5 {
        cluster.gang(&format!("b{round}"), 3, 1, &json!({RUN_SECONDS: "1"}));
        std::thread::sleep(Duration::from_millis(40 * round));
        // Restarted at once, at any moment.
        cluster.schedule();
        cluster.until("the gang has run", || {
            (0..3).all(|i| cluster.phase(&format!("b{round}-{i}")) == "Succeeded")
        });
        cluster.check_gpus();
    }
    cluster.lab.kill(Component::ApiServer);
    cluster.lab.launch(Component::ApiServer).unwrap();
    cluster.gang("c", 2, 4, &json!({}));
    cluster.until("it continues after the server was unavailable", || {
        (0..2).all(|i| cluster.phase(&format!("c-{i}")) == "Running")
    });
    cluster.check_gpus();
    let after: Vec<_> = (0..4).map(|i| cluster.node_of(&format!("a-{i}"))).collect();
    assert_eq!(before, after);
    assert!((0..4).all(|i| cluster.phase(&format!("a-{i}")) == "Running"));
}

#[test]
fn another_replica_takes_over_from_a_failed_leader() {
    let Some(cluster) = Cluster::start(4, 4, &Settings::default()) else {
        return;
    };
    let duration = Duration::from_secs(2);
    let mut leader = cluster.replica(duration);
    cluster.pod("first", 1, &json!({}));
    cluster.until("a replica leads", || cluster.phase("first") == "Running");
    for round in 0..4 {
        let next = cluster.replica(duration);
        cluster.gang(&format!("g{round}"), 4, 1, &json!({RUN_SECONDS: "0.3"}));
        std::thread::sleep(Duration::from_millis(15 * round));
        leader.shutdown_background();
        leader = next;
        cluster.until("the other replica continues", || {
            (0..4).all(|i| cluster.phase(&format!("g{round}-{i}")) == "Succeeded")
        });
        cluster.check_gpus();
    }
    leader.shutdown_background();
}

#[test]
fn a_half_bound_gang_is_completed_after_its_first_pod_has_ended() {
    let Some(mut cluster) = Cluster::start(1, 2, &Settings::default()) else {
        return;
    };
    // A leader that fails between two bindings leaves the plan on the first pod, which is bound.
    cluster.gang("g", 2, 1, &json!({RUN_SECONDS: "0"}));
    let plan = json!({"job": 7, "launch": 1, "seats": [["g-0", "n0", "0"], ["g-1", "n0", "1"]]}).to_string();
    let path = format!("{}/g-0", cluster.pods_path());
    let note = json!({"metadata": {"annotations": {dovetail_kube::PLAN: plan}}});
    cluster.ask("PATCH", &path, Some(&note));
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n0"},
        "metadata": {"name": "g-0", "annotations": {"dovetail.io/job": "7", "dovetail.io/attempt": "1", "dovetail.io/gpus": "0"}}});
    cluster.ask("POST", &format!("{path}/binding"), Some(&binding));
    cluster.until("the first pod has ended", || cluster.phase("g-0") == "Succeeded");
    cluster.schedule();
    cluster.until("the second is bound too", || cluster.phase("g-1") == "Succeeded");
    let second = cluster.get("g-1").unwrap();
    assert_eq!(second["metadata"]["annotations"]["dovetail.io/gpus"], "1");
    // Its GPUs are free afterwards.
    cluster.pod("next", 2, &json!({}));
    cluster.until("the next one runs", || cluster.phase("next") == "Running");
}
