//! Commands in pods of jobs through a real API server: the binary connects to it over WebSocket, it connects to the simulated
//! kubelet, and that runs a process on this machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kubernetes;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use dovetail_kubelab::Subprocess;
use kubernetes::Cluster;
use serde_json::{Value, json};

/// Starts `dovetail kube exec`.
fn start(cluster: &Cluster, args: &[&str], input: impl Into<Stdio>) -> Subprocess {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    command
        .args(["kube", "exec", "-n", &cluster.namespace, "--kubeconfig"])
        .arg(&cluster.kubeconfig)
        .args(args)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Subprocess::spawn(&mut command).unwrap()
}

/// Runs `dovetail kube exec` with this input.
fn exec(cluster: &Cluster, args: &[&str], input: &[u8]) -> Output {
    let mut child = start(cluster, args, Stdio::piped());
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // In a thread, because the output must be read at the same time.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn shown(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Starts a job of two instances on two nodes.
fn start_job() -> Option<(Cluster, String)> {
    let cluster = Cluster::of_lab6("lab6-config-B-one-vc.yaml")?;
    let job = cluster.submit("alice", &cluster.file(6));
    cluster.until("both instances run", || cluster.running(&job).len() == 2);
    Some((cluster, job))
}

/// Prints the container in which it runs.
const PRINT_CONTAINER: &str = "printf %s $KUBELAB_CONTAINER";

#[test]
fn a_command_has_input_output_and_exit_code_like_a_local_one() {
    let Some((cluster, job)) = start_job() else { return };
    let script = "echo out; echo err >&2; exit 3";
    let output = exec(&cluster, &[&job, "--task", "1", "--", "sh", "-c", script], b"");
    assert_eq!(shown(&output), (Some(3), "out\n".to_owned(), "err\n".to_owned()));

    // Arguments are passed unchanged, and without -i the input is empty.
    let output = exec(
        &cluster,
        &[&job, "--task", "0", "--", "printf", "%s|", "a b", "&c=%20", "é+"],
        b"",
    );
    assert_eq!(
        shown(&output),
        (Some(0), "a b|&c=%20|é+|".to_owned(), String::new())
    );
    let output = exec(&cluster, &[&job, "--task", "0", "--", "cat"], b"not passed on");
    assert_eq!(shown(&output), (Some(0), String::new(), String::new()));

    // Input larger than any buffer; the command sees its end.
    let input: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0] ^ 0x5a).collect();
    let output = exec(&cluster, &[&job, "--task", "0", "-i", "--", "cat"], &input);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stdout == input,
        "{} bytes of {}",
        output.stdout.len(),
        input.len()
    );

    // By pod, by name of the objects, by job ID, and by name of the job.
    let pods = cluster.pods(&job);
    let number = pods[0]["metadata"]["annotations"]["dovetail.io/job"]
        .as_str()
        .unwrap();
    for (at, pod) in pods.iter().enumerate() {
        let place = format!("{}/{}/main", cluster.namespace, name(pod));
        let task = at.to_string();
        for args in [
            &[name(pod).as_str(), "-c", "main"][..],
            &[&job, "--task", &task],
            &[number, "--task", &task],
            &["job-config-6", "--task", &task],
        ] {
            let all = [args, &["--", "sh", "-c", PRINT_CONTAINER]].concat();
            assert_eq!(
                shown(&exec(&cluster, &all, b"")),
                (Some(0), place.clone(), String::new())
            );
        }
    }
    let (code, out, note) = shown(&exec(&cluster, &[&job, "--", "sh", "-c", PRINT_CONTAINER], b""));
    assert_eq!(
        (code, out),
        (Some(0), format!("{}/{}/main", cluster.namespace, name(&pods[0])))
    );
    assert_eq!(
        note,
        format!(
            "note: using pod {}, the first of 2 running; choose another with --task\n",
            name(&pods[0])
        )
    );

    // An unknown target is a wrong request; a command that does not start is a failure.
    let (code, _, message) = shown(&exec(&cluster, &["missing", "--", "true"], b""));
    assert_eq!(code, Some(2));
    assert!(
        message.contains("missing: no pod and no job with pods has this name here"),
        "{message}"
    );
    let (code, _, message) = shown(&exec(&cluster, &[&job, "--task", "7", "--", "true"], b""));
    assert_eq!(code, Some(2));
    assert!(message.contains("that run: 0, 1"), "{message}");
    let (code, _, message) = shown(&exec(
        &cluster,
        &[&job, "--task", "0", "--", "no-such-program"],
        b"",
    ));
    assert_eq!(code, Some(1));
    assert!(message.contains("no-such-program: No such file"), "{message}");
}

#[test]
fn old_kubelets_and_translating_api_servers_are_supported() {
    let Some((cluster, job)) = start_job() else { return };
    let pod = name(&cluster.pods(&job)[0]);
    // A kubelet before 1.30 cannot be told that the input has ended.
    cluster.node_api.set_pre_1_30(true);
    let folder = tempfile::tempdir().unwrap();
    let resume = folder.path().join("resume");
    let script = format!(
        "read a; while [ ! -e {} ]; do sleep 0.05; done; echo got $a; exit 3",
        resume.display()
    );
    let mut child = start(&cluster, &[&pod, "-i", "--", "sh", "-c", &script], Stdio::piped());
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let mut message = String::new();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    errors.read_line(&mut message).unwrap();
    assert!(
        message.contains("does not support closing the input"),
        "{message}"
    );
    std::fs::write(resume, "").unwrap();
    let (code, out, _) = shown(&child.wait_with_output().unwrap());
    assert_eq!((code, out.as_str()), (Some(3), "got hello\n"));
    cluster.node_api.set_pre_1_30(false);

    // If the kubelet does not declare WebSocket, the API server translates to SPDY, which the simulated kubelet does not
    // support: the client reports the error of the real API server.
    for node in ["hostname-carol", "hostname-dan"] {
        let path = format!("/api/v1/nodes/{node}/status");
        let patch = json!({"status": {"declaredFeatures": null}});
        let answer = cluster.lab.request("PATCH", &path, Some(&patch)).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let (code, out, message) = shown(&exec(&cluster, &[&pod, "-i", "--", "cat"], b"lost"));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(
        message.contains("a command over WebSocket") && message.contains(&pod),
        "{message}"
    );
}

#[test]
fn a_remote_terminal_has_the_local_size_and_receives_keys() {
    let Some((cluster, job)) = start_job() else { return };
    let (ours, theirs) = terminal(33, 101);
    let mut keys = File::from(ours);
    // The size is set after the start, so the script waits for it.
    let script =
        "while [ \"$(stty size)\" = '0 0' ]; do sleep 0.05; done; stty size; read a; echo got $a; exit 4";
    let args = [&job, "--task", "0", "-it", "--", "sh", "-c", script];
    let mut child = start(&cluster, &args, theirs);
    keys.write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let (code, out, message) = shown(&output);
    assert_eq!(code, Some(4), "{out}{message}");
    assert!(
        out.contains("33 101\r\n") && out.contains("got hello\r\n"),
        "{out:?}"
    );
}

/// Opens a terminal of this size and returns its two ends: ours, and that of a program.
fn terminal(rows: u16, columns: u16) -> (std::os::fd::OwnedFd, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let path = ptsname(&ours, Vec::new()).unwrap().to_string_lossy().into_owned();
    let theirs = File::options().read(true).write(true).open(path).unwrap();
    let size = rustix::termios::Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&ours, size).unwrap();
    (ours, theirs)
}
