//! Notifications, by webhooks to a real listener and by mail to a real server, both in this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dovetail_cluster::{JobId, LoadPoint, TaskEnd};
use dovetail_model::{NodeId, Time};
use dovetail_web::{ApiConfig, Notifier, NotifyConfig, NotifyTiming};
use serde_json::{Value, json};

use crate::server::Server;

/// A received request: its headers and its body.
type Hook = (String, String);

/// Answers each request with the next of these statuses, and all further ones with the last; 0 is no answer.
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

/// A mail server that accepts everything, without encryption.
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

fn quick() -> NotifyTiming {
    NotifyTiming {
        retry_delays: [20, 40, 80].map(Duration::from_millis).to_vec(),
        timeout: Duration::from_millis(500),
        check_interval: Duration::from_millis(50),
        mail_interval: Duration::from_millis(300),
    }
}

/// Uses all GPUs, so that later jobs wait.
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

fn set_notify(server: &Server, token: &str, notify: Value) -> Value {
    let set = server.call(token, "PUT", "/me/notify", &notify);
    assert_eq!(set.status, 200, "{set:?}");
    set.json()
}

fn next(hooks: &Receiver<Hook>) -> (String, Value) {
    let (head, body) = hooks.recv_timeout(Duration::from_secs(20)).unwrap();
    (head, serde_json::from_str(&body).unwrap())
}

fn node_of(server: &Server, job: JobId) -> NodeId {
    server
        .handle
        .read(|state| state.job(job).unwrap().attempt().unwrap().allocation.shares[0].node)
}

fn start_job(server: &Server, job: JobId) {
    let node = node_of(server, job);
    let attempt_id = server
        .handle
        .read(|state| state.job(job).unwrap().attempt().unwrap().id);
    let started = server
        .handle
        .task_started(job, attempt_id, node, String::new(), Vec::new());
    started.wait().unwrap();
}

fn end_job(server: &Server, job: JobId, end: TaskEnd) {
    let node = node_of(server, job);
    let attempt_id = server
        .handle
        .read(|state| state.job(job).unwrap().attempt().unwrap().id);
    server
        .handle
        .task_ended(job, attempt_id, node, end)
        .wait()
        .unwrap();
}

const LOCAL: &str = "local_webhooks: true\npublic_url: https://d.example.org\n";

#[test]
fn events_of_a_job_are_posted_and_signed() {
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    let (url, hooks) = listener(&[204]);
    let set = set_notify(
        &server,
        &ann,
        json!({"webhook": url, "on": ["running", "completed", "failed", "preempted"]}),
    );
    let secret = set["secret"].as_str().unwrap().to_owned();
    let job = server.submit(&ann, json!({"name": "train"}));
    start_job(&server, job);
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
            .starts_with("Job 1 (train) is running on 1 GPU of node-"),
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
    end_job(
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
    // Users are notified when another user stops their job, but not when they stop it themselves.
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
fn preemption_names_the_preempting_job() {
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    let (url, hooks) = listener(&[200]);
    set_notify(&server, &ann, json!({"webhook": url, "on": ["preempted"]}));
    let quota = json!({"mode": "quota", "vcs": {"default": {"guaranteed_gpus": 8}}});
    assert_eq!(server.call(&server.admin, "PUT", "/vcs", &quota).status, 200);
    let borrower = server.submit(&ann, json!({"name": "extra", "gpus": 4, "priority": -1}));
    start_job(&server, borrower);
    let owner = server.submit(
        &server.admin,
        json!({"name": "owner", "gpus": 8, "gpus_per_task": 4}),
    );
    end_job(
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
        (&json!("preempted"), &json!("queued")),
        "{body}"
    );
    assert!(
        body["text"].as_str().unwrap().contains(&owner.to_string()),
        "{body}"
    );
}

#[test]
fn jobs_override_settings_and_pending_too_long_is_sent_once() {
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    let (url, hooks) = listener(&[200]);
    set_notify(
        &server,
        &ann,
        json!({"webhook": url, "on": ["running"], "pending_s": 3600}),
    );
    let quiet = server.submit(&ann, json!({"gpus": 8, "gpus_per_task": 4, "notify": {"on": []}}));
    for node in 0..2 {
        let attempt_id = 1;
        let started = server
            .handle
            .task_started(quiet, attempt_id, NodeId(node), String::new(), Vec::new());
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
        "one notification, and none about the quiet job"
    );
    for (wrong, part) in [
        (json!({"on": ["lunch"]}), "lunch"),
        (json!({"webhook": "ftp://x"}), "webhook"),
        (json!({"pending_s": -5}), "pending_s"),
    ] {
        let job = json!({"job": {"command": ["true"], "notify": wrong}});
        let answer = server.call(&ann, "POST", "/jobs", &job);
        assert!(answer.status == 422 && answer.text.contains(part), "{answer:?}");
    }
}

#[test]
fn low_gpu_utilization_is_reported() {
    let server = start("local_webhooks: true\nlow_gpu_for: 2s\nlow_gpu_percent: 20\n");
    let ann = server.user("ann", &[]);
    let (url, hooks) = listener(&[200]);
    set_notify(&server, &ann, json!({"webhook": url, "on": ["low-gpu-use"]}));
    let job = server.submit(&ann, json!({"name": "idle", "gpus": 2}));
    start_job(&server, job);
    let none = server.get(&ann, &format!("/jobs/{job}/gpus")).json();
    assert_eq!(none["known"], false);
    assert!(none["note"].as_str().unwrap().contains("virtual GPUs"), "{none}");
    let started_at = Instant::now();
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
        assert!(started_at.elapsed() < Duration::from_secs(30));
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
    let all = server.get(&ann, "/utilization").json();
    let one = &all[0];
    assert_eq!(
        (&one["node"], &one["interval_s"]),
        (&json!("node-0"), &json!(30)),
        "{all}"
    );
    assert_eq!(
        (&one["gpu"], &one["sm"]),
        (&json!([4.0, 8.0, 90.0, 90.0]), &json!([]))
    );
    let later = server
        .get(&ann, &format!("/utilization?node=node-0&from={}", i64::MAX))
        .json();
    assert_eq!(later, json!([]));
    assert_eq!(server.get(&ann, "/utilization?node=x").status, 404);
    assert_eq!(known["mean"][0]["busy"], 6.0);
}

fn dovetail_now() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    since.as_micros() as i64
}

#[test]
fn failed_deliveries_are_retried_and_then_given_up() {
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    fill(&server);
    let (url, hooks) = listener(&[500, 503, 200]);
    set_notify(&server, &ann, json!({"webhook": url, "on": ["failed"]}));
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
    set_notify(&server, &ann, json!({"webhook": refuses, "on": ["failed"]}));
    stop(&server);
    next(&hooks);
    assert!(
        hooks.recv_timeout(Duration::from_millis(500)).is_err(),
        "a rejection is not retried"
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
fn a_webhook_that_hangs_does_not_delay_other_users() {
    let server = start(LOCAL);
    let (ann, bob) = (server.user("ann", &[]), server.user("bob", &[]));
    let (hangs, _held) = listener(&[0]);
    let (url, hooks) = listener(&[200]);
    set_notify(&server, &ann, json!({"webhook": hangs, "on": ["failed"]}));
    set_notify(&server, &bob, json!({"webhook": url, "on": ["failed"]}));
    let started_at = Instant::now();
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
    assert!(
        started_at.elapsed() < Duration::from_secs(15),
        "{:?}",
        started_at.elapsed()
    );
    let metrics = server.raw("GET", "/metrics", &[], b"").text;
    let dropped = metrics
        .lines()
        .find_map(|l| l.strip_prefix("dovetail_notifications_total{result=\"dropped\"} "));
    assert!(
        dropped.unwrap().parse::<f64>().unwrap() >= 300.0,
        "notifications beyond the limit are dropped: {metrics}"
    );
}

#[test]
fn webhooks_to_this_machine_are_refused_unless_enabled() {
    let server = start("public_url: https://d.example.org\n");
    let ann = server.user("ann", &[]);
    fill(&server);
    let (url, hooks) = listener(&[200]);
    set_notify(&server, &ann, json!({"webhook": url, "on": ["failed"]}));
    let test = server.call(&ann, "POST", "/me/notify/test", &json!({})).json();
    assert_eq!(test["webhook"]["ok"], false, "{test}");
    assert!(
        test["webhook"]["detail"]
            .as_str()
            .unwrap()
            .contains("not allowed"),
        "{test}"
    );
    let job = server.submit(&ann, json!({"gpus": 8}));
    server.call(&server.admin, "POST", &format!("/jobs/{job}/stop"), &Value::Null);
    assert!(hooks.recv_timeout(Duration::from_secs(1)).is_err());
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    set_notify(&server, &ann, json!({"webhook": "http://127.0.0.1:1/", "on": []}));
    let test = server.call(&ann, "POST", "/me/notify/test", &json!({})).json();
    assert_eq!(
        test["webhook"]["detail"], "unreachable",
        "no details about the network"
    );
}

#[test]
fn notifications_close_together_are_one_mail() {
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
    for wrong in ["ann@example.org\r\nBcc: eve@example.org", "a@b, c@d", "nowhere"] {
        let answer = server.call(&server.admin, "PATCH", "/users/ann", &json!({"email": wrong}));
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (422, "invalid"),
            "{answer:?}"
        );
    }
    set_notify(&server, &ann, json!({"email": true, "on": ["failed"]}));
    let test = server.call(&ann, "POST", "/me/notify/test", &json!({})).json();
    assert_eq!(
        test,
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
    let (mut notified, mut count) = (0, 0);
    while notified < 5 {
        let mail = mails.recv_timeout(Duration::from_secs(10)).unwrap();
        let (head, body) = mail.split_once("\r\n\r\n").unwrap();
        assert!(!head.lines().any(|l| l.starts_with("Bcc")), "{head}");
        notified += body.matches("has ended without completing").count();
        count += 1;
    }
    assert!(count <= 3, "five notifications in {count} mails");
}

#[test]
fn secrets_are_shown_to_their_owner_only_and_tests_are_limited() {
    let server = start(LOCAL);
    let ann = server.user("ann", &[]);
    let (url, _hooks) = listener(&[200]);
    let set = set_notify(&server, &ann, json!({"webhook": url, "on": ["failed"]}));
    let kept = set_notify(&server, &ann, json!({"webhook": url, "on": []}));
    assert_eq!(kept["secret"], set["secret"], "the secret stays");
    assert_ne!(
        set_notify(&server, &ann, json!({"webhook": url, "secret": ""}))["secret"],
        set["secret"]
    );
    let read = server
        .call(&ann, "POST", "/me/tokens", &json!({"scope": "read"}))
        .json();
    let shown = server.get(read["token"].as_str().unwrap(), "/me/notify").json();
    assert!(shown["secret"].is_null(), "{shown}");
    let answer: Vec<u16> = (0..8)
        .map(|_| server.call(&ann, "POST", "/me/notify/test", &json!({})).status)
        .collect();
    assert!(answer[..5] == [200; 5] && answer.contains(&429), "{answer:?}");
    assert!(
        !server
            .get(&server.admin, "/users")
            .text
            .contains(set["secret"].as_str().unwrap())
    );
}
