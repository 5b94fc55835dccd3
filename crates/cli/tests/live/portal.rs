//! API requests of the page to a real server with real agents, and the same from the command line.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::Cluster;

/// Sends a request to the API and returns status and body.
fn call(cluster: &Cluster, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let mut socket = TcpStream::connect(("127.0.0.1", cluster.http_port())).unwrap();
    write!(
        socket,
        "{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        cluster.token(),
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn a_log_is_searched_on_its_nodes() {
    let mut cluster = Cluster::server_only(2, "tls: false\n");
    for i in 0..2 {
        cluster.start_agent(i);
    }
    cluster.until("the nodes have joined", |c| c.nodes().len() == 2);
    let job = cluster.submit(
        &["--gpus", "4"],
        &[
            "sh",
            "-c",
            "seq 1 200000; echo the needle is here; seq 1 1000; printf 'a needle without an end'",
        ],
    );
    cluster.until_state(job, "completed");
    let (status, found) = call(
        &cluster,
        "GET",
        &format!("/jobs/{job}/logs/search?q=needle"),
        &Value::Null,
    );
    assert_eq!(status, 200, "{found}");
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 4, "two lines on each of two nodes: {found:?}");
    assert_eq!(
        (&found[0]["line"], &found[1]["line"]),
        (&json!("the needle is here"), &json!("a needle without an end"))
    );
    let numbers: u64 = (1..=200_000u64).map(|i| i.to_string().len() as u64 + 1).sum();
    assert_eq!(found[0]["offset"], json!(numbers), "offset of the line");
    let node = found[0]["node"].as_str().unwrap();
    let (_, one) = call(
        &cluster,
        "GET",
        &format!("/jobs/{job}/logs/search?q=needle&node={node}&limit=1"),
        &Value::Null,
    );
    assert_eq!(one.as_array().unwrap().len(), 1);
    let (_, none) = call(
        &cluster,
        "GET",
        &format!("/jobs/{job}/logs/search?q=haystack"),
        &Value::Null,
    );
    assert_eq!(none, json!([]));
    let (status, _) = call(
        &cluster,
        "GET",
        &format!("/jobs/{job}/logs/search?q="),
        &Value::Null,
    );
    assert_eq!(status, 422);
    let (status, gpus) = call(&cluster, "GET", &format!("/jobs/{job}/gpus"), &Value::Null);
    assert_eq!(
        (status, &gpus["known"]),
        (200, &json!(false)),
        "virtual GPUs report no utilization: {gpus}"
    );
}

#[test]
fn templates_in_a_folder_become_jobs() {
    let mut cluster = Cluster::server_only(1, "tls: false\n");
    cluster.start_agent(0);
    cluster.until("the node has joined", |c| c.nodes().len() == 1);
    let folder = cluster.path("server").join("templates");
    fs::create_dir_all(&folder).unwrap();
    let text = "title: Hello\nparameters:\n- {name: word, type: text}\njob: |\n  # Prints a word.\n  command: echo <% word %>\n";
    fs::write(folder.join("hello.yaml"), text).unwrap();
    let (_, all) = call(&cluster, "GET", "/templates", &Value::Null);
    let names: Vec<&str> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["hello", "python", "sweep", "torchrun"]);
    let (status, made) = call(
        &cluster,
        "POST",
        "/templates/hello/render",
        &json!({"values": {"word": "made-of-a-template"}}),
    );
    assert_eq!(status, 200, "{made}");
    let file = cluster.script("made.yaml", made["text"].as_str().unwrap());
    let job: u64 = cluster.ok(&["submit", &file]).trim().parse().unwrap();
    cluster.until_state(job, "completed");
    assert!(cluster.log(job).contains("made-of-a-template"));
}

#[test]
fn virtual_clusters_are_changed_from_the_command_line() {
    let cluster = Cluster::start(1, 4, "");
    let dry = cluster.ok(&["vc", "set", "vision", "--guaranteed-gpus", "3", "--dry-run"]);
    assert!(
        dry.contains("vision: guaranteed_gpus: 0 -> 3") && dry.contains("Dry run: nothing was changed."),
        "{dry}"
    );
    assert!(!cluster.ok(&["vc", "list"]).contains("vision"));
    let done = cluster.ok(&[
        "vc",
        "set",
        "vision",
        "--guaranteed-gpus",
        "3",
        "--order",
        "las",
        "--user-cap-gpus",
        "2",
    ]);
    assert!(
        done.contains("vision: order: null -> \"las\"") && done.contains("Applied."),
        "{done}"
    );
    let list: Value = serde_json::from_str(&cluster.ok(&["vc", "list", "-o", "json"])).unwrap();
    let vision = list["vcs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|vc| vc["name"] == "vision")
        .unwrap()
        .clone();
    assert_eq!(
        (
            &vision["guaranteed_gpus"],
            &vision["order"],
            &vision["user_cap_gpus"]
        ),
        (&json!(3), &json!("las"), &json!(2))
    );
    cluster.ok(&["vc", "set", "vision", "--user-cap-gpus", "none"]);
    let file = cluster.script("next.yaml", "mode: quota\nvcs: {default: {guaranteed_gpus: 4}}\n");
    let diff = cluster.ok(&["vc", "diff", &file]);
    assert!(
        diff.contains("vision: removed") && diff.contains("default: guaranteed_gpus: 1 -> 4"),
        "{diff}"
    );
    for (args, part) in [
        (&["vc", "set", "vision", "--order", "lass"][..], "las"),
        (
            &["vc", "set", "vision", "--max-priority", "high"],
            "--max-priority",
        ),
        (
            &["vc", "set", "vision", "--everyone", "king"],
            "expected none, viewer or member",
        ),
        (&["vc", "remove", "visoin"], "unknown virtual cluster"),
    ] {
        let output = cluster.run(args);
        assert!(
            output.code == 2 && output.err.contains(part),
            "{args:?}: {output:?}"
        );
    }
    assert!(cluster.ok(&["vc", "apply", &file]).contains("Applied."));
    assert!(!cluster.ok(&["vc", "list"]).contains("vision"));
    assert!(
        cluster
            .ok(&["vc", "set", "vision", "--guaranteed-gpus", "0"])
            .contains("Applied.")
    );
    assert!(cluster.ok(&["vc", "remove", "vision"]).contains("Applied."));
}

/// Starts an HTTP server and returns its URL and the bodies it receives.
fn webhook_server() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).unwrap();
            }
            let lower = head.to_ascii_lowercase();
            let length = lower
                .lines()
                .find_map(|l| l.strip_prefix("content-length: "))
                .unwrap();
            let mut body = vec![0; length.parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .unwrap();
            if sender.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (url, receiver)
}

#[test]
fn users_are_notified_of_their_jobs() {
    let cluster = Cluster::start(
        1,
        2,
        "notify: {local_webhooks: true, public_url: 'https://d.example.org'}\n",
    );
    let (url, bodies) = webhook_server();
    assert!(cluster.ok(&["notify", "show"]).contains("Notifications are off."));
    let set = cluster.ok(&[
        "notify",
        "set",
        "--on",
        "running,completed,failed",
        "--webhook",
        &url,
    ]);
    assert!(
        set.contains("Notifications for running, completed, failed") && set.contains("signed with"),
        "{set}"
    );
    assert_eq!(cluster.ok(&["notify", "test"]).trim(), "webhook: delivered");
    let next = || bodies.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(next()["event"], "test");
    let job = cluster.submit(&["--name", "good"], &["true"]);
    let (first, second) = (next(), next());
    assert_eq!(
        (&first["event"], &second["event"]),
        (&json!("running"), &json!("completed"))
    );
    assert_eq!(second["url"], format!("https://d.example.org/jobs/{job}"));
    let file = cluster.script("quiet.yaml", "name: quiet\ncommand: exit 4\nnotify: [failed]\n");
    let submitted = cluster.run(&["submit", &file]);
    assert_eq!(submitted.code, 0, "{submitted:?}");
    let notification = next();
    assert_eq!(
        (&notification["event"], &notification["job"]["name"]),
        (&json!("failed"), &json!("quiet"))
    );
    let text = notification["text"].as_str().unwrap();
    assert!(text.contains("exit code 4"), "{notification}");
    let wrong = cluster.run(&["notify", "set", "--on", "lunch"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("pending-too-long"),
        "{wrong:?}"
    );
    cluster.ok(&["notify", "set", "--webhook", "none", "--on", "none"]);
    assert!(cluster.ok(&["notify", "test"]).contains("Notifications are off"));
}
