//! Policies that Kubernetes cannot carry out, on a real API server: the object and an event say why, and the policy in force
//! stays.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use dovetail_kubelab::Settings;
use serde_json::{Value, json};
use support::{API, Cluster};

/// Policies, and what the message says.
const REFUSED: [(&str, &str); 7] = [
    ("sjf-ffs", "needs GPU sharing"),
    ("sjf-bsbf", "needs GPU sharing"),
    ("antman", "needs GPU sharing"),
    ("muri-s", "needs GPU sharing"),
    ("muri-l", "needs GPU sharing"),
    ("elastic-fifo", "needs change of width"),
    ("optimus", "needs change of width"),
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
    for (index, (policy, message)) in REFUSED.into_iter().enumerate() {
        let name = format!("p{index}");
        let spec = json!({"policy": policy});
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
