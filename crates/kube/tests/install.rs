//! The installation: the manifest on a new control plane, validation by its CRDs, permissions of its account, and a gang that is
//! scheduled with these permissions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dovetail_kube::{
    ClusterFeatures, ClusterTopology, Elector, GangHistorySpec, LeaseSettings, PodProgressSpec, Scheduler,
    SchedulerSettings, SchedulingPolicy, SchedulingPolicySpec, Service, VirtualCluster, VirtualClusterSpec,
};
use dovetail_kubeapi::Client;
use dovetail_kubelab::{Identity, Lab, LabError, NodeShape, Settings, binary_or_skip, helm};
use serde_json::{Value, json};

const ACCOUNT: &str = "system:serviceaccount:dovetail-system:dovetail";
const GROUPS: [&str; 2] = ["system:serviceaccounts", "system:serviceaccounts:dovetail-system"];

const OUR_KINDS: [&str; 5] = [
    "virtualclusters",
    "clustertopologies",
    "schedulingpolicies",
    "ganghistories",
    "podprogresses",
];

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(path)
}

fn documents(text: &str) -> Vec<Value> {
    let all = text.split("\n---\n").map(|d| d.trim_start_matches("---\n"));
    all.map(|d| serde_saphyr::from_str::<Value>(d).unwrap())
        .filter(Value::is_object)
        .collect()
}

fn manifest() -> Vec<Value> {
    documents(&std::fs::read_to_string(deploy("kubernetes/dovetail.yaml")).unwrap())
}

/// The page, with jobs in the namespace `training`.
fn page() -> Vec<Value> {
    documents(&std::fs::read_to_string(deploy("kubernetes/page.yaml")).unwrap())
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns kind and name of an object.
fn id(object: &Value) -> (String, String) {
    (
        text(object, "/kind").to_owned(),
        text(object, "/metadata/name").to_owned(),
    )
}

/// Returns the path of an object.
fn path(object: &Value) -> String {
    let (kind, name) = id(object);
    let plural = match kind.as_str() {
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let version = text(object, "/apiVersion");
    let top = if version == "v1" { "/api" } else { "/apis" };
    match text(object, "/metadata/namespace") {
        "" => format!("{top}/{version}/{plural}/{name}"),
        space => format!("{top}/{version}/namespaces/{space}/{plural}/{name}"),
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn created(lab: &Lab, folder: &str, object: &Value) -> Value {
    let answer = lab.request("POST", folder, Some(object)).unwrap();
    assert_eq!(answer.status, 201, "{folder}: {}", answer.body);
    answer.body
}

fn get(lab: &Lab, path: &str) -> Value {
    let answer = lab.request("GET", path, None).unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body
}

/// Applies the manifest through our own client.
fn apply(lab: &Lab) {
    let client = lab.client();
    runtime().block_on(async {
        for object in manifest() {
            let done: Result<Value, _> = client.apply(&path(&object), "install", &object).await;
            done.unwrap_or_else(|e| panic!("{:?}: {e}", id(&object)));
        }
    });
}

/// Waits until our kinds are served and the account has its permissions.
fn settle(lab: &Lab) -> Identity {
    for plural in OUR_KINDS {
        let crd = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.dovetail.io");
        until(&format!("{plural} are established"), || {
            let crd = get(lab, &crd);
            let conditions = crd.pointer("/status/conditions")?.as_array()?;
            let has = |kind: &str| {
                conditions
                    .iter()
                    .any(|c| c["type"] == kind && c["status"] == "True")
            };
            assert!(!has("NonStructuralSchema"), "{conditions:?}");
            has("Established").then_some(())
        });
        until(&format!("{plural} are served"), || {
            let answer = lab.request("GET", &format!("/apis/dovetail.io/v1alpha1/{plural}"), None);
            (answer.unwrap().status == 200).then_some(())
        });
    }
    let account = lab.authority().user(ACCOUNT, &GROUPS).unwrap();
    for path in [
        "/api/v1/nodes",
        "/apis/coordination.k8s.io/v1/namespaces/dovetail-system/leases/dovetail-scheduler",
    ] {
        until("the account has its rights", || {
            let answer = lab.request_as(&account, "GET", path, None).unwrap();
            (answer.status != 403).then_some(())
        });
    }
    account
}

/// Returns a control plane on which the manifest was applied with our client, and the identity of the account.
fn installed() -> Option<&'static (Lab, Identity)> {
    static LAB: OnceLock<Option<(Lab, Identity)>> = OnceLock::new();
    let start = || {
        let lab = Lab::start_or_skip(&Settings::default().with_gangs())?;
        apply(&lab);
        let account = settle(&lab);
        Some((lab, account))
    };
    LAB.get_or_init(start).as_ref()
}

/// Returns the output of a successful tool.
fn printed(output: Result<Output, LabError>) -> String {
    let output = output.unwrap();
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output_text}");
    assert!(!output_text.to_lowercase().contains("warning"), "{output_text}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the words of each line.
fn words(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|l| l.split_whitespace().collect()).collect()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn schemas_have_the_keys_of_the_types() {
    let schemas: BTreeMap<String, Value> = manifest()
        .into_iter()
        .filter(|d| d["kind"] == "CustomResourceDefinition")
        .map(|d| {
            let schema = d.pointer("/spec/versions/0/schema/openAPIV3Schema/properties");
            (text(&d, "/spec/names/kind").to_owned(), schema.unwrap().clone())
        })
        .collect();
    let cluster = VirtualClusterSpec {
        guaranteed_gpus: Some(1),
        most_borrowed: Some(1),
        user_cap_gpus: Some(1),
        order: Some("srsf".to_owned()),
        max_priority: Some(1),
        virtual_cells: vec![json!({})],
        pinned_cells: vec![json!({})],
    };
    let policy = SchedulingPolicySpec {
        policy: "fifo".to_owned(),
        parts: BTreeMap::from([("placement".to_owned(), "spread".to_owned())]),
        round: Some("60s".to_owned()),
        paused: true,
    };
    let history = GangHistorySpec {
        gang: "a".to_owned(),
        gang_uid: "b".to_owned(),
        job: 1,
        submitted: 1,
        pods: 1,
        min_pods: 1,
        service: Service {
            first_start: Some(1),
            ..Service::default()
        },
    };
    let service = serde_json::to_value(history.service).unwrap();
    let in_schema = &schemas["GangHistory"]["spec"]["properties"]["service"]["properties"];
    assert_eq!(keys(in_schema), keys(&service));
    for (kind, spec) in [
        ("VirtualCluster", serde_json::to_value(cluster).unwrap()),
        ("SchedulingPolicy", serde_json::to_value(policy).unwrap()),
        ("GangHistory", serde_json::to_value(history).unwrap()),
        (
            "PodProgress",
            serde_json::to_value(PodProgressSpec::default()).unwrap(),
        ),
    ] {
        assert_eq!(
            keys(&schemas[kind]["spec"]["properties"]),
            keys(&spec),
            "spec of {kind}"
        );
    }
    let common = ["accepted", "conditions", "message", "observedGeneration"];
    let with_status = |kind: &str| !matches!(kind, "GangHistory" | "PodProgress");
    for (kind, schema) in schemas.iter().filter(|(kind, _)| with_status(kind)) {
        let mut status = BTreeSet::from(common);
        if kind == "VirtualCluster" {
            status.extend(["used", "running", "waiting"]);
        }
        assert_eq!(keys(&schema["status"]["properties"]), status, "status of {kind}");
    }
}

#[test]
fn the_chart_renders_the_manifest() {
    if binary_or_skip().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let chart = deploy("helm/dovetail");
    let chart = chart.to_str().unwrap();
    let linted = printed(helm(folder.path(), &["lint", "--strict", chart]));
    assert!(
        linted.contains("1 chart(s) linted, 0 chart(s) failed"),
        "{linted}"
    );
    let render = |sets: &[&str]| {
        let args = [
            "template",
            "dovetail",
            chart,
            "-n",
            "dovetail-system",
            "--kube-version",
            "1.36",
        ];
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set-json", *set]).collect();
        documents(&printed(helm(folder.path(), &[&args, sets.as_slice()].concat())))
    };
    // Helm creates the namespace itself.
    let mut rendered = render(&[]);
    let kinds = std::fs::read_to_string(deploy("helm/dovetail/crds/dovetail.yaml")).unwrap();
    rendered.extend(documents(&kinds));
    let by_id = |all: Vec<Value>| -> BTreeMap<_, _> { all.into_iter().map(|o| (id(&o), o)).collect() };
    let (chart, mut manifest) = (by_id(rendered), by_id(manifest()));
    manifest.remove(&("Namespace".to_owned(), "dovetail-system".to_owned()));
    assert_eq!(
        chart.keys().collect::<Vec<_>>(),
        manifest.keys().collect::<Vec<_>>()
    );
    for (id, object) in &manifest {
        assert_eq!(&chart[id], object, "{id:?}");
    }

    // With the page, the chart also renders its manifest and the settings that it lists.
    let mut paged = by_id(render(&["page.enabled=true"]));
    for object in page() {
        assert_eq!(paged.remove(&id(&object)), Some(object));
    }
    let deployment = paged.get_mut(&("Deployment".to_owned(), "dovetail".to_owned()));
    let replicas = &mut deployment.unwrap()["spec"]["replicas"];
    assert_eq!(std::mem::replace(replicas, json!(2)), json!(1));
    let settings = paged.get_mut(&("ConfigMap".to_owned(), "dovetail".to_owned()));
    let settings = settings.unwrap()["data"]["kube.yaml"].take();
    let settings: Value = serde_saphyr::from_str(settings.as_str().unwrap()).unwrap();
    let stated = std::fs::read_to_string(deploy("kubernetes/page.yaml")).unwrap();
    let stated = stated.lines().find_map(|line| line.strip_prefix("#   ")).unwrap();
    let stated: Value = serde_saphyr::from_str(stated).unwrap();
    assert_eq!(settings["page"], stated["page"], "as page.yaml says");
    for (id, object) in &paged {
        if id.0 != "ConfigMap" {
            assert_eq!(&chart[id], object, "{id:?}");
        }
    }

    let other = by_id(render(&[
        "extender.enabled=true",
        r#"nodeSelector={"pool": "system"}"#,
        r#"tolerations=[{"key": "pool", "operator": "Exists"}]"#,
    ]));
    for name in ["dovetail", "dovetail-extender"] {
        let spec = &other[&("Deployment".to_owned(), name.to_owned())]["spec"]["template"]["spec"];
        assert_eq!(spec["nodeSelector"]["pool"], "system");
        assert_eq!(spec["tolerations"][0]["key"], "pool");
    }
}

#[test]
fn objects_are_accepted_or_rejected_with_a_message() {
    let Some((lab, _)) = installed() else { return };
    let vc = |spec: Value| ("VirtualCluster", "virtualclusters", spec);
    let topology = |spec: Value| ("ClusterTopology", "clustertopologies", spec);
    let policy = |spec: Value| ("SchedulingPolicy", "schedulingpolicies", spec);
    let cells = json!([{"cellType": "POOL.NODE", "cellNumber": 1}]);
    let types = json!({"NODE": {"childCellType": "GPU", "childCellNumber": 4, "isNodeLevel": true}});
    let tree = json!([{"cellType": "NODE", "cellAddress": "a", "reservedFor": "vision",
        "cellChildren": [{"cellAddress": 0, "pinnedCellId": "p"}]}]);
    let rows = [
        (vc(json!({})), ""),
        (
            vc(json!({"guaranteedGpus": 8, "mostBorrowed": 4, "userCapGpus": 2, "maxPriority": -1})),
            "",
        ),
        (
            vc(json!({"virtualCells": cells, "pinnedCells": [{"pinnedCellId": "p"}], "maxPriority": 9})),
            "",
        ),
        (vc(json!({"guaranteedGpus": 8, "virtualCells": []})), ""),
        (
            vc(json!({"guaranteedGpus": -1})),
            "spec.guaranteedGpus in body should be greater than or equal to 0",
        ),
        (
            vc(json!({"mostBorrowed": 4_294_967_296_u64})),
            "should be less than or equal to 4294967295",
        ),
        (
            vc(json!({"maxPriority": 3_000_000_000_u64})),
            "should be less than or equal to 2147483647",
        ),
        (vc(json!({"guaranteedGpus": "eight"})), "must be of type integer"),
        (
            vc(json!({"guaranteedGpus": 8, "virtualCells": cells})),
            "promise a number of GPUs, or cells",
        ),
        (
            vc(json!({"mostBorrowed": 8, "pinnedCells": [{"pinnedCellId": "p"}]})),
            "promise a number of GPUs, or cells",
        ),
        (
            vc(json!({"virtualCells": [{"cellType": "POOL.NODE"}]})),
            "spec.virtualCells[0].cellNumber: Required value",
        ),
        (
            vc(json!({"pinnedCells": [{}]})),
            "spec.pinnedCells[0].pinnedCellId: Required value",
        ),
        (
            vc(json!({"guarantedGpus": 8})),
            "unknown field \"spec.guarantedGpus\"",
        ),
        (
            topology(
                json!({"cellTypes": types, "physicalCells": tree, "skuTypes": {"GPU": {"gpu": 1}}, "more": 1}),
            ),
            "",
        ),
        (
            topology(json!({"physicalCells": tree})),
            "spec.cellTypes: Required value",
        ),
        (
            topology(
                json!({"cellTypes": {"NODE": {"childCellType": "GPU", "childCellNumber": 0}}, "physicalCells": tree}),
            ),
            "should be greater than or equal to 1",
        ),
        (policy(json!({})), ""),
        (
            policy(
                json!({"policy": "srsf", "parts": {"placement": "spread"}, "round": "1.5 min", "paused": true}),
            ),
            "",
        ),
        (
            policy(json!({"round": "soon"})),
            "spec.round in body should match",
        ),
        (
            policy(json!({"parts": {"placement": 1}})),
            "must be of type string",
        ),
    ];
    for ((kind, plural, spec), rejected) in rows {
        let object = json!({"apiVersion": "dovetail.io/v1alpha1", "kind": kind, "metadata": {"name": "one"}, "spec": spec});
        let folder = format!("/apis/dovetail.io/v1alpha1/{plural}?dryRun=All&fieldValidation=Strict");
        let answer = lab.request("POST", &folder, Some(&object)).unwrap();
        let output_text = text(&answer.body, "/message");
        if !rejected.is_empty() {
            assert!(matches!(answer.status, 400 | 422), "{spec}: {}", answer.status);
            assert!(output_text.contains(rejected), "{spec}: {output_text}");
            continue;
        }
        assert_eq!(answer.status, 201, "{spec}: {output_text}");
        assert_eq!(answer.body["spec"], spec, "nothing is lost");
        let read = match kind {
            "VirtualCluster" => serde_json::from_value::<VirtualCluster>(answer.body).map(drop),
            "ClusterTopology" => serde_json::from_value::<ClusterTopology>(answer.body).map(drop),
            _ => serde_json::from_value::<SchedulingPolicy>(answer.body).map(drop),
        };
        read.unwrap();
    }
    let long = json!({"apiVersion": "dovetail.io/v1alpha1", "kind": "VirtualCluster", "spec": {},
        "metadata": {"name": "n".repeat(65)}});
    let answer = lab
        .request(
            "POST",
            "/apis/dovetail.io/v1alpha1/virtualclusters?dryRun=All",
            Some(&long),
        )
        .unwrap();
    assert!(
        text(&answer.body, "/message").contains("at most 64 letters"),
        "{}",
        answer.body
    );
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"schedulerName": "dovetail", "containers": [{"name": "main", "image": "none"}]}})
}

#[test]
fn the_account_may_do_what_the_scheduler_does_and_nothing_else() {
    let Some((lab, account)) = installed() else { return };
    let space = lab.namespace("rights").unwrap();
    let core = format!("/api/v1/namespaces/{space}");
    let pods = format!("{core}/pods");
    for name in ["bound", "evicted", "deleted"] {
        created(lab, &pods, &pod(name));
    }
    created(lab, "/api/v1/nodes", &NodeShape::with_gpus(0).node("rights-node"));
    let jobs = format!("/apis/batch/v1/namespaces/{space}/jobs");
    let job = json!({"metadata": {"name": "job"}, "spec": {"template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none"}]}}}});
    created(lab, &jobs, &job);
    let groups = format!("/apis/scheduling.k8s.io/v1alpha2/namespaces/{space}/podgroups");
    created(
        lab,
        &groups,
        &json!({"metadata": {"name": "group"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}),
    );
    let ours = "/apis/dovetail.io/v1alpha1";
    let kinds = [
        ("virtualclusters", json!({})),
        ("clustertopologies", json!({"cellTypes": {}, "physicalCells": []})),
        ("schedulingpolicies", json!({})),
    ];
    for (plural, spec) in &kinds {
        let kind = match *plural {
            "virtualclusters" => "VirtualCluster",
            "clustertopologies" => "ClusterTopology",
            _ => "SchedulingPolicy",
        };
        let object = json!({"apiVersion": "dovetail.io/v1alpha1", "kind": kind, "metadata": {"name": "rights"}, "spec": spec});
        created(lab, &format!("{ours}/{plural}"), &object);
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/dovetail-system/leases";
    let lease = json!({"metadata": {"name": "dovetail-scheduler"}, "spec": {"holderIdentity": "me"}});
    created(lab, leases, &json!({"metadata": {"name": "another"}}));

    let note = json!({"metadata": {"annotations": {"dovetail.io/plan": "{}"}}});
    let status = json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
    let accepted = json!({"status": {"accepted": true, "message": "in use"}});
    let grouped = json!({"status": {"conditions": [{"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable",
        "message": "", "lastTransitionTime": "2026-11-17T00:00:00Z"}]}});
    let devices = "/apis/resource.k8s.io/v1";
    let claims = format!("{devices}/namespaces/{space}/resourceclaims");
    let claim = json!({"metadata": {"name": "claim"}, "spec": {"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}});
    created(lab, &claims, &claim);
    let kept = json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}});
    let given = json!({"status": {"allocation": {"devices": {"results": [
        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0"}]}},
        "reservedFor": [{"resource": "pods", "name": "bound", "uid": "1"}]}});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"},
        "target": {"kind": "Node", "name": "rights-node"}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}});
    let event = json!({"metadata": {"name": "bound.1"}, "reason": "Scheduled", "type": "Normal",
        "involvedObject": {"kind": "Pod", "namespace": space, "name": "bound"}});
    let histories = format!("{ours}/namespaces/{space}/ganghistories");
    let history = json!({"apiVersion": "dovetail.io/v1alpha1", "kind": "GangHistory", "metadata": {"name": "gang"},
        "spec": {"gang": "gang", "job": 1, "submitted": 1, "pods": 1, "minPods": 1}});
    let suspend = json!({"spec": {"suspend": true}});
    let nothing = json!({});
    let at = |folder: &str, name: &str| format!("{folder}/{name}");
    let elsewhere = |group: &str, plural: &str| format!("/apis/{group}/namespaces/{space}/{plural}/x");

    // In the order of the manifest. `not found` is a sufficient answer for kinds that are not installed.
    let may = [
        ("GET", "/api/v1/nodes".to_owned(), None, 200),
        ("GET", "/api/v1/pods".to_owned(), None, 200),
        ("GET", at(&pods, "bound"), None, 200),
        ("PATCH", at(&pods, "bound"), Some(&note), 200),
        ("PATCH", at(&pods, "bound/status"), Some(&status), 200),
        ("PATCH", at(&pods, "bound/resize"), Some(&nothing), 200),
        ("POST", at(&pods, "bound/binding"), Some(&binding), 201),
        ("POST", at(&pods, "evicted/eviction"), Some(&eviction), 201),
        ("DELETE", at(&pods, "deleted"), None, 200),
        ("POST", at(&core, "events"), Some(&event), 201),
        ("GET", at(devices, "resourceslices"), None, 200),
        ("GET", at(devices, "resourceclaims"), None, 200),
        ("GET", at(&claims, "claim"), None, 200),
        ("PATCH", at(&claims, "claim"), Some(&kept), 200),
        ("PATCH", at(&claims, "claim/status"), Some(&given), 200),
        ("GET", at(&jobs, "job"), None, 200),
        ("PATCH", at(&jobs, "job"), Some(&suspend), 200),
        ("GET", at(&groups, "group"), None, 200),
        ("PATCH", at(&groups, "group/status"), Some(&grouped), 200),
        ("GET", elsewhere("jobset.x-k8s.io/v1alpha2", "jobsets"), None, 404),
        ("GET", elsewhere("kubeflow.org/v1", "pytorchjobs"), None, 404),
        ("GET", elsewhere("kubeflow.org/v1", "tfjobs"), None, 404),
        ("GET", elsewhere("kubeflow.org/v2beta1", "mpijobs"), None, 404),
        ("GET", at(ours, "virtualclusters"), None, 200),
        ("GET", at(ours, "clustertopologies"), None, 200),
        ("GET", at(ours, "schedulingpolicies"), None, 200),
        (
            "PATCH",
            at(ours, "virtualclusters/rights/status"),
            Some(&accepted),
            200,
        ),
        (
            "PATCH",
            at(ours, "clustertopologies/rights/status"),
            Some(&accepted),
            200,
        ),
        (
            "PATCH",
            at(ours, "schedulingpolicies/rights/status"),
            Some(&accepted),
            200,
        ),
        ("GET", at(ours, "ganghistories"), None, 200),
        ("POST", histories.clone(), Some(&history), 201),
        ("PATCH", at(&histories, "gang"), Some(&nothing), 200),
        ("DELETE", at(&histories, "gang"), None, 200),
        ("GET", at(ours, "podprogresses"), None, 200),
        ("POST", leases.to_owned(), Some(&lease), 201),
        ("GET", at(leases, "dovetail-scheduler"), None, 200),
        ("PATCH", at(leases, "dovetail-scheduler"), Some(&nothing), 200),
    ];
    for (method, path, body, expected) in may {
        let answer = lab.request_as(account, method, &path, body).unwrap();
        assert_eq!(answer.status, expected, "{method} {path}: {}", answer.body);
    }
    // With the resource version, like a renewal of the lease.
    let renewed = get(lab, &at(leases, "dovetail-scheduler"));
    let answer = lab.request_as(account, "PUT", &at(leases, "dovetail-scheduler"), Some(&renewed));
    assert_eq!(answer.unwrap().status, 200);
    let client = lab.client_as(account);
    runtime().block_on(async {
        let devices = ["resourceslices", "resourceclaims"].map(|plural| at(devices, plural));
        for path in ["/api/v1/nodes", "/api/v1/pods"]
            .map(str::to_owned)
            .into_iter()
            .chain(devices)
            .chain(kinds.map(|(p, _)| at(ours, p)))
        {
            let watch = client.lines(&format!("{path}?watch=true&timeoutSeconds=1")).await;
            watch.map(drop).unwrap_or_else(|e| panic!("{e}"));
        }
    });

    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let own = "/api/v1/namespaces/dovetail-system";
    let must_not = [
        ("GET", "/api/v1/secrets".to_owned()),
        ("GET", at(&core, "secrets")),
        ("GET", at(own, "secrets")),
        ("GET", "/api/v1/configmaps".to_owned()),
        ("PATCH", at(own, "configmaps/dovetail")),
        ("POST", at(&core, "configmaps")),
        ("POST", pods.clone()),
        ("PUT", at(&pods, "bound")),
        ("DELETE", pods.clone()),
        ("POST", at(&pods, "bound/exec")),
        ("GET", at(&pods, "bound/log")),
        ("PATCH", at(&pods, "bound/ephemeralcontainers")),
        ("POST", "/api/v1/nodes".to_owned()),
        ("GET", "/api/v1/nodes/rights-node".to_owned()),
        ("PATCH", "/api/v1/nodes/rights-node".to_owned()),
        ("PATCH", "/api/v1/nodes/rights-node/status".to_owned()),
        ("DELETE", "/api/v1/nodes/rights-node".to_owned()),
        ("GET", "/api/v1/nodes/rights-node/proxy".to_owned()),
        ("GET", "/api/v1/namespaces".to_owned()),
        ("DELETE", core.clone()),
        ("GET", at(&core, "events")),
        ("GET", "/api/v1/persistentvolumes".to_owned()),
        ("POST", at(own, "serviceaccounts/dovetail/token")),
        (
            "POST",
            "/api/v1/namespaces/kube-system/serviceaccounts".to_owned(),
        ),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/dovetail-system/deployments/dovetail".to_owned(),
        ),
        ("PUT", format!("/apis/apps/v1/namespaces/{space}/deployments/x")),
        ("POST", jobs.clone()),
        ("DELETE", at(&jobs, "job")),
        ("GET", jobs.clone()),
        ("PATCH", elsewhere("kubeflow.org/v1", "pytorchjobs")),
        ("DELETE", at(&groups, "group")),
        ("POST", at(ours, "virtualclusters")),
        ("PATCH", at(ours, "virtualclusters/rights")),
        ("DELETE", at(ours, "virtualclusters/rights")),
        ("PATCH", at(ours, "clustertopologies/rights")),
        ("PATCH", at(ours, "schedulingpolicies/rights")),
        ("GET", at(&histories, "gang")),
        ("DELETE", format!("{ours}/namespaces/{space}/podprogresses/bound")),
        ("GET", at(leases, "another")),
        ("PUT", at(leases, "another")),
        ("DELETE", at(leases, "dovetail-scheduler")),
        (
            "POST",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases".to_owned(),
        ),
        (
            "GET",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/dovetail-scheduler".to_owned(),
        ),
        ("POST", at(rbac, "clusterrolebindings")),
        ("PATCH", at(rbac, "clusterroles/dovetail-scheduler")),
        ("POST", format!("{rbac}/namespaces/dovetail-system/rolebindings")),
        (
            "PATCH",
            format!("{rbac}/namespaces/dovetail-system/roles/dovetail-lease"),
        ),
        (
            "PATCH",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/virtualclusters.dovetail.io".to_owned(),
        ),
        (
            "POST",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations".to_owned(),
        ),
        (
            "POST",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests".to_owned(),
        ),
    ];
    for (method, path) in must_not {
        let body = matches!(method, "POST" | "PUT" | "PATCH").then_some(&nothing);
        let answer = lab.request_as(account, method, &path, body).unwrap();
        assert_eq!(answer.status, 403, "{method} {path}: {}", answer.body);
    }
}

/// Returns every resource of the API server with its group.
async fn resources(client: &Client) -> BTreeSet<(String, String)> {
    let mut paths = vec![(String::new(), "/api/v1".to_owned())];
    let groups: Value = client.get("/apis").await.unwrap();
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let path = format!("/apis/{}", text(version, "/groupVersion"));
            paths.push((text(group, "/name").to_owned(), path));
        }
    }
    let mut all = BTreeSet::new();
    for (group, path) in paths {
        let listed: Value = client.get(&path).await.unwrap();
        for resource in listed["resources"].as_array().unwrap() {
            all.insert((group.clone(), text(resource, "/name").to_owned()));
        }
    }
    // Kinds that are not installed, and resources that exist only for permissions.
    all.extend(
        [
            ("kubeflow.org", "pytorchjobs"),
            ("jobset.x-k8s.io", "jobsets"),
            ("", "users"),
            ("", "groups"),
        ]
        .map(|(group, name)| (group.to_owned(), name.to_owned())),
    );
    all
}

const VERBS: [&str; 11] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "bind",
    "escalate",
    "impersonate",
];

/// Checks whether an account may use a verb on an object, or on all objects of a kind.
async fn may(client: &Client, account: &str, [space, verb, group, name, object]: [&str; 5]) -> bool {
    let (resource, sub) = name.split_once('/').unwrap_or((name, ""));
    let review = json!({"spec": {"user": account, "groups": GROUPS, "resourceAttributes": {"namespace": space,
        "verb": verb, "group": group, "resource": resource, "subresource": sub, "name": object}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer: Value = client.create(path, &review).await.unwrap();
    answer["status"]["allowed"] == true
}

/// Permissions by namespace and resource.
type Rights = BTreeMap<(&'static str, String), Vec<&'static str>>;

/// Returns all permissions of an account in these namespaces.
async fn rights_of(client: &Client, account: &'static str, spaces: &[&'static str]) -> Rights {
    let mut tasks = tokio::task::JoinSet::new();
    for (group, name) in resources(client).await {
        for space in spaces {
            let (client, group, name, space) = (client.clone(), group.clone(), name.clone(), *space);
            tasks.spawn(async move {
                let mut rights = Vec::new();
                for verb in VERBS {
                    if may(&client, account, [space, verb, &group, &name, ""]).await {
                        rights.push(verb);
                    }
                }
                ((space, format!("{group} {name}")), rights)
            });
        }
    }
    let mut found = Rights::new();
    while let Some(done) = tasks.join_next().await {
        let (what, rights) = done.unwrap();
        if !rights.is_empty() {
            found.insert(what, rights);
        }
    }
    found
}

/// Returns the permissions of a list.
fn listed(rows: &[(&'static str, &[(&str, &'static str)])]) -> Rights {
    let mut all = Rights::new();
    for (space, rows) in rows {
        for (resource, verbs) in *rows {
            all.insert((*space, (*resource).to_owned()), verbs.split(' ').collect());
        }
    }
    all
}

#[test]
fn the_account_has_exactly_these_permissions() {
    let everywhere = [
        (" nodes", "list watch"),
        (" pods", "get list watch patch delete"),
        (" pods/binding", "create"),
        (" pods/eviction", "create"),
        (" pods/resize", "patch"),
        (" pods/status", "patch"),
        (" events", "create"),
        ("resource.k8s.io resourceslices", "list watch"),
        ("resource.k8s.io resourceclaims", "get list watch patch"),
        ("resource.k8s.io resourceclaims/status", "patch"),
        ("batch jobs", "get patch"),
        ("jobset.x-k8s.io jobsets", "get"),
        ("scheduling.k8s.io podgroups", "get"),
        ("scheduling.k8s.io podgroups/status", "patch"),
        ("kubeflow.org pytorchjobs", "get"),
        ("dovetail.io virtualclusters", "list watch"),
        ("dovetail.io clustertopologies", "list watch"),
        ("dovetail.io schedulingpolicies", "list watch"),
        ("dovetail.io virtualclusters/status", "patch"),
        ("dovetail.io clustertopologies/status", "patch"),
        ("dovetail.io schedulingpolicies/status", "patch"),
        ("dovetail.io ganghistories", "list create patch delete"),
        // To write them is a permission of all service accounts.
        ("dovetail.io podprogresses", "list watch create patch"),
    ];
    let at_home = [("coordination.k8s.io leases", "create")];
    let Some((lab, _)) = installed() else { return };
    let found = runtime().block_on(rights_of(&lab.client(), ACCOUNT, &["default", "dovetail-system"]));
    let expected = listed(&[
        ("default", &everywhere),
        ("dovetail-system", &everywhere),
        ("dovetail-system", &at_home),
    ]);
    assert_eq!(found, expected);
}

#[test]
fn the_page_adds_exactly_these_permissions() {
    // Permissions add up, so those of the page are checked on an account without others.
    const PAGE: &str = "system:serviceaccount:dovetail-system:only-the-page";
    let Some((lab, _)) = installed() else { return };
    let client = lab.client();
    created(
        lab,
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "training"}}),
    );
    runtime().block_on(async {
        for mut object in page() {
            if let Some(subject) = object.pointer_mut("/subjects/0") {
                let theirs =
                    json!({"kind": "ServiceAccount", "name": "dovetail", "namespace": "dovetail-system"});
                assert_eq!(*subject, theirs);
                subject["name"] = json!("only-the-page");
            }
            let done: Result<Value, _> = client.apply(&path(&object), "install", &object).await;
            done.unwrap_or_else(|e| panic!("{:?}: {e}", id(&object)));
        }
    });
    let allowed = |what: [&str; 5]| runtime().block_on(may(&client, PAGE, what));
    for (space, group, name) in [("dovetail-system", "", "secrets"), ("training", "batch", "jobs")] {
        until("the account has its rights", || {
            allowed([space, "create", group, name, ""]).then_some(())
        });
    }
    let spaces = ["default", "dovetail-system", "training"];
    let found = runtime().block_on(rights_of(&client, PAGE, &spaces));
    let in_training = [
        ("batch jobs", "list create delete"),
        (" secrets", "create patch delete"),
        (" services", "create patch delete"),
        (" pods/log", "get"),
    ];
    // A permission of all service accounts.
    let progress = [("dovetail.io podprogresses", "create patch")];
    let expected = listed(&[
        ("default", &progress),
        ("dovetail-system", &progress),
        ("dovetail-system", &[(" secrets", "create")]),
        ("training", &progress),
        ("training", &in_training),
    ]);
    assert_eq!(found, expected);
    // In its namespace only its own Secret is read and changed; Secrets of jobs are never read.
    for verb in VERBS {
        let may_home = |name: &str| allowed(["dovetail-system", verb, "", "secrets", name]);
        let is_own = matches!(verb, "get" | "patch" | "create");
        assert_eq!(may_home("dovetail-page"), is_own, "{verb}");
        assert_eq!(may_home("another"), verb == "create", "{verb}");
    }
}

/// Returns the arguments of the `kubectl` command in the documentation that shows why pods wait.
fn why_line() -> Vec<String> {
    let docs = deploy("../docs/kubernetes.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let line = docs
        .lines()
        .find(|l| l.starts_with("kubectl get pods -o custom-columns="));
    let (start, columns) = line.unwrap().split_once('\'').unwrap();
    let mut words: Vec<String> = start.split_whitespace().skip(1).map(str::to_owned).collect();
    words.last_mut().unwrap().push_str(columns.trim_end_matches('\''));
    words
}

/// Returns all objects of a release.
fn of_release(lab: &Lab) -> Vec<String> {
    let kinds = "deployment,service,configmap,serviceaccount,poddisruptionbudget,role,rolebinding,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding";
    let args = [
        "get",
        kinds,
        "-A",
        "-l",
        "app.kubernetes.io/name=dovetail",
        "-o",
        "name",
    ];
    printed(lab.kubectl(&args)).lines().map(str::to_owned).collect()
}

#[test]
fn helm_installs_upgrades_and_removes_the_manifest() {
    let Some(lab) = Lab::start_or_skip(&Settings::default()) else {
        return;
    };
    let chart = deploy("helm/dovetail");
    let chart = chart.to_str().unwrap();
    let helm = |args: &[&str]| printed(lab.helm(&[args, &["-n", "dovetail-system"]].concat()));
    helm(&["install", "dovetail", chart, "--create-namespace"]);
    settle(&lab);
    let unlike = |manifest: &[Value]| -> Vec<(String, String)> {
        let there = |o: &&Value| lab.request("GET", &path(o), None).unwrap().status != 200;
        manifest.iter().filter(there).map(id).collect()
    };
    assert_eq!(unlike(&manifest()), []);
    let plain = of_release(&lab);
    // Helm does not update existing CRDs; the documented command does.
    let kinds = std::fs::read_to_string(deploy("helm/dovetail/crds/dovetail.yaml")).unwrap();
    let newer = lab.folder().join("newer.yaml");
    std::fs::write(
        &newer,
        kinds.replace("shortNames: [vc]", "shortNames: [vc, virtual]"),
    )
    .unwrap();
    let docs = std::fs::read_to_string(deploy("../docs/kubernetes.md")).unwrap();
    assert!(docs.contains("`kubectl apply --server-side --force-conflicts -f deploy/helm/dovetail/crds`"));
    let newer = newer.to_str().unwrap();
    let rejected = lab.kubectl(&["apply", "--server-side", "-f", newer]).unwrap();
    let output_text = String::from_utf8_lossy(&rejected.stderr);
    assert!(output_text.contains(r#"conflict with "helm""#), "{output_text}");
    printed(lab.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", newer]));
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/virtualclusters.dovetail.io";
    assert_eq!(
        get(&lab, crd)["spec"]["names"]["shortNames"],
        json!(["vc", "virtual"])
    );

    printed(lab.kubectl(&["create", "namespace", "training"]));
    helm(&[
        "upgrade",
        "dovetail",
        chart,
        "--set",
        "page.enabled=true,page.namespace=training",
    ]);
    assert_eq!(unlike(&page()), []);
    let deployment = "/apis/apps/v1/namespaces/dovetail-system/deployments/dovetail";
    assert_eq!(get(&lab, deployment)["spec"]["replicas"], 1);
    helm(&["rollback", "dovetail", "1"]);
    assert_eq!(of_release(&lab), plain, "the page is gone again");
    assert_eq!(get(&lab, deployment)["spec"]["replicas"], 2);
    let shown = helm(&["list"]);
    assert_eq!(
        words(&shown)[1][..3],
        ["dovetail", "dovetail-system", "3"],
        "{shown}"
    );

    helm(&["uninstall", "dovetail"]);
    until("nothing is left of it", || {
        of_release(&lab).is_empty().then_some(())
    });
    // CRDs stay, and with them the virtual clusters.
    printed(lab.kubectl(&["get", "vc"]));
}

/// A common PyTorchJob with one more line: `schedulerName`.
const TRAINING: &str = "
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: mnist
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          schedulerName: dovetail
          containers:
          - name: pytorch
            image: mnist:1
            args: [--backend, nccl]
            resources: {limits: {nvidia.com/gpu: 2}}
    Worker:
      replicas: 3
      restartPolicy: OnFailure
      template:
        spec:
          schedulerName: dovetail
          containers:
          - name: pytorch
            image: mnist:1
            args: [--backend, nccl]
            resources: {limits: {nvidia.com/gpu: 2}}
";

/// Returns the pods that its operator creates.
fn replicas(job: &Value) -> Vec<Value> {
    let name = text(job, "/metadata/name");
    let mut pods = Vec::new();
    for (role, replica) in job["spec"]["pytorchReplicaSpecs"].as_object().unwrap() {
        let role = role.to_lowercase();
        for index in 0..replica["replicas"].as_u64().unwrap() {
            let mut spec = replica["template"]["spec"].clone();
            spec["restartPolicy"] = replica["restartPolicy"].clone();
            pods.push(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("{name}-{role}-{index}"), "labels": {
                    "training.kubeflow.org/job-name": name, "training.kubeflow.org/operator-name": "pytorchjob-controller",
                    "training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": index.to_string()},
                    "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name,
                        "uid": job["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}]},
                "spec": spec}));
        }
    }
    pods
}

fn kubeflow(lab: &Lab) {
    let crd = json!({"metadata": {"name": "pytorchjobs.kubeflow.org"}, "spec": {"group": "kubeflow.org", "scope": "Namespaced",
        "names": {"kind": "PyTorchJob", "plural": "pytorchjobs", "singular": "pytorchjob"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    created(
        lab,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &crd,
    );
    until("PyTorchJobs are served", || {
        let answer = lab.request("GET", "/apis/kubeflow.org/v1/pytorchjobs", None);
        (answer.unwrap().status == 200).then_some(())
    });
}

#[test]
fn a_pytorch_job_starts_together_after_kubectl_apply() {
    let Some(lab) = Lab::start_or_skip(&Settings::default()) else {
        return;
    };
    let kubectl = |args: &[&str]| printed(lab.kubectl(args));
    let file = deploy("kubernetes/dovetail.yaml");
    let page = deploy("kubernetes/page.yaml");
    kubectl(&["apply", "-f", file.to_str().unwrap()]);
    kubectl(&["create", "namespace", "training"]);
    kubectl(&["apply", "-f", page.to_str().unwrap()]);
    // A second apply changes nothing. For budgets, kubectl always prints `configured`.
    for file in [&file, &page] {
        let output_text = kubectl(&["apply", "-f", file.to_str().unwrap()]);
        let same = |l: &str| l.ends_with(" unchanged") || l.starts_with("poddisruptionbudget.policy/");
        assert!(output_text.lines().all(same), "{output_text}");
    }
    // The label that the documentation uses for logs.
    let labels = "jsonpath={.spec.template.metadata.labels.app\\.kubernetes\\.io/component}";
    let scheduler = [
        "-n",
        "dovetail-system",
        "get",
        "deployment",
        "dovetail",
        "-o",
        labels,
    ];
    assert_eq!(kubectl(&scheduler), "scheduler");
    let account = settle(&lab);
    kubeflow(&lab);
    lab.create_nodes("gpu-", 2, &NodeShape::with_gpus(4)).unwrap();
    let space = lab.namespace("vision").unwrap();
    let cluster = json!({"apiVersion": "dovetail.io/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": space},
        "spec": {"guaranteedGpus": 8}});
    created(&lab, "/apis/dovetail.io/v1alpha1/virtualclusters", &cluster);

    let runtime = runtime();
    let client = lab.client_as(&account);
    let work = runtime.spawn(async move {
        let lease = LeaseSettings::new("dovetail-system", "dovetail-scheduler", "test");
        let mut elector = Elector::new(client.clone(), lease);
        let settings = SchedulerSettings {
            explain_every: Duration::from_millis(200),
            ..SchedulerSettings::default()
        };
        let features = ClusterFeatures::discover(&client).await.unwrap();
        assert_eq!(features, ClusterFeatures::ALL, "the account may resize pods");
        let scheduler = Scheduler::new(client, settings, features).unwrap();
        elector.win().await;
        let leadership = elector.leadership();
        tokio::select! {
            ended = scheduler.run(leadership) => panic!("it has ended: {ended:?}"),
            why = elector.keep() => panic!("{why}"),
        }
    });

    let job: Value = serde_saphyr::from_str(TRAINING).unwrap();
    let job = created(
        &lab,
        &format!("/apis/kubeflow.org/v1/namespaces/{space}/pytorchjobs"),
        &job,
    );
    let mut pods = replicas(&job);
    assert_eq!(pods.len(), 4);
    let folder = format!("/api/v1/namespaces/{space}/pods");
    let there = || get(&lab, &folder)["items"].as_array().unwrap().clone();
    let last = pods.pop().unwrap();
    for pod in &pods {
        created(&lab, &folder, pod);
    }
    until("three pods are told that the fourth is missing", || {
        assert!(!work.is_finished());
        let told = |pod: &Value| {
            assert_eq!(text(pod, "/spec/nodeName"), "", "before the gang is whole");
            let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
            conditions.into_iter().flatten().any(|c| {
                c["type"] == "PodScheduled"
                    && c["reason"] == "GangIncomplete"
                    && text(c, "/message").ends_with("has 3 of 4 pods")
            })
        };
        there().iter().all(told).then_some(())
    });
    let why = why_line();
    let why: Vec<&str> = ["-n", &space]
        .into_iter()
        .chain(why.iter().map(String::as_str))
        .collect();
    let shown = kubectl(&why);
    assert_eq!(words(&shown)[0], ["NAME", "NODE", "GPUS", "WHY"]);
    assert_eq!(shown.lines().count(), 4);
    for line in shown.lines().skip(1) {
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>()[1..3],
            ["<none>", "<none>"],
            "{line}"
        );
        assert!(line.ends_with("has 3 of 4 pods"), "{line}");
    }
    created(&lab, &folder, &last);
    let bound = until("all four are bound", || {
        let all = there();
        all.iter()
            .all(|p| !text(p, "/spec/nodeName").is_empty())
            .then_some(all)
    });
    let annotation = |pod: &Value, key: &str| pod["metadata"]["annotations"][key].clone();
    let mut gpus = BTreeSet::new();
    for pod in &bound {
        assert_eq!(
            annotation(pod, "dovetail.io/job"),
            annotation(&bound[0], "dovetail.io/job")
        );
        for gpu in annotation(pod, "dovetail.io/gpus").as_str().unwrap().split(',') {
            gpus.insert((text(pod, "/spec/nodeName").to_owned(), gpu.to_owned()));
        }
    }
    assert_eq!(gpus.len(), 8, "each GPU is given once: {gpus:?}");
    assert_eq!(
        bound
            .iter()
            .filter(|p| !annotation(p, "dovetail.io/plan").is_null())
            .count(),
        1
    );

    let cluster = format!("/apis/dovetail.io/v1alpha1/virtualclusters/{space}");
    until("the virtual cluster has a status", || {
        let status = get(&lab, &cluster)["status"].clone();
        (status["accepted"] == true && status["used"] == 8 && status["running"] == 1).then_some(())
    });
    let event = until("there is an event", || {
        let events = get(&lab, &format!("/api/v1/namespaces/{space}/events"));
        events["items"].as_array().unwrap().first().cloned()
    });
    assert_eq!(event["reason"], "Scheduled");
    let shown = kubectl(&why);
    for line in &words(&shown)[1..] {
        let at = bound
            .iter()
            .find(|pod| text(pod, "/metadata/name") == line[0])
            .unwrap();
        let gpus = annotation(at, "dovetail.io/gpus");
        assert_eq!(
            line[1..],
            [text(at, "/spec/nodeName"), gpus.as_str().unwrap(), "<none>"]
        );
    }
    let shown = kubectl(&["get", "vc"]);
    let head = [
        "NAME",
        "GUARANTEED",
        "USED",
        "RUNNING",
        "WAITING",
        "ACCEPTED",
        "AGE",
    ];
    assert_eq!(words(&shown)[0], head);
    assert_eq!(
        words(&shown)[1][..6],
        [space.as_str(), "8", "8", "1", "0", "true"]
    );
    let policies = "/apis/dovetail.io/v1alpha1/schedulingpolicies";
    for (name, policy) in [("b", "fifo"), ("a", "srsf"), ("c", "srsf")] {
        let policy = json!({"apiVersion": "dovetail.io/v1alpha1", "kind": "SchedulingPolicy", "metadata": {"name": name},
            "spec": {"policy": policy}});
        created(&lab, policies, &policy);
    }
    until(
        "one policy is in use, and the others show that they are not",
        || {
            let status = |name: &str| get(&lab, &format!("{policies}/{name}"))["status"].clone();
            let rest = ["b", "c"].map(status);
            let told = rest
                .iter()
                .all(|s| s["accepted"] == false && text(s, "/message").contains("SchedulingPolicy a"));
            (status("a")["accepted"] == true && told).then_some(())
        },
    );
    // A policy that also fits the guarantees of the virtual cluster.
    let elastic = json!({"spec": {"policy": "elastic-fifo"}}).to_string();
    kubectl(&["patch", "schedulingpolicies", "a", "--type=merge", "-p", &elastic]);
    until("a policy that Kubernetes cannot carry out is refused", || {
        let status = get(&lab, &format!("{policies}/a"))["status"].clone();
        let message = text(&status, "/message").to_owned();
        let is_refused = status["accepted"] == false && message.contains("which Kubernetes does not support");
        (is_refused && status["conditions"][0]["status"] == "False").then_some(())
    });
    until("an event reports it", || {
        let events = get(&lab, "/api/v1/namespaces/default/events");
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let reported = |e: &Value| {
            e["reason"] == "PolicyRefused"
                && text(e, "/message").contains("which Kubernetes does not support")
        };
        events.iter().any(reported).then_some(())
    });
    work.abort();
}
