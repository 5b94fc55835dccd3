//! The page's API over a scheduler on Kubernetes: submitted jobs become Jobs, logs come from the API server, stopping a job
//! suspends its Jobs, and the state survives a restart.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kubernetes;

use std::net::TcpListener;

use kubernetes::{Cluster, dovetail, has_ended};
use serde_json::Value;

/// A user of the page's API.
struct Page<'a> {
    cluster: &'a Cluster,
    folder: tempfile::TempDir,
}

impl<'a> Page<'a> {
    /// Writes a `client.yaml` with the token of the first user, which is in a Secret.
    fn of(cluster: &'a Cluster, port: u16) -> Self {
        let secret = |key: &str| {
            let part = format!("jsonpath={{.data.admin-{key}}}");
            let args = [
                "-n",
                "dovetail-system",
                "get",
                "secret",
                "dovetail-page",
                "-o",
                &part,
            ];
            cluster.kubectl(&args).unwrap_or_default()
        };
        cluster.until("the Secret has a password and a token", || {
            !secret("password").is_empty() && !secret("token").is_empty()
        });
        let decode = |text: &str| {
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            String::from_utf8(bytes.unwrap()).unwrap()
        };
        assert!(!decode(&secret("password")).is_empty());
        let token = decode(&secret("token"));
        let folder = tempfile::tempdir().unwrap();
        let file = format!("server: http://127.0.0.1:{port}\nca: ''\ntoken: {token}\n");
        std::fs::write(folder.path().join("client.yaml"), file).unwrap();
        Self { cluster, folder }
    }

    /// Runs a command of a user and returns its standard output, or standard error if it fails.
    fn dovetail(&self, args: &[&str], input: &str) -> Result<String, String> {
        let file = self.folder.path().join("client.yaml");
        let mut all = args.to_vec();
        all.extend(["--config", file.to_str().unwrap()]);
        dovetail(&all, input)
    }

    /// Submits a job file and returns the ID of the job, or the first and the last of several.
    fn submit(&self, file: &str) -> String {
        self.dovetail(&["submit", "-"], file).unwrap().trim().to_owned()
    }

    fn job(&self, id: &str) -> Value {
        let shown = self.dovetail(&["job", "show", id, "-o", "json"], "").unwrap();
        serde_json::from_str(&shown).unwrap()
    }

    fn until(&self, id: &str, state: &str) {
        let what = format!("job {id} is {state}");
        self.cluster.until(&what, || self.job(id)["state"] == state);
    }

    /// Returns the name of the objects of a job.
    fn objects_of(&self, id: &str) -> String {
        let label = format!("dovetail.io/number={id}");
        let part = r"jsonpath={.items[0].metadata.labels.dovetail\.io/sent-as}";
        let args = [
            "get",
            "jobs",
            "-l",
            &label,
            "-n",
            &self.cluster.namespace,
            "-o",
            part,
        ];
        self.cluster.kubectl(&args).unwrap()
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn jobs_are_submitted_shown_and_stopped_through_the_page_and_survive_a_restart() {
    let Some(mut cluster) = Cluster::of_lab6("lab6-config-B-one-vc.yaml") else {
        return;
    };
    // With the rights that the manifests grant.
    cluster.scheduler = None;
    cluster.install(&["dovetail.yaml", "page.yaml"]);
    let port = free_port();
    let settings = tempfile::NamedTempFile::new().unwrap();
    let (listen, space) = (format!("127.0.0.1:{port}"), cluster.namespace.clone());
    let text =
        format!("page: {{listen: '{listen}', namespace: {space}}}\nlease: {{namespace: dovetail-system}}\n");
    std::fs::write(settings.path(), text).unwrap();
    let more = ["--config", settings.path().to_str().unwrap()];
    cluster.schedule(&more);
    let page = Page::of(&cluster, port);
    cluster.until("the page answers", || page.dovetail(&["jobs"], "").is_ok());

    // A job that can never run is rejected before any object is created.
    let whole = cluster.file(6).replace("instances: 2", "instances: 4");
    let rejected = page.dovetail(&["submit", "-"], &whole).unwrap_err();
    assert!(rejected.contains("asks for 4 GPUs"), "{rejected}");
    let held = page
        .dovetail(&["submit", "-"], "command: x\nhold: true\n")
        .unwrap_err();
    assert!(held.contains("hold: "), "{held}");
    assert_eq!(cluster.get("/apis/batch/v1/jobs")["items"], serde_json::json!([]));

    let first = page.submit(&cluster.file(6));
    page.until(&first, "running");
    let job = page.job(&first);
    assert_eq!(
        (&job["user"], &job["name"]),
        (&"admin".into(), &"job-config-6".into())
    );
    let name = page.objects_of(&first);
    assert_eq!(cluster.running(&name), ["hostname-carol", "hostname-dan"]);

    // The output of pods comes from their kubelets, through the API server.
    for pod in cluster.pods(&name) {
        let (pod, node) = (
            pod["metadata"]["name"].as_str().unwrap(),
            pod["spec"]["nodeName"].as_str().unwrap(),
        );
        cluster.node_api.print(
            &cluster.namespace,
            pod,
            &format!("epoch 1 on {node}\nepoch 2 on {node}\n"),
        );
    }
    let log = page.dovetail(&["job", "logs", &first], "").unwrap();
    for line in ["epoch 1 on hostname-carol", "epoch 2 on hostname-dan"] {
        assert!(log.contains(line), "{log}");
    }
    let last = page
        .dovetail(&["job", "logs", &first, "--tail", "1"], "")
        .unwrap();
    assert!(
        last.contains("epoch 2 on") && !last.contains("epoch 1 on"),
        "{last}"
    );

    // Nodes, policy and virtual clusters are managed through Kubernetes objects.
    for args in [
        &["node", "drain", "hostname-dan"][..],
        &["operate", "policy", "srsf"],
        &["vc", "remove", "default"],
    ] {
        let error = page.dovetail(args, "").unwrap_err();
        assert!(
            error.contains("not supported on Kubernetes; "),
            "{args:?}: {error}"
        );
    }

    // Another job is queued; IDs, names and placements are the same after a restart of the scheduler.
    let second = page.submit(&cluster.file(5));
    page.until(&second, "queued");
    drop(page);
    cluster.scheduler = None;
    let before: Vec<Value> = cluster.pods(&name);
    cluster.schedule(&more);
    let page = Page::of(&cluster, port);
    cluster.until("the page answers", || page.dovetail(&["jobs"], "").is_ok());
    page.until(&first, "running");
    page.until(&second, "queued");
    let job = page.job(&second);
    assert_eq!(
        (&job["user"], &job["name"]),
        (&"admin".into(), &"job-config-5".into())
    );
    assert_eq!(before, cluster.pods(&name));

    // Stopping a job suspends its Jobs, and the queued job gets its GPUs.
    page.dovetail(&["job", "stop", &first], "").unwrap();
    page.until(&first, "cancelled");
    cluster.until("its pods have ended", || {
        cluster.pods(&name).iter().all(has_ended)
    });
    page.until(&second, "running");
    let queued = page.submit(&cluster.file(6));
    page.until(&queued, "queued");
    let held = page.dovetail(&["job", "hold", &queued], "").unwrap_err();
    assert!(held.contains("not supported on Kubernetes"), "{held}");
    page.dovetail(&["job", "stop", &queued], "").unwrap();
    let objects = page.objects_of(&queued);
    cluster.until("the queued pods are deleted", || {
        cluster.pods(&objects).is_empty()
    });
    page.until(&queued, "cancelled");

    // Instances without a gang have an ID each; by this file one success ends the others.
    cluster.finish(&page.objects_of(&second));
    page.until(&second, "completed");
    let range = page.submit(&cluster.file(7));
    let (zero, one) = range.split_once('-').unwrap();
    page.until(zero, "running");
    page.until(one, "running");
    let name = page.objects_of(zero);
    cluster.finish_one(&name, 0);
    page.until(zero, "completed");
    cluster.until("the other instance has ended", || {
        !page.job(one)["ended"].is_null()
    });

    // The next scheduler knows all jobs and how they ended, and uses no ID twice.
    let all = [&first, &second, &queued, zero];
    let ended = |page: &Page<'_>| all.map(|id| page.job(id));
    let before = ended(&page);
    drop(page);
    cluster.scheduler = None;
    cluster.schedule(&more);
    let page = Page::of(&cluster, port);
    cluster.until("the page answers", || page.dovetail(&["jobs"], "").is_ok());
    page.until(one, "cancelled");
    for (was, is) in before.iter().zip(ended(&page)) {
        for key in ["id", "name", "user", "gpus", "state", "tenant", "priority"] {
            assert!(!was[key].is_null(), "{key}: {was:#}");
            assert_eq!(is[key], was[key], "{key}: {was:#} became {is:#}");
        }
        // After the restart the time is the Job's own, in whole seconds and set by its controller; 10 s is a generous
        // bound for the difference, not a measured one.
        let apart_us = is["ended"].as_i64().unwrap() - was["ended"].as_i64().unwrap();
        assert!(apart_us.abs() < 10_000_000, "ended: {was:#} became {is:#}");
    }
    let shown = page.dovetail(&["job", "explain", &first], "").unwrap();
    assert!(shown.contains("admin"), "{shown}");
    let next = page.submit(&cluster.file(6));
    assert!(next.parse::<u64>().unwrap() > one.parse().unwrap(), "{next}");
}

const ROLES: &str = "
name: tf
roles:
- {name: ps, gpus: 0, cpus: 1, memory: 1G, image: tf, command: serve}
- {name: worker, instances: 2, gpus: 1, cpus: 1, memory: 1G, image: tf, command: train}
";

#[test]
fn a_completed_role_ends_the_others() {
    let Some(cluster) = Cluster::of_lab6("lab6-config-B-one-vc.yaml") else {
        return;
    };
    for (code, expected) in [(0, "Complete"), (3, "Failed")] {
        let job = cluster.submit("alice", ROLES);
        cluster.until("all three pods run", || cluster.running(&job).len() == 3);
        let pods = cluster.pods(&job);
        let workers = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["dovetail.io/role"] == "worker");
        // One failure ends the job; a success needs both workers.
        for pod in workers.take(if code == 0 { 2 } else { 1 }) {
            cluster.end_pod_with(pod, code);
        }
        let ended = |role: &str, how: &str| {
            cluster
                .job_conditions(&format!("{job}-{role}"))
                .contains(&how.to_owned())
        };
        cluster.until("the Job of the workers has ended", || ended("worker", expected));
        cluster.until("the Job of the server is suspended", || ended("ps", "Suspended"));
        cluster.until("all pods have ended", || cluster.pods(&job).iter().all(has_ended));
    }
}

#[test]
fn an_elastic_job_starts_with_its_minimum_grows_and_completes_with_its_minimum() {
    let Some(cluster) = Cluster::of_lab6("lab6-config-B-one-vc.yaml") else {
        return;
    };
    // Another job holds one of the two nodes.
    let other = cluster.submit("bob", &ROLES.replace("instances: 2", "instances: 1"));
    cluster.until("the other job runs", || cluster.running(&other).len() == 2);
    let kubeconfig = cluster.kubeconfig.to_str().unwrap();
    let mut args = vec![
        "kube",
        "submit",
        "-",
        "--kubeconfig",
        kubeconfig,
        "-n",
        &cluster.namespace,
    ];
    args.extend(["--user", "alice", "--image", "train"]);
    let file = "name: elastic\ncommand: train\ngpus: 1\nmax_gpus: 2\n";
    let job = dovetail(&args, file).unwrap().trim().to_owned();
    cluster.until("the job starts with one pod", || cluster.running(&job).len() == 1);
    let elastic_pods = || -> Vec<Value> {
        let is_elastic = |pod: &Value| !pod["metadata"]["annotations"]["dovetail.io/rides-on"].is_null();
        cluster.pods(&job).into_iter().filter(is_elastic).collect()
    };
    assert_eq!(elastic_pods(), Vec::<Value>::new());
    cluster.end_pod_with(
        cluster
            .pods(&other)
            .iter()
            .find(|pod| pod["metadata"]["labels"]["dovetail.io/role"] == "worker")
            .unwrap(),
        0,
    );
    cluster.until("the job grows", || cluster.running(&job).len() == 2);
    assert_eq!(elastic_pods().len(), 1);
    let first = cluster
        .pods(&job)
        .into_iter()
        .find(|pod| !elastic_pods().contains(pod))
        .unwrap();
    cluster.end_pod_with(&first, 0);
    cluster.until("the job completes with its minimum", || {
        cluster.job_conditions(&job).contains(&"Complete".to_owned())
    });
    cluster.until("the elastic pod has ended", || {
        cluster.pods(&job).iter().all(has_ended)
    });
}
