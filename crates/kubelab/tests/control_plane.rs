//! The control plane is a real one, and its processes come and go as they are told.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dovetail_kubeapi::List;
use dovetail_kubelab::{Lab, Part, Settings, binary_or_skip, shared};
use serde_json::{Value, json};

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"mine": "yes"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]}})
}

fn create(lab: &Lab, path: &str, body: &Value) -> Value {
    let answer = lab.request("POST", path, Some(body)).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.body
}

fn get(lab: &Lab, path: &str) -> Value {
    let answer = lab.request("GET", path, None).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

#[test]
fn an_object_that_is_created_is_there_in_the_version_that_was_built() {
    let Some(lab) = shared() else { return };
    let space = lab.namespace("objects").unwrap();
    let pods = format!("/api/v1/namespaces/{space}/pods");
    create(lab, &pods, &pod("a"));
    assert_eq!(get(lab, &format!("{pods}/a"))["status"]["phase"], "Pending");
    assert_eq!(get(lab, "/version")["minor"], "36");
}

#[test]
fn a_user_may_do_what_it_was_given_and_no_more() {
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
    let given = json!({"metadata": {"name": "green-looks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "look"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "green"}]});
    create(lab, &format!("{rights}/rolebindings"), &given);
    until("eve may look", || status("GET", &pods, None) == 200);
    assert_eq!(status("POST", &pods, Some(&pod("a"))), 403);
    assert_eq!(status("GET", "/api/v1/pods", None), 403);
}

#[test]
fn whoever_shows_no_certificate_of_the_authority_is_nobody() {
    let Some(lab) = shared() else { return };
    let other = dovetail_kubelab::Authority::new().unwrap();
    let impostor = other.user("kubelab-admin", &["system:masters"]).unwrap();
    let answer = lab.request_as(&impostor, "GET", "/api/v1/pods", None);
    assert!(answer.is_err() || answer.unwrap().status == 401);
}

#[test]
fn a_binding_says_where_and_its_annotations_and_labels_go_to_the_pod() {
    let Some(lab) = shared() else { return };
    let space = lab.namespace("binding").unwrap();
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let made = create(lab, &pods, &pod("a"));
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
    let uid = made["metadata"]["uid"].as_str().unwrap();
    assert_eq!(post(uid), 201);
    assert_eq!(post(uid), 409, "it is bound");
    let bound = get(lab, &format!("{pods}/a"));
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["metadata"]["annotations"]["lab/gpus"], "0,1");
    assert_eq!(bound["metadata"]["labels"], json!({"mine": "still", "job": "7"}));
}

#[test]
fn the_gang_api_is_there_when_it_is_asked_for() {
    let Some(lab) = shared() else { return };
    let space = lab.namespace("gang").unwrap();
    let groups = format!("/apis/scheduling.k8s.io/v1alpha2/namespaces/{space}/podgroups");
    let group = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}});
    let made = create(lab, &groups, &group);
    assert_eq!(made["spec"]["schedulingPolicy"]["gang"]["minCount"], 4);
    let mut member = pod("a");
    member["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
    let pods = format!("/api/v1/namespaces/{space}/pods");
    create(lab, &pods, &member);
    let there = get(lab, &format!("{pods}/a"));
    assert_eq!(there["spec"]["schedulingGroup"], json!({"podGroupName": "g"}));
}

#[test]
fn devices_of_a_claim_are_given_by_writing_its_status() {
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
        let answer = lab.request("PATCH", path, Some(body)).unwrap();
        (answer.status, answer.body)
    };
    let protect = json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}});
    assert_eq!(patch(&format!("{claims}/c"), &protect).0, 200);
    let on_n1 = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]});
    let given = json!({"status": {
        "allocation": {"nodeSelector": on_n1, "devices": {"results": [
            {"request": "gpu", "driver": "gpu.lab", "pool": "n1", "device": "gpu-0"}]}},
        "reservedFor": [{"resource": "pods", "name": "a", "uid": asking["metadata"]["uid"]}]}});
    let (status, body) = patch(&format!("{claims}/c/status"), &given);
    assert_eq!(status, 200, "{body}");
    assert_eq!(
        body["status"]["allocation"]["devices"],
        given["status"]["allocation"]["devices"]
    );
    assert_eq!(body["status"]["reservedFor"], given["status"]["reservedFor"]);
}

#[test]
fn objects_outlive_an_api_server_that_is_killed_and_all_ends_with_the_lab() {
    let Some(lab) = Lab::start_or_skip(&Settings::default()) else {
        return;
    };
    let space = lab.namespace("killed").unwrap();
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let before = create(&lab, &pods, &pod("a"));
    let used = lab.cpu(Part::ApiServer);
    assert!(used > Duration::ZERO);
    let first = lab.process(Part::ApiServer).unwrap();
    lab.kill(Part::ApiServer);
    assert!(lab.request("GET", "/version", None).is_err());
    assert_eq!(lab.process(Part::ApiServer), None);
    lab.launch(Part::ApiServer).unwrap();
    assert_ne!(lab.process(Part::ApiServer).unwrap(), first);
    let after = get(&lab, &format!("{pods}/a"));
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(lab.cpu(Part::ApiServer) > used, "time of launches before counts");
    lab.kill(Part::Etcd);
    lab.launch(Part::Etcd).unwrap();
    lab.restart(Part::ApiServer).unwrap();
    get(&lab, &format!("{pods}/a"));

    let processes: Vec<u32> = lab.parts().iter().filter_map(|p| lab.process(*p)).collect();
    assert_eq!(processes.len(), 2);
    let folder = lab.folder().to_owned();
    drop(lab);
    for id in processes {
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }
    assert!(!folder.exists());
}

#[test]
fn a_component_ends_with_whoever_started_it_and_takes_a_marked_folder_along() {
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
        // The last files it makes at its start: whatever is made while the folder goes would keep it.
        let made = ["snap/db", "wal/0.tmp"].map(|file| folder.path().join("etcd/member").join(file));
        until("there is data", || made.iter().all(|file| file.exists()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(folder.path().exists(), !marked);
    }
}

#[test]
fn a_component_that_does_not_start_says_why() {
    if binary_or_skip().is_none() {
        return;
    }
    let wrong = Settings {
        api_server: vec!["--no-such-flag".to_owned()],
        ..Settings::default()
    };
    let error = Lab::start(&wrong).unwrap_err().to_string();
    assert!(error.contains("kube-apiserver ended"), "{error}");
    assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
}

#[test]
fn a_list_has_everything_that_was_written_before() {
    let Some(lab) = shared() else { return };
    let space = lab.namespace("lists").unwrap();
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let client = lab.client();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        // A leader that takes over must see what the one before has bound a moment ago.
        for i in 0..200 {
            let made: Value = client.create(&pods, &pod(&format!("p{i}"))).await.unwrap();
            let list: List<Value> = client.list(&pods, "").await.unwrap();
            let has = |p: &Value| p["metadata"]["uid"] == made["metadata"]["uid"];
            assert!(list.items.iter().any(has), "pod {i} of {}", list.items.len());
        }
    });
}
