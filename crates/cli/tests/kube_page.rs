//! The page's API over a scheduler on Kubernetes: jobs that are sent become Jobs, logs come from the API server, whoever stops a
//! job suspends its Jobs, and all of it is there after a restart.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kubernetes;

use std::net::TcpListener;

use kubernetes::{Cluster, dovetail, over};
use serde_json::Value;

struct Page<'a> {
    cluster: &'a Cluster,
    folder: tempfile::TempDir,
}

impl<'a> Page<'a> {
    /// A client's file with the token of the first user, as the Secret has it.
    fn of(cluster: &'a Cluster, port: u16) -> Self {
        let held = |key: &str| {
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
            !held("password").is_empty() && !held("token").is_empty()
        });
        let decode = |text: &str| {
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            String::from_utf8(bytes.unwrap()).unwrap()
        };
        assert!(!decode(&held("password")).is_empty());
        let token = decode(&held("token"));
        let folder = tempfile::tempdir().unwrap();
        let file = format!("server: http://127.0.0.1:{port}\nca: ''\ntoken: {token}\n");
        std::fs::write(folder.path().join("client.yaml"), file).unwrap();
        Self { cluster, folder }
    }

    /// A command of a person; what it prints.
    fn dovetail(&self, args: &[&str], input: &str) -> Result<String, String> {
        let file = self.folder.path().join("client.yaml");
        let mut all = args.to_vec();
        all.extend(["--config", file.to_str().unwrap()]);
        dovetail(&all, input)
    }

    /// Sends a job; its number, or of several the first and the last.
    fn submit(&self, file: &str) -> String {
        self.dovetail(&["submit", "-"], file).unwrap().trim().to_owned()
    }

    fn job(&self, number: &str) -> Value {
        let shown = self.dovetail(&["job", "show", number, "-o", "json"], "").unwrap();
        serde_json::from_str(&shown).unwrap()
    }

    fn until(&self, number: &str, state: &str) {
        let what = format!("job {number} is {state}");
        self.cluster.until(&what, || self.job(number)["state"] == state);
    }

    /// The name of a job's objects.
    fn sent_as(&self, number: &str) -> String {
        let label = format!("dovetail.io/number={number}");
        let part = r"jsonpath={.items[0].metadata.labels.dovetail\.io/sent-as}";
        let args = ["get", "jobs", "-l", &label, "-n", &self.cluster.space, "-o", part];
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
fn jobs_are_sent_shown_read_and_stopped_through_the_page_and_survive_a_restart() {
    let Some(mut cluster) = Cluster::of_lab6("lab6-config-B-one-vc.yaml") else {
        return;
    };
    // With no more rights than what people install.
    cluster.scheduler = None;
    cluster.install(&["dovetail.yaml", "page.yaml"]);
    let port = free_port();
    let settings = tempfile::NamedTempFile::new().unwrap();
    let (listen, space) = (format!("127.0.0.1:{port}"), cluster.space.clone());
    let text =
        format!("page: {{listen: '{listen}', namespace: {space}}}\nlease: {{namespace: dovetail-system}}\n");
    std::fs::write(settings.path(), text).unwrap();
    let more = ["--config", settings.path().to_str().unwrap()];
    cluster.schedule(&more);
    let page = Page::of(&cluster, port);
    cluster.until("the page answers", || page.dovetail(&["jobs"], "").is_ok());

    // What can never run is refused before anything is made.
    let whole = cluster.file(6).replace("instances: 2", "instances: 4");
    let refused = page.dovetail(&["submit", "-"], &whole).unwrap_err();
    assert!(refused.contains("asks for 4 GPUs"), "{refused}");
    let later = page
        .dovetail(&["submit", "-"], "command: x\nhold: true\n")
        .unwrap_err();
    assert!(later.contains("hold: "), "{later}");
    assert_eq!(cluster.get("/apis/batch/v1/jobs")["items"], serde_json::json!([]));

    let first = page.submit(&cluster.file(6));
    page.until(&first, "running");
    let job = page.job(&first);
    assert_eq!(
        (&job["user"], &job["name"]),
        (&"admin".into(), &"job-config-6".into())
    );
    let name = page.sent_as(&first);
    assert_eq!(cluster.running(&name), ["hostname-carol", "hostname-dan"]);

    // What its pods print comes from their kubelets, through the API server.
    for pod in cluster.pods(&name) {
        let (pod, node) = (
            pod["metadata"]["name"].as_str().unwrap(),
            pod["spec"]["nodeName"].as_str().unwrap(),
        );
        cluster.node_api.print(
            &cluster.space,
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

    // What others decide on Kubernetes is left to them.
    for args in [
        &["node", "drain", "hostname-dan"][..],
        &["operate", "policy", "srsf"],
        &["vc", "remove", "default"],
    ] {
        let said = page.dovetail(args, "").unwrap_err();
        assert!(said.contains("not supported on Kubernetes; "), "{args:?}: {said}");
    }

    // Another one waits; numbers, names and places are the same for the next scheduler.
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

    // Whoever stops a job has its Jobs suspended; the other one gets its place.
    page.dovetail(&["job", "stop", &first], "").unwrap();
    page.until(&first, "cancelled");
    cluster.until("its pods are gone", || cluster.pods(&name).iter().all(over));
    page.until(&second, "running");
    let waits = page.submit(&cluster.file(6));
    page.until(&waits, "queued");
    let held = page.dovetail(&["job", "hold", &waits], "").unwrap_err();
    assert!(held.contains("not supported on Kubernetes"), "{held}");
    page.dovetail(&["job", "stop", &waits], "").unwrap();
    let waiting = page.sent_as(&waits);
    cluster.until("what waited is gone too", || cluster.pods(&waiting).is_empty());
    page.until(&waits, "cancelled");

    // Instances that start on their own have numbers of their own; one success ends the others, as the file says.
    cluster.finish(&page.sent_as(&second));
    page.until(&second, "completed");
    let range = page.submit(&cluster.file(7));
    let (zero, one) = range.split_once('-').unwrap();
    page.until(zero, "running");
    page.until(one, "running");
    let name = page.sent_as(zero);
    cluster.finish_one(&name, 0);
    page.until(zero, "completed");
    cluster.until("the other is ended", || !page.job(one)["ended"].is_null());

    // Whoever leads next knows them all, and how they ended; and gives out no number again.
    let all = [&first, &second, &waits, zero];
    let ended = |page: &Page<'_>| all.map(|number| page.job(number));
    let before = ended(&page);
    drop(page);
    cluster.scheduler = None;
    cluster.schedule(&more);
    let page = Page::of(&cluster, port);
    cluster.until("the page answers", || page.dovetail(&["jobs"], "").is_ok());
    page.until(one, "cancelled");
    for (was, is) in before.iter().zip(ended(&page)) {
        for key in [
            "id", "name", "user", "gpus", "state", "tenant", "priority", "ended",
        ] {
            assert!(!was[key].is_null(), "{key}: {was:#}");
            assert_eq!(is[key], was[key], "{key}: {was:#} became {is:#}");
        }
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
fn a_role_that_is_done_ends_the_others() {
    let Some(cluster) = Cluster::of_lab6("lab6-config-B-one-vc.yaml") else {
        return;
    };
    for (code, expected) in [(0, "Complete"), (3, "Failed")] {
        let job = cluster.submit("alice", ROLES);
        cluster.until("all three run", || cluster.running(&job).len() == 3);
        let pods = cluster.pods(&job);
        let workers = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["dovetail.io/role"] == "worker");
        // One that fails is enough; of those that succeed it takes both.
        for pod in workers.take(if code == 0 { 2 } else { 1 }) {
            cluster.end_pod_with(pod, code);
        }
        let ended =
            |role: &str, how: &str| cluster.end_of(&format!("{job}-{role}")).contains(&how.to_owned());
        cluster.until("the workers are done", || ended("worker", expected));
        cluster.until("the others are not wanted any more", || ended("ps", "Suspended"));
        cluster.until("nothing of it runs on", || cluster.pods(&job).iter().all(over));
    }
}

#[test]
fn an_elastic_job_starts_with_its_least_grows_and_is_done_when_that_is() {
    let Some(cluster) = Cluster::of_lab6("lab6-config-B-one-vc.yaml") else {
        return;
    };
    // Somebody has one of the two machines.
    let other = cluster.submit("bob", &ROLES.replace("instances: 2", "instances: 1"));
    cluster.until("somebody else runs", || cluster.running(&other).len() == 2);
    let kubeconfig = cluster.kubeconfig.to_str().unwrap();
    let mut args = vec![
        "kube",
        "submit",
        "-",
        "--kubeconfig",
        kubeconfig,
        "-n",
        &cluster.space,
    ];
    args.extend(["--user", "alice", "--image", "train"]);
    let file = "name: elastic\ncommand: train\ngpus: 1\nmax_gpus: 2\n";
    let job = dovetail(&args, file).unwrap().trim().to_owned();
    cluster.until("it starts with one pod", || cluster.running(&job).len() == 1);
    let riders = || -> Vec<Value> {
        let rides = |pod: &Value| !pod["metadata"]["annotations"]["dovetail.io/rides-on"].is_null();
        cluster.pods(&job).into_iter().filter(rides).collect()
    };
    assert_eq!(riders(), Vec::<Value>::new());
    cluster.end_pod_with(
        cluster
            .pods(&other)
            .iter()
            .find(|pod| pod["metadata"]["labels"]["dovetail.io/role"] == "worker")
            .unwrap(),
        0,
    );
    cluster.until("it grows", || cluster.running(&job).len() == 2);
    assert_eq!(riders().len(), 1);
    let first = cluster
        .pods(&job)
        .into_iter()
        .find(|pod| !riders().contains(pod))
        .unwrap();
    cluster.end_pod_with(&first, 0);
    cluster.until("as many as it has to have are enough", || {
        cluster.end_of(&job).contains(&"Complete".to_owned())
    });
    cluster.until("the other is ended", || cluster.pods(&job).iter().all(over));
}
