//! The control plane is a real one, and its processes can be stopped, killed and started again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dovetail_kubeapi::List;
use dovetail_kubelab::{Component, Lab, Settings, binary_or_skip, shared};
use serde_json::{Value, json};

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"mine": "yes"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]}})
}

fn create(lab: &Lab, path: &str, body: &Value) -> Value {
    let response = lab.request("POST", path, Some(body)).unwrap();
    assert_eq!(response.status, 201, "{}", response.body);
    response.body
}

fn get(lab: &Lab, path: &str) -> Value {
    let response = lab.request("GET", path, None).unwrap();
    assert_eq!(response.status, 200, "{}", response.body);
    response.body
}

#[test]
fn a_created_object_exists_and_the_server_has_the_built_version() {
    let Some(lab) = shared() else { return };
    let space = lab.namespace("objects").unwrap();
    let pods = format!("/api/v1/namespaces/{space}/pods");
    create(lab, &pods, &pod("a"));
    assert_eq!(get(lab, &format!("{pods}/a"))["status"]["phase"], "Pending");
    assert_eq!(get(lab, "/version")["minor"], "36");
}

#[test]
fn a_user_has_only_the_rights_that_a_role_grants() {
    let Some(lab) = shared() else { return };
    let space = lab.namespace("rights").unwrap();
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let eve = lab.authority().user("eve", &["blue", "green"]).unwrap();
    let status =
        |method, path: &str, body: Option<&Value>| lab.request_as(&eve, method, path, body).unwrap().status;
    assert_eq!(status("GET", &pods, None), 403);
    let rights = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{space}");
    let role = json!({"metadata": {"name": "look"}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]});
    create(lab, &format!("{rights}/roles"), &role);
    let binding = json!({"metadata": {"name": "green-looks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "look"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "green"}]});
    create(lab, &format!("{rights}/rolebindings"), &binding);
    until("eve may list pods", || status("GET", &pods, None) == 200);
    assert_eq!(status("POST", &pods, Some(&pod("a"))), 403);
    assert_eq!(status("GET", "/api/v1/pods", None), 403);
}

#[test]
fn a_certificate_of_another_authority_is_rejected() {
    let Some(lab) = shared() else { return };
    let other = dovetail_kubelab::Authority::new().unwrap();
    let impostor = other.user("kubelab-admin", &["system:masters"]).unwrap();
    let response = lab.request_as(&impostor, "GET", "/api/v1/pods", None);
    assert!(response.is_err() || response.unwrap().status == 401);
}

#[test]
fn a_binding_sets_node_annotations_and_labels_of_the_pod() {
    let Some(lab) = shared() else { return };
    let space = lab.namespace("binding").unwrap();
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let created = create(lab, &pods, &pod("a"));
    let binding = |uid: &str| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a", "uid": uid,
            "annotations": {"lab/gpus": "0,1"}, "labels": {"mine": "still", "job": "7"}},
            "target": {"kind": "Node", "name": "n1"}})
    };
    let path = format!("{pods}/a/binding");
    let post = |uid: &str| lab.request("POST", &path, Some(&binding(uid))).unwrap().status;
    assert_eq!(
        post("00000000-0000-0000-0000-000000000000"),
        409,
        "another pod of that name"
    );
    let uid = created["metadata"]["uid"].as_str().unwrap();
    assert_eq!(post(uid), 201);
    assert_eq!(post(uid), 409, "already bound");
    let bound = get(lab, &format!("{pods}/a"));
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["metadata"]["annotations"]["lab/gpus"], "0,1");
    assert_eq!(bound["metadata"]["labels"], json!({"mine": "still", "job": "7"}));
}

#[test]
fn the_gang_api_is_available_if_enabled() {
    let Some(lab) = shared() else { return };
    let space = lab.namespace("gang").unwrap();
    let groups = format!("/apis/scheduling.k8s.io/v1alpha2/namespaces/{space}/podgroups");
    let group = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}});
    let created = create(lab, &groups, &group);
    assert_eq!(created["spec"]["schedulingPolicy"]["gang"]["minCount"], 4);
    let mut member = pod("a");
    member["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
    let pods = format!("/api/v1/namespaces/{space}/pods");
    create(lab, &pods, &member);
    let stored = get(lab, &format!("{pods}/a"));
    assert_eq!(stored["spec"]["schedulingGroup"], json!({"podGroupName": "g"}));
}

#[test]
fn writing_the_status_of_a_claim_allocates_its_devices() {
    let Some(lab) = shared() else { return };
    let space = lab.namespace("devices").unwrap();
    let api = "/apis/resource.k8s.io/v1";
    create(
        lab,
        &format!("{api}/deviceclasses"),
        &json!({"metadata": {"name": "gpu"}}),
    );
    let slice = json!({"metadata": {"name": "n1-gpus"}, "spec": {"driver": "gpu.lab", "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0"}]}});
    create(lab, &format!("{api}/resourceslices"), &slice);
    let claims = format!("{api}/namespaces/{space}/resourceclaims");
    let claim = json!({"metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}});
    create(lab, &claims, &claim);
    let mut asking = pod("a");
    asking["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    asking["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    let asking = create(lab, &format!("/api/v1/namespaces/{space}/pods"), &asking);

    let patch = |path: &str, body: &Value| {
        let response = lab.request("PATCH", path, Some(body)).unwrap();
        (response.status, response.body)
    };
    let protect = json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}});
    assert_eq!(patch(&format!("{claims}/c"), &protect).0, 200);
    let on_n1 = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]});
    let allocation = json!({"status": {
        "allocation": {"nodeSelector": on_n1, "devices": {"results": [
            {"request": "gpu", "driver": "gpu.lab", "pool": "n1", "device": "gpu-0"}]}},
        "reservedFor": [{"resource": "pods", "name": "a", "uid": asking["metadata"]["uid"]}]}});
    let (status, body) = patch(&format!("{claims}/c/status"), &allocation);
    assert_eq!(status, 200, "{body}");
    assert_eq!(
        body["status"]["allocation"]["devices"],
        allocation["status"]["allocation"]["devices"]
    );
    assert_eq!(body["status"]["reservedFor"], allocation["status"]["reservedFor"]);
}

#[test]
fn objects_survive_a_killed_api_server_and_all_processes_end_with_the_lab() {
    let Some(lab) = Lab::start_or_skip(&Settings::default()) else {
        return;
    };
    let space = lab.namespace("killed").unwrap();
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let before = create(&lab, &pods, &pod("a"));
    let used = lab.cpu(Component::ApiServer);
    assert!(used > Duration::ZERO);
    let first = lab.process(Component::ApiServer).unwrap();
    lab.kill(Component::ApiServer);
    assert!(lab.request("GET", "/version", None).is_err());
    assert_eq!(lab.process(Component::ApiServer), None);
    lab.launch(Component::ApiServer).unwrap();
    assert_ne!(lab.process(Component::ApiServer).unwrap(), first);
    let after = get(&lab, &format!("{pods}/a"));
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(
        lab.cpu(Component::ApiServer) > used,
        "CPU time of earlier launches counts"
    );
    lab.kill(Component::Etcd);
    lab.launch(Component::Etcd).unwrap();
    lab.restart(Component::ApiServer).unwrap();
    get(&lab, &format!("{pods}/a"));

    let processes: Vec<u32> = lab.components().iter().filter_map(|p| lab.process(*p)).collect();
    assert_eq!(processes.len(), 2);
    let folder = lab.folder().to_owned();
    drop(lab);
    for id in processes {
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }
    assert!(!folder.exists());
}

#[test]
fn a_component_ends_with_its_parent_and_removes_a_marked_folder() {
    let Some(binary) = binary_or_skip() else { return };
    for marked in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        if marked {
            std::fs::write(folder.path().join(".kubelab"), "").unwrap();
        }
        let mut child = Command::new(&binary)
            .arg("etcd")
            .arg(format!("--data-dir={}", folder.path().join("etcd").display()))
            .args(["--client-url=http://127.0.0.1:0", "--peer-url=http://127.0.0.1:0"])
            .env("KUBELAB_FOLDER", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The last files of its start: a file created while the folder is being removed would keep the folder.
        let files = ["snap/db", "wal/0.tmp"].map(|file| folder.path().join("etcd/member").join(file));
        until("etcd has written its files", || {
            files.iter().all(|file| file.exists())
        });
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(folder.path().exists(), !marked);
    }
}

#[test]
fn a_component_that_does_not_start_reports_why() {
    if binary_or_skip().is_none() {
        return;
    }
    let invalid = Settings {
        api_server: vec!["--no-such-flag".to_owned()],
        ..Settings::default()
    };
    let error = Lab::start(&invalid).unwrap_err().to_string();
    assert!(error.contains("kube-apiserver ended"), "{error}");
    assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
}

#[test]
fn a_list_contains_everything_written_before() {
    let Some(lab) = shared() else { return };
    let space = lab.namespace("lists").unwrap();
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let client = lab.client();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        // A new leader must see the pods that the previous one bound a moment ago.
        for i in 0..200 {
            let created: Value = client.create(&pods, &pod(&format!("p{i}"))).await.unwrap();
            let list: List<Value> = client.list(&pods, "").await.unwrap();
            let has = |p: &Value| p["metadata"]["uid"] == created["metadata"]["uid"];
            assert!(list.items.iter().any(has), "pod {i} of {}", list.items.len());
        }
    });
}
