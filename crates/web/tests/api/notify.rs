//! People are told of their jobs: by requests to a real listener and by mail to a real server, both in this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dovetail_control::{JobNo, LoadPoint, TaskEnd};
use dovetail_model::{NodeId, Time};
use dovetail_web::{ApiConfig, Notifier, NotifyConfig, Pace};
use serde_json::{Value, json};

use crate::server::Server;

/// A request that came: its headers and its body.
type Hook = (String, String);

/// Answers each request with the next of these statuses, the last again and again; zero is no answer at all.
fn listener(statuses: &'static [u16]) -> (String, Receiver<Hook>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for (i, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let status = statuses[i.min(statuses.len() - 1)];
            if status == 0 {
                held.push(stream);
                continue;
            }
            let (head, body) = request(&mut stream);
            let _ = write!(
                stream,
                "HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            if sender.send((head, body)).is_err() {
                return;
            }
        }
    });
    (url, receiver)
}

fn request(stream: &mut TcpStream) -> Hook {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0);
    }
    let length = head.lines().find_map(|l| {
        let (name, value) = l.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// A mail server that takes everything, in the open.
fn mail_server() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut out = stream.try_clone().unwrap();
            let mut reader = BufReader::new(stream);
            out.write_all(b"220 mail\r\n").unwrap();
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or(0) > 0 {
                let answer = match line.split_whitespace().next().unwrap_or_default() {
                    "EHLO" => "250 mail\r\n",
                    "DATA" => {
                        out.write_all(b"354 go\r\n").unwrap();
                        let mut text = String::new();
                        while !text.ends_with("\r\n.\r\n") {
                            reader.read_line(&mut text).unwrap();
                        }
                        let _ = sender.send(text);
                        "250 taken\r\n"
                    }
                    "QUIT" => "221 bye\r\n",
                    _ => "250 ok\r\n",
                };
                out.write_all(answer.as_bytes()).unwrap();
                line.clear();
            }
        }
    });
    (address, receiver)
}

fn quick() -> Pace {
    Pace {
        again: [20, 40, 80].map(Duration::from_millis).to_vec(),
        patience: Duration::from_millis(500),
        look: Duration::from_millis(50),
        mails: Duration::from_millis(300),
    }
}

/// All GPUs are taken, so that whatever comes waits.
fn fill(server: &Server) {
    server.submit(&server.admin, json!({"gpus": 8}));
}

fn start(yaml: &str) -> Server {
    let config: NotifyConfig = serde_saphyr::from_str(yaml).unwrap();
    let api = ApiConfig {
        notifier: Some(Notifier::open(&config, quick()).unwrap()),
        ..ApiConfig::default()
    };
    Server::start_with(2, api)
}

fn want(server: &Server, token: &str, notify: Value) -> Value {
    let set = server.call(token, "PUT", "/me/notify", &notify);
    assert_eq!(set.status, 200, "{set:?}");
    set.json()
}

fn next(hooks: &Receiver<Hook>) -> (String, Value) {
    let (head, body) = hooks.recv_timeout(Duration::from_secs(20)).unwrap();
    (head, serde_json::from_str(&body).unwrap())
}

fn node_of(server: &Server, job: JobNo) -> NodeId {
    server
        .handle
        .read(|book| book.job(job).unwrap().attempt().unwrap().allocation.shares[0].node)
}

fn runs(server: &Server, job: JobNo) {
    let node = node_of(server, job);
    let launch = server
        .handle
        .read(|book| book.job(job).unwrap().attempt().unwrap().launch);
    let started = server
        .handle
        .task_started(job, launch, node, String::new(), Vec::new());
    started.wait().unwrap();
}

fn ends(server: &Server, job: JobNo, end: TaskEnd) {
    let node = node_of(server, job);
    let launch = server
        .handle
        .read(|book| book.job(job).unwrap().attempt().unwrap().launch);
    server.handle.task_ended(job, launch, node, end).wait().unwrap();
}

const LOCAL: &str = "local_webhooks: true\npublic_url: https://d.example.org\n";

#[test]
fn what_happens_to_a_job_is_posted_and_signed() {
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    let (url, hooks) = listener(&[204]);
    let set = want(
        &server,
        &ann,
        json!({"webhook": url, "on": ["running", "completed", "failed", "preempted"]}),
    );
    let secret = set["secret"].as_str().unwrap().to_owned();
    let job = server.submit(&ann, json!({"name": "train"}));
    runs(&server, job);
    let (head, raw) = hooks.recv_timeout(Duration::from_secs(20)).unwrap();
    let body: Value = serde_json::from_str(&raw).unwrap();
    assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
    assert_eq!(
        (&body["event"], &body["job"]["id"], &body["version"]),
        (&json!("running"), &json!(job), &json!(1))
    );
    assert_eq!(body["url"], format!("https://d.example.org/jobs/{job}"));
    assert!(
        body["text"]
            .as_str()
            .unwrap()
            .starts_with("Job 1 (train) runs on 1 GPU of node-"),
        "{body}"
    );
    let signed = head
        .lines()
        .find_map(|l| l.strip_prefix("x-dovetail-signature: "))
        .unwrap();
    let (time, tag) = signed.split_once(",v1=").unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let expected = ring::hmac::sign(&key, format!("{}.{raw}", &time[2..]).as_bytes());
    let hex: String = expected.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, tag);
    ends(
        &server,
        job,
        TaskEnd {
            exit_code: 3,
            ..TaskEnd::default()
        },
    );
    let (_, body) = next(&hooks);
    assert_eq!(
        (&body["event"], &body["job"]["state"]),
        (&json!("failed"), &json!("failed")),
        "{body}"
    );
    assert!(body["text"].as_str().unwrap().contains("exit code 3"), "{body}");
    // Whoever stops its own job is told nothing; when somebody else does, it is.
    let own = server.submit(&ann, json!({"name": "own"}));
    let other = server.submit(&ann, json!({"name": "other", "gpus": 8}));
    assert_eq!(
        server
            .call(&ann, "POST", &format!("/jobs/{own}/stop"), &Value::Null)
            .status,
        200
    );
    assert_eq!(
        server
            .call(
                &server.admin,
                "POST",
                &format!("/jobs/{other}/stop"),
                &Value::Null
            )
            .status,
        200
    );
    let (_, body) = next(&hooks);
    assert_eq!(
        (&body["event"], &body["job"]["id"]),
        (&json!("failed"), &json!(other)),
        "{body}"
    );
    assert!(body["text"].as_str().unwrap().contains("admin"), "{body}");
}

#[test]
fn somebody_whose_job_gives_way_is_told_by_whom() {
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    let (url, hooks) = listener(&[200]);
    want(&server, &ann, json!({"webhook": url, "on": ["preempted"]}));
    let quota = json!({"mode": "quota", "vcs": {"default": {"guaranteed_gpus": 8}}});
    assert_eq!(server.call(&server.admin, "PUT", "/vcs", &quota).status, 200);
    let borrower = server.submit(&ann, json!({"name": "extra", "gpus": 4, "priority": -1}));
    runs(&server, borrower);
    let owner = server.submit(
        &server.admin,
        json!({"name": "owner", "gpus": 8, "gpus_per_task": 4}),
    );
    ends(
        &server,
        borrower,
        TaskEnd {
            was_stopped: true,
            signal: 15,
            ..TaskEnd::default()
        },
    );
    let (_, body) = next(&hooks);
    assert_eq!(
        (&body["event"], &body["job"]["state"]),
        (&json!("preempted"), &json!("preempted")),
        "{body}"
    );
    assert!(
        body["text"].as_str().unwrap().contains(&owner.to_string()),
        "{body}"
    );
}

#[test]
fn a_job_says_its_own_and_waiting_too_long_is_told_once() {
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    let (url, hooks) = listener(&[200]);
    want(
        &server,
        &ann,
        json!({"webhook": url, "on": ["running"], "pending_s": 3600}),
    );
    let quiet = server.submit(&ann, json!({"gpus": 8, "gpus_per_task": 4, "notify": {"on": []}}));
    for node in 0..2 {
        let launch = 1;
        let started = server
            .handle
            .task_started(quiet, launch, NodeId(node), String::new(), Vec::new());
        started.wait().unwrap();
    }
    let text = "name: late\ncommand: x\ngpus: 8\nnotify: {on: [pending-too-long], pending: 100ms}\n";
    let head = [
        format!("Authorization: Bearer {ann}"),
        "Content-Type: application/yaml".to_owned(),
    ];
    let sent = server.raw(
        "POST",
        "/api/v1/jobs",
        &head,
        text.replace("100ms", "0.1").as_bytes(),
    );
    assert_eq!(sent.status, 201, "{sent:?}");
    let (_, body) = next(&hooks);
    assert_eq!(
        (&body["event"], &body["job"]["name"]),
        (&json!("pending-too-long"), &json!("late")),
        "{body}"
    );
    assert!(
        hooks.recv_timeout(Duration::from_millis(500)).is_err(),
        "it is told once, and of the quiet job nothing"
    );
    for (wrong, part) in [
        (json!({"on": ["lunch"]}), "lunch"),
        (json!({"webhook": "ftp://x"}), "webhook"),
        (json!({"pending_s": -5}), "pending_s"),
    ] {
        let job = json!({"job": {"command": ["true"], "notify": wrong}});
        let said = server.call(&ann, "POST", "/jobs", &job);
        assert!(said.status == 422 && said.text.contains(part), "{said:?}");
    }
}

#[test]
fn gpus_that_do_hardly_anything_are_told_of() {
    let server = start("local_webhooks: true\nlow_gpu_for: 2s\nlow_gpu_percent: 20\n");
    let ann = server.user("ann", &[]);
    let (url, hooks) = listener(&[200]);
    want(&server, &ann, json!({"webhook": url, "on": ["low-gpu-use"]}));
    let job = server.submit(&ann, json!({"name": "idle", "gpus": 2}));
    runs(&server, job);
    let none = server.get(&ann, &format!("/jobs/{job}/gpus")).json();
    assert_eq!(none["known"], false);
    assert!(none["note"].as_str().unwrap().contains("virtual GPUs"), "{none}");
    let begun = Instant::now();
    let hook = loop {
        let now = server.handle.read(|_| Time(dovetail_now()));
        server.loads.lock().unwrap().push(LoadPoint {
            at: now,
            gpu_busy: vec![4, 8, 90, 90],
            gpu_memory_mib: vec![100, 200, 300, 400],
            ..LoadPoint::default()
        });
        if let Ok(hook) = hooks.recv_timeout(Duration::from_millis(100)) {
            break hook;
        }
        assert!(begun.elapsed() < Duration::from_secs(30));
    };
    let body: Value = serde_json::from_str(&hook.1).unwrap();
    assert_eq!(body["event"], "low-gpu-use");
    assert!(
        body["text"].as_str().unwrap().contains("6 % over the last 2 s"),
        "{body}"
    );
    let known = server.get(&ann, &format!("/jobs/{job}/gpus")).json();
    assert_eq!(
        (&known["known"], known["gpus"].as_array().unwrap().len()),
        (&json!(true), 2),
        "{known}"
    );
    assert_eq!(known["gpus"][1]["points"][0]["memory_mib"], 200);
    assert_eq!(known["mean"][0]["busy"], 6.0);
}

fn dovetail_now() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    since.as_micros() as i64
}

#[test]
fn what_is_not_taken_is_tried_again_and_then_let_go() {
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    fill(&server);
    let (url, hooks) = listener(&[500, 503, 200]);
    want(&server, &ann, json!({"webhook": url, "on": ["failed"]}));
    let stop = |server: &Server| {
        let job = server.submit(&ann, json!({"gpus": 8}));
        server.call(&server.admin, "POST", &format!("/jobs/{job}/stop"), &Value::Null);
    };
    stop(&server);
    let tries = [next(&hooks), next(&hooks), next(&hooks)];
    let id = |head: &str| {
        head.lines()
            .find_map(|l| l.strip_prefix("x-dovetail-delivery: "))
            .unwrap()
            .to_owned()
    };
    assert_eq!(id(&tries[0].0), id(&tries[2].0), "the same delivery");
    assert_eq!(tries[0].1, tries[2].1);
    let (refuses, hooks) = listener(&[410]);
    want(&server, &ann, json!({"webhook": refuses, "on": ["failed"]}));
    stop(&server);
    next(&hooks);
    assert!(
        hooks.recv_timeout(Duration::from_millis(500)).is_err(),
        "a refusal is taken for an answer"
    );
    let metrics = server.raw("GET", "/metrics", &[], b"").text;
    for line in [
        "dovetail_notifications_total{result=\"sent\"} 1",
        "dovetail_notifications_total{result=\"failed\"} 1",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{metrics}");
    }
}

#[test]
fn a_target_that_hangs_holds_up_nobody() {
    let server = start(LOCAL);
    let (ann, bob) = (server.user("ann", &[]), server.user("bob", &[]));
    let (hangs, _held) = listener(&[0]);
    let (url, hooks) = listener(&[200]);
    want(&server, &ann, json!({"webhook": hangs, "on": ["failed"]}));
    want(&server, &bob, json!({"webhook": url, "on": ["failed"]}));
    let begun = Instant::now();
    let many = json!({"job": {"command": ["true"], "gpus": 8}, "array": {"indices": (0..500).collect::<Vec<u32>>()}});
    assert_eq!(server.call(&ann, "POST", "/jobs", &many).status, 201);
    let stop = json!({"action": "stop", "ids": (1..=500).collect::<Vec<u64>>()});
    assert_eq!(
        server.call(&server.admin, "POST", "/jobs/actions", &stop).status,
        200
    );
    let job = server.submit(&bob, json!({"gpus": 8}));
    server.call(&server.admin, "POST", &format!("/jobs/{job}/stop"), &Value::Null);
    assert_eq!(next(&hooks).1["job"]["id"], json!(job));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let metrics = server.raw("GET", "/metrics", &[], b"").text;
    let dropped = metrics
        .lines()
        .find_map(|l| l.strip_prefix("dovetail_notifications_total{result=\"dropped\"} "));
    assert!(
        dropped.unwrap().parse::<f64>().unwrap() >= 300.0,
        "what would pile up is not taken: {metrics}"
    );
}

#[test]
fn this_machine_is_not_posted_to_unless_the_server_says_so() {
    let server = start("public_url: https://d.example.org\n");
    let ann = server.user("ann", &[]);
    fill(&server);
    let (url, hooks) = listener(&[200]);
    want(&server, &ann, json!({"webhook": url, "on": ["failed"]}));
    let tried = server.call(&ann, "POST", "/me/notify/test", &json!({})).json();
    assert_eq!(tried["webhook"]["ok"], false, "{tried}");
    assert!(
        tried["webhook"]["detail"]
            .as_str()
            .unwrap()
            .contains("nothing is sent there"),
        "{tried}"
    );
    let job = server.submit(&ann, json!({"gpus": 8}));
    server.call(&server.admin, "POST", &format!("/jobs/{job}/stop"), &Value::Null);
    assert!(hooks.recv_timeout(Duration::from_secs(1)).is_err());
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    want(&server, &ann, json!({"webhook": "http://127.0.0.1:1/", "on": []}));
    let tried = server.call(&ann, "POST", "/me/notify/test", &json!({})).json();
    assert_eq!(
        tried["webhook"]["detail"], "it cannot be reached",
        "no more is told of a network"
    );
}

#[test]
fn mail_is_sent_and_what_happens_together_is_in_one() {
    let (address, mails) = mail_server();
    let server = start(&format!(
        "smtp: {{server: '{address}', security: 'off', from: dovetail@example.org}}\n"
    ));
    let ann = server.user("ann", &[]);
    fill(&server);
    let email = server.call(
        &server.admin,
        "PATCH",
        "/users/ann",
        &json!({"email": "ann@example.org"}),
    );
    assert_eq!(email.status, 200);
    for wrong in ["ann@example.org\r\nBcc: eve@example.org", "a@b, c@d", "nobody"] {
        let said = server.call(&server.admin, "PATCH", "/users/ann", &json!({"email": wrong}));
        assert_eq!((said.status, said.code().as_str()), (422, "invalid"), "{said:?}");
    }
    want(&server, &ann, json!({"email": true, "on": ["failed"]}));
    let tried = server.call(&ann, "POST", "/me/notify/test", &json!({})).json();
    assert_eq!(
        tried,
        json!({"webhook": null, "email": {"ok": true, "detail": ""}})
    );
    let mail = mails.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(mail.contains("\r\nTo: ann@example.org\r\n"), "{mail}");
    let jobs: Vec<u64> = (0..5)
        .map(|i| {
            server.submit(
                &ann,
                json!({"name": format!("x\r\nBcc: eve@example.org {i}"), "gpus": 8}),
            )
        })
        .collect();
    let stop = json!({"action": "stop", "ids": jobs});
    assert_eq!(
        server.call(&server.admin, "POST", "/jobs/actions", &stop).status,
        200
    );
    let (mut told, mut count) = (0, 0);
    while told < 5 {
        let mail = mails.recv_timeout(Duration::from_secs(10)).unwrap();
        let (head, body) = mail.split_once("\r\n\r\n").unwrap();
        assert!(!head.lines().any(|l| l.starts_with("Bcc")), "{head}");
        told += body.matches("did not complete").count();
        count += 1;
    }
    assert!(count <= 3, "five things came in {count} mails");
}

#[test]
fn secrets_and_trials_are_for_their_owner() {
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    let (url, _hooks) = listener(&[200]);
    let set = want(&server, &ann, json!({"webhook": url, "on": ["failed"]}));
    let kept = want(&server, &ann, json!({"webhook": url, "on": []}));
    assert_eq!(kept["secret"], set["secret"], "it stays");
    assert_ne!(
        want(&server, &ann, json!({"webhook": url, "secret": ""}))["secret"],
        set["secret"]
    );
    let read = server
        .call(&ann, "POST", "/me/tokens", &json!({"scope": "read"}))
        .json();
    let shown = server.get(read["token"].as_str().unwrap(), "/me/notify").json();
    assert!(shown["secret"].is_null(), "{shown}");
    let said: Vec<u16> = (0..8)
        .map(|_| server.call(&ann, "POST", "/me/notify/test", &json!({})).status)
        .collect();
    assert!(said[..5] == [200; 5] && said.contains(&429), "{said:?}");
    assert!(
        !server
            .get(&server.admin, "/users")
            .text
            .contains(set["secret"].as_str().unwrap())
    );
}
