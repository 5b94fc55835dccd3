//! The policy of the cluster: what a runtime refuses, and what jobs lack.

use dovetail_cluster::Capabilities;
use dovetail_engine::Support;
use dovetail_web::ApiConfig;
use serde_json::{Value, json};

use crate::server::Server;

fn server() -> Server {
    let exclusive = Capabilities {
        runtime: "this cluster",
        sharing: Support::No("one job for each GPU"),
        stage_gates: Support::No("one job for each GPU"),
        ..Capabilities::ALL
    };
    Server::start_on(exclusive, 1, ApiConfig::default())
}

fn operate(server: &Server, policy: &str) -> crate::server::Answer {
    let body = json!({"operate": {"policy": {"policy": policy, "parts": {}}}});
    server.call(&server.admin, "POST", "/operate", &body)
}

#[test]
fn a_policy_that_the_runtime_cannot_carry_out_is_refused() {
    let server = server();
    let refused = operate(&server, "sjf-ffs");
    assert_eq!(refused.status, 422, "{refused:?}");
    let message = "grouping `pair:by=ffs` needs GPU sharing, which this cluster does not support: \
                   one job for each GPU; use grouping `none`";
    assert!(refused.text.contains(message), "{refused:?}");
    let policies = server
        .call(&server.admin, "GET", "/policies", &Value::Null)
        .json();
    let policy = |name: &str| {
        let mut policies = policies.as_array().unwrap().iter();
        policies.find(|policy| policy["name"] == name).unwrap().clone()
    };
    assert_eq!(policy("sjf-ffs")["refused"], message);
    assert_eq!(policy("sjf-ffs")["needs"], json!(["remaining-time", "sharing"]));
    assert_eq!(policy("srtf")["refused"], Value::Null);
    let cluster = server.call(&server.admin, "GET", "/cluster", &Value::Null).json();
    assert_eq!(cluster["policy"], "fifo-backfill:priority=true");
    assert_eq!(cluster["runtime"], "this cluster");
}

#[test]
fn jobs_without_data_that_the_policy_needs_are_counted() {
    let server = server();
    let job = |gpus: u32| json!({"job": {"command": ["true"], "gpus": gpus}});
    for gpus in [4, 4] {
        let submitted = server.call(&server.admin, "POST", "/jobs", &job(gpus));
        assert!(submitted.status < 300, "{submitted:?}");
    }
    let cluster = operate(&server, "srtf").json();
    let warning = &cluster["warnings"][0];
    assert_eq!(
        warning["text"],
        "srtf orders by remaining time; 1 of 1 queued job has none: it is ordered last"
    );
    assert_eq!((&warning["lacking"], &warning["queued"]), (&json!(1), &json!(1)));
    assert_eq!(warning["help"], "submit with `--expected`");
    let why = server
        .call(&server.admin, "GET", "/jobs/2/explain", &Value::Null)
        .json();
    let reasons = why["reasons"].as_array().unwrap();
    assert!(
        reasons.contains(&json!("no run time known: ordered last")),
        "{why}"
    );
    server.call(&server.admin, "POST", "/jobs", &job(4));
    let cluster = server.call(&server.admin, "GET", "/cluster", &Value::Null).json();
    assert_eq!(cluster["warnings"][0]["lacking"], 2);
}
