//! Policies that Kubernetes cannot carry out, on a real API server: the object and an event say why, and the policy in force
//! stays.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use dovetail_kubelab::Settings;
use serde_json::{Value, json};
use support::{API, Cluster};

/// Kind of a part, and the part.
type Part = (&'static str, &'static str);

/// Policies, parts that replace theirs, and what the message says.
const REFUSED: [(&str, Option<Part>, &str); 12] = [
    ("sjf-ffs", None, "needs GPU sharing"),
    ("sjf-bsbf", None, "needs GPU sharing"),
    ("antman", None, "needs GPU sharing"),
    ("muri-s", None, "needs GPU sharing"),
    ("muri-l", None, "needs GPU sharing"),
    ("synergy", None, "needs resizing of CPU and memory"),
    (
        "fifo",
        Some(("sizing", "proportional")),
        "needs resizing of CPU and memory",
    ),
    (
        "fifo",
        Some(("sizing", "greedy")),
        "needs resizing of CPU and memory",
    ),
    (
        "fifo",
        Some(("sizing", "tune")),
        "needs resizing of CPU and memory",
    ),
    (
        "fifo",
        Some(("sizing", "opt")),
        "needs resizing of CPU and memory",
    ),
    ("elastic-fifo", None, "needs change of width"),
    ("optimus", None, "needs change of width"),
];

#[test]
fn policies_that_kubernetes_cannot_carry_out_are_refused() {
    let Some(mut cluster) = Cluster::start(1, 4, &Settings::default()) else {
        return;
    };
    cluster.install_kinds();
    cluster.schedule();
    let before = cluster
        .handle
        .as_ref()
        .unwrap()
        .read(|state| state.policy().clone());
    for (index, (policy, part, message)) in REFUSED.into_iter().enumerate() {
        let name = format!("p{index}");
        let mut spec = json!({"policy": policy});
        if let Some((kind, part)) = part {
            spec["parts"] = json!({kind: part});
        }
        let object = json!({"apiVersion": "dovetail.io/v1alpha1", "kind": "SchedulingPolicy",
            "metadata": {"name": name}, "spec": spec});
        let path = format!("{API}/schedulingpolicies");
        cluster.ask("POST", &path, Some(&object));
        let status = || cluster.ask("GET", &format!("{path}/{name}"), None)["status"].clone();
        cluster.until("the status says that it is not used", || {
            status()["accepted"] == false
        });
        let status = status();
        let text = status["message"].as_str().unwrap().to_owned();
        assert!(
            text.contains(message) && text.contains("which Kubernetes does not support"),
            "{spec}: {text}"
        );
        assert!(text.contains("; use "), "{spec}: no alternative is named: {text}");
        let condition = &status["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["status"]),
            (&json!("Accepted"), &json!("False")),
            "{spec}"
        );
        cluster.until("an event says the same", || {
            let events = cluster.ask("GET", "/api/v1/namespaces/default/events", None);
            let is_about = |event: &Value| {
                event["involvedObject"]["name"] == name
                    && event["reason"] == "PolicyRefused"
                    && event["message"] == text
            };
            events["items"].as_array().unwrap().iter().any(is_about)
        });
        let now = cluster
            .handle
            .as_ref()
            .unwrap()
            .read(|state| state.policy().clone());
        assert_eq!(now, before, "the policy in force stays");
        cluster.ask("DELETE", &format!("{path}/{name}"), None);
    }
}
