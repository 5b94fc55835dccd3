//! Pods whose GPUs come by ResourceClaims, at a real API server with the controller that makes claims from templates.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;

use dovetail_kubelab::{NodeShape, Settings};
use serde_json::{Value, json};
use support::{Cluster, pod};

const API: &str = "/apis/resource.k8s.io/v1";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// So many nodes, each with a slice of so many devices, and templates for claims on one to four of them.
fn with_devices(nodes: usize, devices: u32) -> Option<Cluster> {
    let controllers = ["resourceclaim-controller", "garbage-collector-controller"];
    let settings = Settings::default().with_controllers(&controllers);
    let cluster = Cluster::start(0, 0, &settings)?;
    cluster
        .lab
        .create_nodes("n", nodes, &NodeShape::with_gpus(0))
        .unwrap();
    let class = json!({"metadata": {"name": "gpu.nvidia.com"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]}});
    cluster.ask("POST", &format!("{API}/deviceclasses"), Some(&class));
    for node in 0..nodes {
        let device = |i: u32| json!({"name": format!("gpu-{i}"), "attributes": {"type": {"string": "gpu"}}});
        let mut all: Vec<Value> = (0..devices).map(device).collect();
        all.push(json!({"name": "gpu-0-mig", "attributes": {"type": {"string": "mig"}}}));
        let name = format!("n{node}");
        let slice = json!({"metadata": {"name": format!("{name}-gpus")}, "spec": {"driver": "gpu.nvidia.com",
            "nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}, "devices": all}});
        cluster.ask("POST", &format!("{API}/resourceslices"), Some(&slice));
    }
    for count in 1..=4 {
        let claim = exactly(&json!({"deviceClassName": "gpu.nvidia.com", "count": count}));
        let template = json!({"metadata": {"name": format!("gpus-{count}")}, "spec": {"spec": claim}});
        let path = format!("{API}/namespaces/{}/resourceclaimtemplates", cluster.space);
        cluster.ask("POST", &path, Some(&template));
    }
    Some(cluster)
}

fn exactly(request: &Value) -> Value {
    json!({"devices": {"requests": [{"name": "gpu", "exactly": request}]}})
}

/// A pod with a claim in the place of a number of GPUs.
fn claiming(name: &str, claim: &Value, annotations: &Value) -> Value {
    let mut pod = pod(name, 1, annotations);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}, "claims": [{"name": "gpus"}]});
    let mut claim = claim.clone();
    claim["name"] = json!("gpus");
    pod["spec"]["resourceClaims"] = json!([claim]);
    pod
}

fn from_template(name: &str, count: u32, annotations: &Value) -> Value {
    let template = json!({"resourceClaimTemplateName": format!("gpus-{count}")});
    claiming(name, &template, annotations)
}

fn claims(cluster: &Cluster) -> Vec<Value> {
    let path = format!("{API}/namespaces/{}/resourceclaims", cluster.space);
    cluster.ask("GET", &path, None)["items"]
        .as_array()
        .unwrap()
        .clone()
}

/// The claim of a pod.
fn claim_of(cluster: &Cluster, name: &str) -> Value {
    let pod = cluster.get(name).unwrap();
    let claim = &pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"];
    let found = claims(cluster)
        .into_iter()
        .find(|c| c["metadata"]["name"] == *claim);
    found.unwrap_or_default()
}

/// The devices of a pod's claim, checked against what is written on the pod.
fn devices(cluster: &Cluster, name: &str) -> BTreeSet<(String, String)> {
    let (pod, claim) = (cluster.get(name).unwrap(), claim_of(cluster, name));
    let node = pod["spec"]["nodeName"].as_str().unwrap();
    let status = &claim["status"];
    assert_eq!(status["reservedFor"][0]["uid"], pod["metadata"]["uid"], "{claim}");
    assert!(
        claim["metadata"]["finalizers"].to_string().contains(FINALIZER),
        "{claim}"
    );
    let results = status["allocation"]["devices"]["results"].as_array().unwrap();
    let mut numbers = Vec::new();
    let mut found = BTreeSet::new();
    for result in results {
        assert_eq!(
            (&result["driver"], &result["pool"], &result["request"]),
            (&json!("gpu.nvidia.com"), &json!(node), &json!("gpu"))
        );
        let device = result["device"].as_str().unwrap();
        numbers.push(device.trim_start_matches("gpu-").to_owned());
        found.insert((node.to_owned(), device.to_owned()));
    }
    assert_eq!(
        pod["metadata"]["annotations"]["dovetail.io/gpus"],
        numbers.join(",")
    );
    let selector = status["allocation"]["nodeSelector"].to_string();
    assert!(selector.contains(&format!("[\"{node}\"]")), "{selector}");
    found
}

#[test]
fn gangs_get_devices_by_claims_and_give_them_back() {
    let Some(mut cluster) = with_devices(2, 4) else {
        return;
    };
    cluster.schedule();
    for i in 0..3 {
        cluster.make(&from_template(
            &format!("a-{i}"),
            2,
            &support::gang("a", 3, &json!({})),
        ));
    }
    cluster.until("the gang runs", || cluster.runs("a", 3));
    let all: Vec<_> = (0..3)
        .flat_map(|i| devices(&cluster, &format!("a-{i}")))
        .collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 6, "{all:?}");
    cluster.check_gpus();

    // Two devices are left: a gang of four waits, and says why; it starts when the others are back.
    cluster.make(&from_template("b-0", 4, &support::gang("b", 1, &json!({}))));
    cluster.until("it says why it waits", || cluster.why("b-0").contains("queued"));
    assert!(claim_of(&cluster, "b-0")["status"]["allocation"].is_null());
    (0..3).for_each(|i| cluster.delete(&format!("a-{i}")));
    cluster.until("it runs", || cluster.runs("b", 1));
    assert_eq!(devices(&cluster, "b-0").len(), 4);
    cluster.until("claims of pods that are gone are gone", || {
        claims(&cluster).len() == 1
    });

    // What it cannot do is said, with the name of the claim and of the field.
    let odd = exactly(&json!({"deviceClassName": "gpu.nvidia.com",
        "selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]}));
    let other = exactly(&json!({"deviceClassName": "nic.example.com"}));
    for (name, spec) in [("odd", odd), ("other", other)] {
        let path = format!("{API}/namespaces/{}/resourceclaims", cluster.space);
        let claim = json!({"metadata": {"name": name}, "spec": spec});
        cluster.ask("POST", &path, Some(&claim));
        cluster.make(&claiming(name, &json!({"resourceClaimName": name}), &json!({})));
    }
    cluster.until("selectors are refused", || {
        cluster
            .why("odd")
            .contains("ResourceClaim odd: request gpu: selectors")
    });
    cluster.until("other classes are refused", || {
        cluster
            .why("other")
            .contains("\"nic.example.com\" is none of gpu.nvidia.com")
    });
    // Devices that are by claims are not given by number.
    cluster.pod("number", 1, &json!({}));
    cluster.until("it is said", || {
        cluster
            .why("number")
            .contains("its GPUs are claimed, and the pod counts them")
    });
}

#[test]
fn a_scheduler_that_died_halfway_is_followed_by_one_that_finishes() {
    let Some(mut cluster) = with_devices(2, 4) else {
        return;
    };
    cluster.schedule();
    cluster.make(&from_template("first-0", 2, &json!({})));
    cluster.until("it runs", || cluster.runs("first", 1));
    let before = devices(&cluster, "first-0");
    cluster.halt();

    // Devices are on the claim, and the pod is not bound: so somebody dies between the two. They are not where the pod will be.
    cluster.make(&from_template("half-0", 4, &json!({})));
    cluster.until("its claim is there", || {
        !claim_of(&cluster, "half-0")["metadata"].is_null()
    });
    let (pod, claim) = (cluster.get("half-0").unwrap(), claim_of(&cluster, "half-0"));
    let taken = before.first().unwrap().0.clone();
    let device = |i: u32| json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": taken, "device": format!("gpu-{i}")});
    let devices_of_half: Vec<Value> = (0..4).map(device).collect();
    let path = format!(
        "{API}/namespaces/{}/resourceclaims/{}",
        cluster.space,
        claim["metadata"]["name"].as_str().unwrap()
    );
    cluster.ask(
        "PATCH",
        &path,
        Some(&json!({"metadata": {"finalizers": [FINALIZER]}})),
    );
    let status = json!({"status": {"allocation": {"devices": {"results": devices_of_half}},
        "reservedFor": [{"resource": "pods", "name": "half-0", "uid": pod["metadata"]["uid"]}]}});
    cluster.ask("PATCH", &format!("{path}/status"), Some(&status));
    cluster.schedule();
    cluster.until("it runs where there is room", || cluster.runs("half", 1));
    let found = devices(&cluster, "half-0");
    assert!(found.is_disjoint(&before) && found.len() == 4, "{found:?}");
    // What ran goes on with what it had, and is counted.
    assert_eq!(devices(&cluster, "first-0"), before);
    cluster.make(&from_template("last-0", 2, &json!({})));
    cluster.until("the rest is given", || cluster.runs("last", 1));
    let last = devices(&cluster, "last-0");
    assert!(last.is_disjoint(&before) && last.is_disjoint(&found), "{last:?}");
    cluster.check_gpus();
}
