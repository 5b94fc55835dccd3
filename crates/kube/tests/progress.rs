//! Progress of pods on a real API server: a script with the Python package reports with the token of its pod.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dovetail_cluster::JobState;
use dovetail_cluster::state::{EstimateSource, JobRecord};
use dovetail_kubelab::{Settings, Subprocess};
use dovetail_model::Time;
use serde_json::{Value, json};
use support::{API, Cluster, pod};

/// Applies the objects of the manifest that let pods report.
fn permit_reports(cluster: &Cluster) {
    let manifest = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/kubernetes/dovetail.yaml"
    );
    let text = std::fs::read_to_string(manifest).unwrap();
    let mut applied = 0;
    for one in text.split("\n---\n").skip(1) {
        let object: Value = serde_saphyr::from_str(one).unwrap();
        if object["metadata"]["name"] != "dovetail-progress" {
            continue;
        }
        let plural = match object["kind"].as_str().unwrap() {
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let path = format!("/apis/{}/{plural}", object["apiVersion"].as_str().unwrap());
        cluster.ask("POST", &path, Some(&object));
        applied += 1;
    }
    assert_eq!(applied, 4, "role, binding, policy and its binding");
}

/// Creates a pod with a service account, waits until it runs, and writes what Kubernetes mounts into it to a folder.
fn start_pod(cluster: &Cluster, name: &str, folder: &Path) {
    let mut pod = pod(name, 1, &json!({}));
    pod["spec"]["serviceAccountName"] = json!("trainer");
    cluster.make(&pod);
    cluster.until("the pod runs", || cluster.phase(name) == "Running");
    let uid = cluster.get(name).unwrap()["metadata"]["uid"].clone();
    let request = json!({"spec": {"expirationSeconds": 3600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}}});
    let path = format!(
        "/api/v1/namespaces/{}/serviceaccounts/trainer/token",
        cluster.space
    );
    let token = cluster.ask("POST", &path, Some(&request));
    std::fs::write(folder.join("token"), token["status"]["token"].as_str().unwrap()).unwrap();
    std::fs::write(folder.join("ca.crt"), cluster.lab.authority().certificate()).unwrap();
}

/// Runs a script as in the pod whose account is in the folder.
fn run(cluster: &Cluster, folder: &Path, script: &str) -> Subprocess {
    let mut command = Command::new("python3");
    command
        .args(["-c", script])
        .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../../python"))
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", cluster.lab.port().to_string())
        .env("DOVETAIL_ACCOUNT_DIR", folder)
        .stdin(Stdio::null());
    Subprocess::spawn(&mut command).unwrap()
}

fn reported(cluster: &Cluster, pod: &str) -> Option<Value> {
    let path = format!("{API}/namespaces/{}/podprogresses/{pod}", cluster.space);
    let answer = cluster.lab.request("GET", &path, None).unwrap();
    (answer.status == 200).then(|| answer.body["spec"].clone())
}

/// Reads the job of a pod from the cluster state of the scheduler.
fn job<T>(cluster: &Cluster, pod: &str, read: impl FnOnce(&JobRecord) -> T) -> T {
    let name = format!("{}/{pod}", cluster.space);
    let handle = cluster.handle.as_ref().unwrap();
    handle.read(|state| read(state.jobs().find(|job| job.request.name == name).unwrap()))
}

/// Waits until the API server accepts reports of a pod about itself.
fn await_permission(cluster: &Cluster, folder: &Path) {
    const OWN: &str =
        "import dovetail.kubernetes as k\nraise SystemExit(k.find_pod().report({'step': 1}, 10) - 200)";
    cluster.until("the permissions are in force", || {
        let mut own = run(cluster, folder, OWN);
        matches!(own.wait().unwrap().code(), Some(0 | 1))
    });
}

const STEADY: &str = "
import time, dovetail
for _ in dovetail.iterate(range(10**6), total_steps=2000, checkpoint=lambda step: None, checkpoint_every=10):
    time.sleep(0.05)
";

#[test]
fn a_script_in_a_pod_reports_its_progress_to_the_scheduler() {
    let Some(mut cluster) = Cluster::start(1, 4, &Settings::default()) else {
        return;
    };
    cluster.install_kinds();
    permit_reports(&cluster);
    let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", cluster.space);
    cluster.ask("POST", &accounts, Some(&json!({"metadata": {"name": "trainer"}})));
    cluster.settings.policy.policy = "srtf".to_owned();
    cluster.schedule();
    let folder = tempfile::tempdir().unwrap();
    start_pod(&cluster, "train", folder.path());
    await_permission(&cluster, folder.path());
    let mut script = run(&cluster, folder.path(), STEADY);
    cluster.until("the script has reported", || {
        reported(&cluster, "train").is_some_and(|report| report["totalSteps"] == 2000)
    });
    cluster.until("the scheduler knows how far the job is", || {
        job(&cluster, "train", |job| {
            job.progress.step > 0 && job.progress.checkpoint > 0
        })
    });
    job(&cluster, "train", |job| {
        assert_eq!(job.state, JobState::Running);
        assert_eq!(job.progress.total, 2000);
        let estimate = job.estimate().unwrap();
        assert_eq!(estimate.source, EstimateSource::Steps);
        // 2000 steps of 50 ms and more.
        let expected = Time(i64::try_from(estimate.expected.0).unwrap());
        assert!(expected >= Time::from_secs(100), "{estimate:?}");
    });
    script.kill().unwrap();
    script.wait().unwrap();

    // Another leader reads the same from the objects.
    std::thread::sleep(Duration::from_millis(500));
    let last = reported(&cluster, "train").unwrap();
    cluster.schedule();
    cluster.until("the new leader has adopted the pod", || {
        let handle = cluster.handle.as_ref().unwrap();
        handle.read(|state| state.active_jobs().count() == 1)
    });
    cluster.until("it knows the progress", || {
        job(&cluster, "train", |job| {
            json!(job.progress.step) == last["step"] && json!(job.progress.checkpoint) == last["checkpoint"]
        })
    });

    // The end is reported before the process ends.
    let mut script = run(
        &cluster,
        folder.path(),
        "import dovetail\nfor _ in dovetail.iterate([0] * 7, total_steps=7): pass",
    );
    assert!(script.wait().unwrap().success());
    assert_eq!(reported(&cluster, "train").unwrap()["step"], 7);
}

/// Reports for a pod whose name is not in the token, and prints the status of the answer.
const FORGED: &str = "
import dovetail.kubernetes as k
pod = k.find_pod()
pod.name, pod.uid = 'other', '1234'
raise SystemExit(pod.report({'step': 1}, 10) - 200)
";

#[test]
fn a_pod_may_report_for_itself_only() {
    let Some(mut cluster) = Cluster::start(1, 4, &Settings::default()) else {
        return;
    };
    cluster.install_kinds();
    permit_reports(&cluster);
    let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", cluster.space);
    cluster.ask("POST", &accounts, Some(&json!({"metadata": {"name": "trainer"}})));
    cluster.schedule();
    let folder = tempfile::tempdir().unwrap();
    start_pod(&cluster, "train", folder.path());
    // 422: refused by the policy.
    let is_refused = || run(&cluster, folder.path(), FORGED).wait().unwrap().code() == Some(422 - 200);
    cluster.until("the policy is in force", is_refused);
    // Written before the API server knew the policy, if at all.
    let other = format!("{API}/namespaces/{}/podprogresses/other", cluster.space);
    cluster.lab.request("DELETE", &other, None).unwrap();
    assert!(is_refused());
    assert!(
        reported(&cluster, "other").is_none(),
        "the report for another pod was written"
    );
    await_permission(&cluster, folder.path());
    assert_eq!(reported(&cluster, "train").unwrap()["step"], 1);
}
