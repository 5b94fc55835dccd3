//! A change of leader on a real API server: policies that count service decide as if there had been none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use dovetail_kubelab::Settings;
use serde_json::{Value, json};
use support::{API, Cluster, pod};

/// Creates a Job of this many pods with one GPU each. Two of them need the whole cluster.
fn create_job(cluster: &Cluster, name: &str, pods: u32, expected: u32) {
    let annotations = json!({"dovetail.io/expected-seconds": expected.to_string()});
    let mut template = pod("x", 1, &annotations);
    template["metadata"].as_object_mut().unwrap().remove("name");
    let job = json!({"metadata": {"name": name}, "spec": {"parallelism": pods, "completions": pods,
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
        "template": template}});
    let path = format!("/apis/batch/v1/namespaces/{}/jobs", cluster.space);
    cluster.ask("POST", &path, Some(&job));
}

fn delete_job(cluster: &Cluster, name: &str) {
    let path = format!("/apis/batch/v1/namespaces/{}/jobs/{name}", cluster.space);
    let foreground = json!({"propagationPolicy": "Background"});
    cluster.ask("DELETE", &path, Some(&foreground));
    cluster.until("its pods are deleted", || pods_of(cluster, name).is_empty());
}

fn pods_of(cluster: &Cluster, job: &str) -> Vec<Value> {
    let is_of = |pod: &Value| pod["metadata"]["labels"]["job-name"] == job;
    cluster.all().into_iter().filter(is_of).collect()
}

/// Returns the uids of the running pods of a Job.
fn running(cluster: &Cluster, job: &str) -> Vec<String> {
    let runs =
        |pod: &&Value| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
    let pods = pods_of(cluster, job);
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap().to_owned();
    pods.iter().filter(runs).map(uid).collect()
}

/// Returns what was written on the waiting pods of a Job about its place in the queue.
fn queued_as(cluster: &Cluster, job: &str) -> Option<Value> {
    let pods = pods_of(cluster, job);
    let text = pods
        .iter()
        .find_map(|pod| pod["metadata"]["annotations"]["dovetail.io/queued"].as_str());
    text.map(|text| serde_json::from_str(text).unwrap())
}

fn histories(cluster: &Cluster) -> Vec<Value> {
    let path = format!("{API}/namespaces/{}/ganghistories", cluster.space);
    let list = cluster.ask("GET", &path, None);
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|h| h["spec"].clone())
        .collect()
}

/// Lets the first job be preempted by the second, and returns the uids of the pods of the second.
fn preempt(cluster: &mut Cluster, policy: &str) -> (Vec<String>, Instant) {
    cluster.settings.policy.policy = policy.to_owned();
    cluster.schedule();
    create_job(cluster, "first", 2, 1000);
    cluster.until("the first job runs", || running(cluster, "first").len() == 2);
    std::thread::sleep(Duration::from_secs(26));
    // With one GPU it gets as much service as the first one only after twice the time.
    create_job(cluster, "second", 1, 60);
    cluster.until("the second job preempts it", || {
        running(cluster, "second").len() == 1
    });
    let since = Instant::now();
    cluster.until("the first job is queued again, and that is written", || {
        queued_as(cluster, "first").is_some()
    });
    (running(cluster, "second"), since)
}

#[test]
fn a_new_leader_decides_as_the_one_before() {
    let settings = Settings::default().with_controllers(&["job-controller", "garbage-collector-controller"]);
    let Some(mut cluster) = Cluster::start(1, 2, &settings) else {
        return;
    };
    cluster.install_kinds();
    for policy in ["las:quantum=50", "tiresias:limits=50", "srtf"] {
        let (second, since) = preempt(&mut cluster, policy);
        let history = histories(&cluster);
        assert_eq!(history.len(), 1, "{policy}");
        let service = &history[0]["service"];
        assert_eq!(
            (&service["attempts"], &service["preemptions"]),
            (&json!(1), &json!(1)),
            "{policy}"
        );
        assert!(
            service["heldUs"].as_i64().unwrap() >= 26_000_000,
            "{policy}: {service}"
        );
        assert_eq!(
            service["gpuTimeUs"],
            service["heldUs"].as_i64().unwrap() * 2,
            "{policy}"
        );
        let before = queued_as(&cluster, "first").unwrap();
        assert_eq!(before["submitted"], history[0]["submitted"], "{policy}");

        cluster.schedule();
        // Without its service the first job would be ahead of the second. With that of the second, a third one is behind it.
        if policy == "srtf" {
            std::thread::sleep(Duration::from_secs(8));
            create_job(&cluster, "third", 2, 55);
        }
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            let elapsed = since.elapsed().as_secs_f64();
            assert_eq!(
                running(&cluster, "second"),
                second,
                "{policy}, {elapsed} s\n{}",
                cluster.picture()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(queued_as(&cluster, "first"), Some(before), "{policy}");
        assert_eq!(histories(&cluster), history, "{policy}");

        // The new leader continues with the attempts and the service of the one before.
        let jobs = if policy == "srtf" {
            &["second", "third"][..]
        } else {
            &["second"]
        };
        for job in jobs {
            delete_job(&cluster, job);
        }
        cluster.until("the first job runs again", || {
            running(&cluster, "first").len() == 2
        });
        let pods = pods_of(&cluster, "first");
        let annotations = &pods[0]["metadata"]["annotations"];
        assert_eq!(annotations["dovetail.io/attempt"], "2", "{policy}");
        let written: Value =
            serde_json::from_str(annotations["dovetail.io/history"].as_str().unwrap()).unwrap();
        assert_eq!(written["before"], history[0]["service"], "{policy}");
        assert_eq!(written["submitted"], history[0]["submitted"], "{policy}");
        delete_job(&cluster, "first");
        cluster.until("the history is deleted with the job", || {
            histories(&cluster).is_empty()
        });
    }
}
