//! Jobs on nodes with real kubelets and a real containerd: containers run, are terminated, write checkpoints and resume from
//! them; commands and logs pass through the API server, which uses SPDY or WebSocket to the kubelet. GPUs exist only as a resource.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kubernetes;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use dovetail_kubelab::{BUSYBOX, Subprocess};
use kubernetes::{Cluster, dovetail};
use serde_json::{Value, json};

const NODES: [&str; 2] = ["carol", "dan"];
/// Feature gate of a kubelet that supports WebSocket itself. For others, such as all before 1.36, the API server translates.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

fn preempting() -> Value {
    json!({"policy": "fifo-backfill", "parts": {"order": "fifo:priority=true", "discipline": "preempt"}})
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Runs `dovetail kube exec` and returns exit code, standard output and standard error.
fn exec(cluster: &Cluster, args: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    command
        .args(["kube", "exec", "-n", &cluster.namespace, "--kubeconfig"])
        .arg(&cluster.kubeconfig)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Subprocess::spawn(&mut command).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // In a thread, because the output must be read at the same time.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Returns the output of a pod so far, from the API server.
fn log(cluster: &Cluster, pod: &Value) -> String {
    let path = format!("/api/v1/namespaces/{}/pods/{}/log", cluster.namespace, name(pod));
    let response = cluster.lab.request("GET", &path, None).unwrap();
    match response.body {
        Value::String(text) if response.status == 200 => text,
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// Returns a Job of two pods that count, write a checkpoint when they are terminated, and resume from it.
fn counting_job(folder: &Path) -> Value {
    let script = "
        me=/data/$JOB_COMPLETION_INDEX
        n=$(cat $me.checkpoint 2>/dev/null || echo 0)
        echo attempt $ATTEMPT from $n on $NVIDIA_VISIBLE_DEVICES
        trap 'sleep 1; echo $n > $me.checkpoint; exit 143' TERM
        while [ ! -e /data/finish ]; do n=$((n+1)); echo $n > $me.step; sleep 0.1; done
        echo finished";
    let from = |field: &str| json!({"fieldRef": {"fieldPath": format!("metadata.annotations['dovetail.io/{field}']")}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "low"}, "spec": {
        "parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
        "template": {"metadata": {"labels": {"dovetail.io/sent-as": "low"}, "annotations": {"dovetail.io/priority": "1"}},
            "spec": {"schedulerName": "dovetail", "restartPolicy": "Never", "terminationGracePeriodSeconds": 60,
                "volumes": [{"name": "data", "hostPath": {"path": folder}}],
                "containers": [{"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script],
                    "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": from("gpus")},
                        {"name": "ATTEMPT", "valueFrom": from("attempt")}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}}})
}

/// Returns a job file of OpenPAI whose two instances run until each finds a file.
fn openpai_file() -> String {
    format!(
        "protocolVersion: 2
name: high
type: job
prerequisites:
- {{protocolVersion: 2, name: box, type: dockerimage, uri: \"{BUSYBOX}\"}}
taskRoles:
  worker:
    instances: 2
    completion: {{minFailedInstances: 1, minSucceededInstances: -1}}
    dockerImage: box
    resourcePerInstance: {{cpu: 1, memoryMB: 64, gpu: 1}}
    commands:
    - echo rank $RANK of $WORLD_SIZE on $DOVETAIL_NODE
    - while [ ! -e /tmp/finish ]; do sleep 0.1; done
extras: {{gangAllocation: true, hivedScheduler: {{jobPriorityClass: prod}}}}
"
    )
}

#[test]
fn a_preempted_gang_writes_checkpoints_and_resumes_after_the_urgent_one() {
    let translated = format!("{WEBSOCKETS}=false");
    let nodes = [(NODES[0], ""), (NODES[1], translated.as_str())];
    let Some(cluster) = Cluster::of_machines(&nodes, 1, &preempting()) else {
        return;
    };
    let supports_websockets = NODES.map(|node| {
        let node = cluster.get(&format!("/api/v1/nodes/{node}"));
        node["status"]["declaredFeatures"]
            .to_string()
            .contains(WEBSOCKETS)
    });
    assert_eq!(supports_websockets, [true, false]);
    let data = tempfile::tempdir().unwrap();
    let read = |file: &str| -> Option<u64> {
        let text = std::fs::read_to_string(data.path().join(file)).ok()?;
        text.trim().parse().ok()
    };
    let jobs = format!("/apis/batch/v1/namespaces/{}/jobs", cluster.namespace);
    let created = cluster
        .lab
        .request("POST", &jobs, Some(&counting_job(data.path())))
        .unwrap();
    assert_eq!(created.status, 201, "{}", created.body);
    cluster.until("both pods run, one on each node", || {
        cluster.running("low") == NODES
    });
    cluster.until("both pods count", || {
        ["0.step", "1.step"]
            .iter()
            .all(|file| read(file).is_some_and(|n| n > 2))
    });
    for pod in cluster.pods("low") {
        cluster.until("the pod has printed its first line", || {
            log(&cluster, &pod) == "attempt 1 from 0 on 0\n"
        });
    }

    // An urgent gang gets the GPUs after the pods that hold them have ended within their grace period.
    let high = cluster.submit("alice", &openpai_file());
    cluster.until("the urgent gang runs", || cluster.running(&high) == NODES);
    let saved = ["0.checkpoint", "1.checkpoint"]
        .map(|file| read(file).expect("a checkpoint is written before the GPUs are reused"));
    assert!(saved.iter().all(|n| *n > 2), "{saved:?}");
    assert!(cluster.bound("low").is_empty());
    check_commands(&cluster, &high);

    // The urgent gang completes, and the other one resumes from its checkpoints.
    for task in ["0", "1"] {
        let ended = exec(
            &cluster,
            &[&high, "--task", task, "--", "touch", "/tmp/finish"],
            b"",
        );
        assert_eq!(ended, (Some(0), String::new(), String::new()));
    }
    cluster.until("the urgent gang completes", || cluster.is_complete(&high));
    cluster.until("both pods run again", || cluster.running("low") == NODES);
    for pod in cluster.pods("low") {
        let index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"].as_str();
        let from = saved[index.unwrap().parse::<usize>().unwrap()];
        let expected = format!("attempt 2 from {from} on 0\n");
        cluster.until("the pod resumes from its checkpoint", || {
            log(&cluster, &pod) == expected
        });
    }
    std::fs::write(data.path().join("finish"), "").unwrap();
    cluster.until("the first job completes", || {
        cluster.job_conditions("low").contains(&"Complete".to_owned())
    });
}

/// Runs commands in the containers of a job of two instances.
fn check_commands(cluster: &Cluster, job: &str) {
    let pods = cluster.pods(job);
    for (rank, pod) in pods.iter().enumerate() {
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        let expected = format!("rank {rank} of 2 on {node}\n");
        cluster.until("the pod has printed its first line", || {
            log(cluster, pod) == expected
        });
        let shown = exec(
            cluster,
            &[&name(pod), "--", "sh", "-c", "echo $RANK; hostname"],
            b"",
        );
        assert_eq!(shown, (Some(0), format!("{rank}\n{job}-{rank}\n"), String::new()));
    }
    for task in ["0", "1"] {
        let run =
            |words: &[&str], input: &[u8]| exec(cluster, &[&[job, "--task", task], words].concat(), input);
        let shown = run(&["--", "sh", "-c", "echo out; echo err >&2; exit 3"], b"");
        assert_eq!(shown, (Some(3), "out\n".to_owned(), "err\n".to_owned()));
        // Input larger than any buffer, whose end the command sees; without -i the input is empty.
        let input = "0123456789abcde\n".repeat(65_536);
        let (code, out, _) = run(&["-i", "--", "cat"], input.as_bytes());
        assert_eq!(code, Some(0));
        assert!(out == input, "{} bytes of {}", out.len(), input.len());
        let shown = run(&["--", "cat"], b"not passed on");
        assert_eq!(shown, (Some(0), String::new(), String::new()));
        let (code, _, error) = run(&["--", "no-such-program"], b"");
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains("no-such-program"), "{error}");
    }
}

#[test]
fn a_job_without_a_device_plugin_sees_its_gpus_and_has_its_grace_period_to_end() {
    let Some(cluster) = Cluster::of_machines(&[(NODES[0], "")], 0, &preempting()) else {
        return;
    };
    // Without a device plugin, only the label gives the number of GPUs.
    let path = format!("/api/v1/nodes/{}", NODES[0]);
    let label = json!({"metadata": {"labels": {"dovetail.io/gpu-count": "2"}}});
    assert_eq!(
        cluster.lab.request("PATCH", &path, Some(&label)).unwrap().status,
        200
    );
    let file = "name: see
gpus: 2
command: echo sees $NVIDIA_VISIBLE_DEVICES; sleep 1000 & trap 'echo terminated; exit 0' TERM; wait
";
    let kubeconfig = cluster.kubeconfig.to_str().unwrap();
    let place = ["-n", &cluster.namespace, "--kubeconfig", kubeconfig];
    let args = [
        "kube",
        "submit",
        "-",
        "--gpu-resource",
        "none",
        "--image",
        BUSYBOX,
    ];
    let job = dovetail(&[&args[..], &place].concat(), file)
        .unwrap()
        .trim()
        .to_owned();
    cluster.until("the job runs", || cluster.running(&job) == NODES[..1]);
    let kubectl = |args: &[&str]| {
        cluster
            .lab
            .kubectl(&[args, &["-n", &cluster.namespace]].concat())
            .unwrap()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (of_job, label) = (format!("job/{job}"), format!("dovetail.io/sent-as={job}"));
    cluster.until("the job sees its GPUs", || {
        text(&kubectl(&["logs", &of_job]).stdout) == "sees 0,1\n"
    });
    // A client that follows the log receives its last lines.
    let mut command = Command::new(dovetail_kubelab::binary().unwrap());
    command
        .arg("kubectl")
        .args(place)
        .args(["logs", "-f", &of_job])
        .stdout(Stdio::piped());
    let mut follow = Subprocess::spawn(&mut command).unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "sees 0,1");
    let deleted = kubectl(&["delete", "job", "-l", &label]);
    assert!(deleted.status.success(), "{}", text(&deleted.stderr));
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    follow.wait().unwrap();
    assert_eq!(rest, ["terminated"], "the job had time to print it");
    cluster.until("the pod is deleted", || {
        let pods = kubectl(&["get", "pods", "-l", &label, "-o", "name"]);
        pods.status.success() && pods.stdout.is_empty()
    });
}

#[test]
fn a_gang_with_a_pod_rejected_by_the_kubelet_fails_and_frees_its_gpus() {
    let Some(cluster) = Cluster::of_machines(&[(NODES[0], "")], 2, &preempting()) else {
        return;
    };
    // Host ports are checked by the kubelet and not by the scheduler: only one of the two pods can run on this node.
    let job = |name: &str, ports: &Value| {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
            "parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0,
            "template": {"metadata": {"labels": {"dovetail.io/sent-as": name}},
                "spec": {"schedulerName": "dovetail", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "main", "image": BUSYBOX, "command": ["sleep", "1000"], "ports": ports,
                        "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}}});
        let jobs = format!("/apis/batch/v1/namespaces/{}/jobs", cluster.namespace);
        let created = cluster.lab.request("POST", &jobs, Some(&job)).unwrap();
        assert_eq!(created.status, 201, "{}", created.body);
    };
    job("rejected", &json!([{"containerPort": 7000, "hostPort": 7000}]));
    cluster.until("the job has failed", || {
        cluster.job_conditions("rejected").contains(&"Failed".to_owned())
    });
    let reasons: Vec<Value> = cluster
        .pods("rejected")
        .iter()
        .map(|p| p["status"]["reason"].clone())
        .collect();
    assert!(reasons.contains(&json!("NodePorts")), "{reasons:?}");
    job("next", &json!([]));
    let both = [NODES[0], NODES[0]];
    cluster.until("the next gang has both GPUs", || cluster.running("next") == both);
}
