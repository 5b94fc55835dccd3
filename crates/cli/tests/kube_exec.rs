//! Commands in pods of jobs, through a real API server: the binary speaks WebSocket to it, it asks the kubelet, and the kubelet
//! (played) runs a process on this machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kubernetes;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use kubernetes::Cluster;
use serde_json::{Value, json};

/// Starts `dovetail kube exec`.
fn start(cluster: &Cluster, args: &[&str], input: impl Into<Stdio>) -> Child {
    Command::new(env!("CARGO_BIN_EXE_dovetail"))
        .args(["kube", "exec", "-n", &cluster.space, "--kubeconfig"])
        .arg(&cluster.kubeconfig)
        .args(args)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs it with this input.
fn exec(cluster: &Cluster, args: &[&str], input: &[u8]) -> Output {
    let mut child = start(cluster, args, Stdio::piped());
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // On the side: what comes back has to be read meanwhile.
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

/// Two instances on two machines.
fn running() -> Option<(Cluster, String)> {
    let cluster = Cluster::of_lab6("lab6-config-B-one-vc.yaml")?;
    let job = cluster.submit("alice", &cluster.file(6));
    cluster.until("both instances run", || cluster.running(&job).len() == 2);
    Some((cluster, job))
}

/// Prints where it runs.
const WHERE: &str = "printf %s $KUBELAB_CONTAINER";

#[test]
fn a_command_reads_prints_and_ends_as_if_it_ran_here() {
    let Some((cluster, job)) = running() else { return };
    let script = "echo out; echo err >&2; exit 3";
    let output = exec(&cluster, &[&job, "--task", "1", "--", "sh", "-c", script], b"");
    assert_eq!(shown(&output), (Some(3), "out\n".to_owned(), "err\n".to_owned()));

    // Words are passed on as they are, and without -i it reads nothing.
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

    // Input of more than any buffer, whose end the command sees.
    let input: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0] ^ 0x5a).collect();
    let output = exec(&cluster, &[&job, "--task", "0", "-i", "--", "cat"], &input);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stdout == input,
        "{} bytes of {}",
        output.stdout.len(),
        input.len()
    );

    // Every way to name it.
    let pods = cluster.pods(&job);
    let number = pods[0]["metadata"]["annotations"]["dovetail.io/job"]
        .as_str()
        .unwrap();
    for (at, pod) in pods.iter().enumerate() {
        let place = format!("{}/{}/main", cluster.space, name(pod));
        let task = at.to_string();
        for args in [
            &[name(pod).as_str(), "-c", "main"][..],
            &[&job, "--task", &task],
            &[number, "--task", &task],
            &["job-config-6", "--task", &task],
        ] {
            let all = [args, &["--", "sh", "-c", WHERE]].concat();
            assert_eq!(
                shown(&exec(&cluster, &all, b"")),
                (Some(0), place.clone(), String::new())
            );
        }
    }
    let (code, out, note) = shown(&exec(&cluster, &[&job, "--", "sh", "-c", WHERE], b""));
    assert_eq!(
        (code, out),
        (Some(0), format!("{}/{}/main", cluster.space, name(&pods[0])))
    );
    assert_eq!(
        note,
        format!(
            "note: using pod {}, the first of 2 running; choose another with --task\n",
            name(&pods[0])
        )
    );

    // What cannot be is a wrong request; what could not be done is a failure.
    let (code, _, said) = shown(&exec(&cluster, &["nobody", "--", "true"], b""));
    assert_eq!(code, Some(2));
    assert!(
        said.contains("nobody: no pod and no job with pods has this name here"),
        "{said}"
    );
    let (code, _, said) = shown(&exec(&cluster, &[&job, "--task", "7", "--", "true"], b""));
    assert_eq!(code, Some(2));
    assert!(said.contains("that run: 0, 1"), "{said}");
    let (code, _, said) = shown(&exec(
        &cluster,
        &[&job, "--task", "0", "--", "no-such-program"],
        b"",
    ));
    assert_eq!(code, Some(1));
    assert!(said.contains("no-such-program: No such file"), "{said}");
}

#[test]
fn old_kubelets_and_api_servers_that_translate_are_understood() {
    let Some((cluster, job)) = running() else { return };
    let pod = name(&cluster.pods(&job)[0]);
    // Of a kubelet that knows only the version before, the end of the input cannot be told.
    cluster.node_api.set_pre_1_30(true);
    let folder = tempfile::tempdir().unwrap();
    let go_on = folder.path().join("go-on");
    let script = format!(
        "read a; while [ ! -e {} ]; do sleep 0.05; done; echo got $a; exit 3",
        go_on.display()
    );
    let mut child = start(&cluster, &[&pod, "-i", "--", "sh", "-c", &script], Stdio::piped());
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let mut said = String::new();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    errors.read_line(&mut said).unwrap();
    assert!(said.contains("does not support closing the input"), "{said}");
    std::fs::write(go_on, "").unwrap();
    let (code, out, _) = shown(&child.wait_with_output().unwrap());
    assert_eq!((code, out.as_str()), (Some(3), "got hello\n"));
    cluster.node_api.set_pre_1_30(false);

    // Where the kubelet does not say that it speaks WebSocket, the API server itself does, and speaks SPDY to the kubelet, which
    // this one does not: the client hears from the real thing that, and why, it came to nothing.
    for node in ["hostname-carol", "hostname-dan"] {
        let path = format!("/api/v1/nodes/{node}/status");
        let patch = json!({"status": {"declaredFeatures": null}});
        let answer = cluster.lab.request("PATCH", &path, Some(&patch)).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let (code, out, said) = shown(&exec(&cluster, &[&pod, "-i", "--", "cat"], b"lost"));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(
        said.contains("a command over WebSocket") && said.contains(&pod),
        "{said}"
    );
}

#[test]
fn a_terminal_has_the_size_of_ours_and_keys_reach_the_command() {
    let Some((cluster, job)) = running() else { return };
    let (ours, theirs) = terminal(33, 101);
    let mut keys = File::from(ours);
    // The size comes after the start, so it is waited for.
    let script =
        "while [ \"$(stty size)\" = '0 0' ]; do sleep 0.05; done; stty size; read a; echo got $a; exit 4";
    let args = [&job, "--task", "0", "-it", "--", "sh", "-c", script];
    let child = start(&cluster, &args, theirs);
    keys.write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let (code, out, said) = shown(&output);
    assert_eq!(code, Some(4), "{out}{said}");
    assert!(
        out.contains("33 101\r\n") && out.contains("got hello\r\n"),
        "{out:?}"
    );
}

/// A terminal of this size: our end, and that of a program.
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
