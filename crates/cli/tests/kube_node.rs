//! Jobs on nodes with real kubelets and a real containerd: their containers run, are told to end, write checkpoints and go on from
//! them; commands and logs go through the API server to the kubelet, which speaks SPDY with it. GPUs are numbers only.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kubernetes;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use dovetail_kubelab::BUSYBOX;
use kubernetes::{Cluster, dovetail};
use serde_json::{Value, json};

const NODES: [&str; 2] = ["carol", "dan"];
/// Whether a kubelet speaks WebSocket itself; where it does not, the API server translates, as it does for all before 1.36.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

fn preempting() -> Value {
    json!({"policy": "fifo-backfill", "parts": {"order": "fifo:priority=true", "discipline": "preempt"}})
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap().to_owned()
}

/// `dovetail kube exec`: code, output, errors.
fn exec(cluster: &Cluster, args: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dovetail"))
        .args(["kube", "exec", "-n", &cluster.space, "--kubeconfig"])
        .arg(&cluster.kubeconfig)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // On the side: what comes back has to be read meanwhile.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// What a pod has printed so far, as the API server says.
fn log(cluster: &Cluster, pod: &Value) -> String {
    let path = format!("/api/v1/namespaces/{}/pods/{}/log", cluster.space, name(pod));
    let answer = cluster.lab.request("GET", &path, None).unwrap();
    match answer.body {
        Value::String(text) if answer.status == 200 => text,
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// A job of two pods that counts, writes how far it is when it is told to end, and goes on from there.
fn counting(folder: &Path) -> Value {
    let script = "
        me=/data/$JOB_COMPLETION_INDEX
        n=$(cat $me.checkpoint 2>/dev/null || echo 0)
        echo launch $LAUNCH from $n on $NVIDIA_VISIBLE_DEVICES
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
                        {"name": "LAUNCH", "valueFrom": from("launch")}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}}})
}

/// A job file of OpenPAI whose two instances run until each finds a file.
fn file() -> String {
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
fn a_gang_gives_way_with_a_checkpoint_another_runs_commands_and_both_succeed() {
    let translated = format!("{WEBSOCKETS}=false");
    let nodes = [(NODES[0], ""), (NODES[1], translated.as_str())];
    let Some(cluster) = Cluster::of_machines(&nodes, 1, &preempting()) else {
        return;
    };
    let speaks = NODES.map(|node| {
        let node = cluster.get(&format!("/api/v1/nodes/{node}"));
        node["status"]["declaredFeatures"]
            .to_string()
            .contains(WEBSOCKETS)
    });
    assert_eq!(speaks, [true, false]);
    let data = tempfile::tempdir().unwrap();
    let read = |file: &str| -> Option<u64> {
        let text = std::fs::read_to_string(data.path().join(file)).ok()?;
        text.trim().parse().ok()
    };
    let jobs = format!("/apis/batch/v1/namespaces/{}/jobs", cluster.space);
    let made = cluster
        .lab
        .request("POST", &jobs, Some(&counting(data.path())))
        .unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    cluster.until("both run, one on each node", || cluster.running("low") == NODES);
    cluster.until("both count", || {
        ["0.step", "1.step"]
            .iter()
            .all(|file| read(file).is_some_and(|n| n > 2))
    });
    for pod in cluster.pods("low") {
        cluster.until("its log is there", || {
            log(&cluster, &pod) == "launch 1 from 0 on 0\n"
        });
    }

    // Whoever is more urgent gets the GPUs once the others have ended, in their own time.
    let high = cluster.submit("alice", &file());
    cluster.until("the urgent gang runs", || cluster.running(&high) == NODES);
    let saved = ["0.checkpoint", "1.checkpoint"]
        .map(|file| read(file).expect("written before the GPUs were given on"));
    assert!(saved.iter().all(|n| *n > 2), "{saved:?}");
    assert!(cluster.bound("low").is_empty());
    commands(&cluster, &high);

    // They end by themselves, and the others go on where they were.
    for task in ["0", "1"] {
        let ended = exec(
            &cluster,
            &[&high, "--task", task, "--", "touch", "/tmp/finish"],
            b"",
        );
        assert_eq!(ended, (Some(0), String::new(), String::new()));
    }
    cluster.until("it completes", || cluster.is_complete(&high));
    cluster.until("both run again", || cluster.running("low") == NODES);
    for pod in cluster.pods("low") {
        let index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"].as_str();
        let from = saved[index.unwrap().parse::<usize>().unwrap()];
        let said = format!("launch 2 from {from} on 0\n");
        cluster.until("it goes on from its checkpoint", || log(&cluster, &pod) == said);
    }
    std::fs::write(data.path().join("finish"), "").unwrap();
    cluster.until("it completes", || {
        cluster.end_of("low").contains(&"Complete".to_owned())
    });
}

/// Commands in the containers of a job of two instances.
fn commands(cluster: &Cluster, job: &str) {
    let pods = cluster.pods(job);
    for (rank, pod) in pods.iter().enumerate() {
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        let said = format!("rank {rank} of 2 on {node}\n");
        cluster.until("its log is there", || log(cluster, pod) == said);
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
        // Input of more than any buffer, whose end the command sees; without -i it reads nothing.
        let input = "0123456789abcde\n".repeat(65_536);
        let (code, out, _) = run(&["-i", "--", "cat"], input.as_bytes());
        assert_eq!(code, Some(0));
        assert!(out == input, "{} bytes of {}", out.len(), input.len());
        let shown = run(&["--", "cat"], b"not passed on");
        assert_eq!(shown, (Some(0), String::new(), String::new()));
        let (code, _, said) = run(&["--", "no-such-program"], b"");
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("no-such-program"), "{said}");
    }
}

#[test]
fn a_job_without_a_device_plugin_sees_its_gpus_and_one_that_is_stopped_ends_in_its_own_time() {
    let Some(cluster) = Cluster::of_machines(&[(NODES[0], "")], 0, &preempting()) else {
        return;
    };
    // Nobody counts GPUs here but the label.
    let path = format!("/api/v1/nodes/{}", NODES[0]);
    let label = json!({"metadata": {"labels": {"dovetail.io/gpu-count": "2"}}});
    assert_eq!(
        cluster.lab.request("PATCH", &path, Some(&label)).unwrap().status,
        200
    );
    let file = "name: see
gpus: 2
command: echo sees $NVIDIA_VISIBLE_DEVICES; sleep 1000 & trap 'echo told; exit 0' TERM; wait
";
    let kubeconfig = cluster.kubeconfig.to_str().unwrap();
    let place = ["-n", &cluster.space, "--kubeconfig", kubeconfig];
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
    cluster.until("it runs", || cluster.running(&job) == NODES[..1]);
    let kubectl = |args: &[&str]| {
        cluster
            .lab
            .kubectl(&[args, &["-n", &cluster.space]].concat())
            .unwrap()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (of_job, label) = (format!("job/{job}"), format!("dovetail.io/sent-as={job}"));
    cluster.until("it sees its GPUs", || {
        text(&kubectl(&["logs", &of_job]).stdout) == "sees 0,1\n"
    });
    // Whoever reads on hears the end of it.
    let mut follow = Command::new(dovetail_kubelab::binary().unwrap())
        .arg("kubectl")
        .args(place)
        .args(["logs", "-f", &of_job])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "sees 0,1");
    let deleted = kubectl(&["delete", "job", "-l", &label]);
    assert!(deleted.status.success(), "{}", text(&deleted.stderr));
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    follow.wait().unwrap();
    assert_eq!(rest, ["told"], "it had time to say so");
    cluster.until("its pod is gone", || {
        let there = kubectl(&["get", "pods", "-l", &label, "-o", "name"]);
        there.status.success() && there.stdout.is_empty()
    });
}

#[test]
fn a_gang_of_which_the_kubelet_refuses_a_pod_fails_and_its_gpus_are_free_again() {
    let Some(cluster) = Cluster::of_machines(&[(NODES[0], "")], 2, &preempting()) else {
        return;
    };
    // Host ports are looked at by the kubelet, and not by the scheduler: only one of the two can be on this node.
    let job = |name: &str, ports: &Value| {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
            "parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0,
            "template": {"metadata": {"labels": {"dovetail.io/sent-as": name}},
                "spec": {"schedulerName": "dovetail", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "main", "image": BUSYBOX, "command": ["sleep", "1000"], "ports": ports,
                        "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}}});
        let jobs = format!("/apis/batch/v1/namespaces/{}/jobs", cluster.space);
        let made = cluster.lab.request("POST", &jobs, Some(&job)).unwrap();
        assert_eq!(made.status, 201, "{}", made.body);
    };
    job("refused", &json!([{"containerPort": 7000, "hostPort": 7000}]));
    cluster.until("it has failed", || {
        cluster.end_of("refused").contains(&"Failed".to_owned())
    });
    let said: Vec<Value> = cluster
        .pods("refused")
        .iter()
        .map(|p| p["status"]["reason"].clone())
        .collect();
    assert!(said.contains(&json!("NodePorts")), "{said:?}");
    job("next", &json!([]));
    let both = [NODES[0], NODES[0]];
    cluster.until("the next gang has both GPUs", || cluster.running("next") == both);
}
