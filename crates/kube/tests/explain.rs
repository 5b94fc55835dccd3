//! Explanations on pods and pod groups, on a real API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use dovetail_kubelab::{RUN_SECONDS, Settings};
use serde_json::{Value, json};
use support::{Cluster, pod};

#[test]
fn a_pending_pod_has_a_forecast() {
    let Some(mut cluster) = Cluster::start(1, 2, &Settings::default()) else {
        return;
    };
    cluster.settings.forecast_every = Duration::from_millis(200);
    cluster.schedule();
    // Forecasts need run times of finished jobs.
    for i in 0..10 {
        cluster.pod(&format!("past-{i}"), 1, &json!({RUN_SECONDS: "0.1"}));
    }
    cluster.until("they have ended", || {
        (0..10).all(|i| cluster.phase(&format!("past-{i}")) == "Succeeded")
    });
    let long = json!({"dovetail.io/expected-seconds": "60"});
    cluster.pod("long", 2, &long);
    cluster.until("the GPUs are taken", || cluster.phase("long") == "Running");
    cluster.pod("next", 2, &long);
    cluster.until("the forecast is shown", || {
        let why = cluster.why("next");
        why.contains(": queued") && why.contains("; expected to start at 20")
    });
    let why = cluster.why("next");
    let moment = |after: &str| -> i64 {
        let (_, rest) = why.split_once(after).unwrap();
        dovetail_kubeapi::parse_time(&rest[..20]).unwrap_or_else(|| panic!("{why}")) / 1_000_000
    };
    let (middle, late) = (
        moment("expected to start at "),
        moment("with 90% probability before "),
    );
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = i64::try_from(now.unwrap().as_secs()).unwrap();
    assert!(middle <= late, "{why}");
    // The running job expects a minute; the forecast cannot be more exact.
    assert!((now - 60..now + 600).contains(&middle), "{why}");

    // The explanation is removed when the pod starts.
    cluster.delete("long");
    cluster.until("it runs without an explanation", || {
        cluster.phase("next") == "Running" && cluster.why("next").is_empty()
    });
}

#[test]
fn a_native_pod_group_has_a_status() {
    let settings = Settings::default()
        .with_gangs()
        .with_controllers(&["podgroup-protection-controller"]);
    let Some(mut cluster) = Cluster::start(1, 2, &settings) else {
        return;
    };
    cluster.schedule();
    let groups = format!(
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups",
        cluster.space
    );
    let group = |name: &str| {
        let group = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}});
        cluster.ask("POST", &groups, Some(&group));
        for i in 0..2 {
            let mut one = pod(&format!("{name}-{i}"), 1, &json!({}));
            one["spec"]["schedulingGroup"] = json!({"podGroupName": name});
            cluster.make(&one);
        }
    };
    let condition = |name: &str| -> Value {
        let group = cluster.ask("GET", &format!("{groups}/{name}"), None);
        let conditions = group["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let mut scheduled = conditions
            .into_iter()
            .filter(|c| c["type"] == "PodGroupScheduled");
        let first = scheduled.next().unwrap_or_default();
        assert_eq!(scheduled.next(), None);
        first
    };
    group("first");
    cluster.until("the status shows that all are bound", || {
        let scheduled = condition("first");
        scheduled["status"] == "True" && scheduled["reason"] == "Scheduled"
    });
    assert!(cluster.runs("first", 2));
    group("second");
    cluster.until("the status shows why not", || {
        let scheduled = condition("second");
        scheduled["status"] == "False"
            && scheduled["reason"] == "Unschedulable"
            && scheduled["message"].to_string().contains(": queued")
    });
    (0..2).for_each(|i| cluster.delete(&format!("first-{i}")));
    cluster.until("the status shows that it is bound now", || {
        condition("second")["status"] == "True"
    });
    // A group has only a minimum; later pods start when there is room.
    let mut one = pod("second-2", 1, &json!({}));
    one["spec"]["schedulingGroup"] = json!({"podGroupName": "second"});
    cluster.make(&one);
    cluster.until("the third is queued", || {
        cluster.why("second-2").contains(": queued")
    });
    cluster.delete("second-0");
    cluster.until("it replaces the first", || cluster.phase("second-2") == "Running");
    cluster.check_gpus();
}
