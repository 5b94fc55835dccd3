//! Pages, filters, job files, idempotency keys and invalid requests.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::server::Server;

#[test]
fn the_list_of_jobs_is_filtered_sorted_and_paged() {
    let server = Server::start(1);
    let ann = server.user("ann", &[]);
    for i in 0..7 {
        let job =
            json!({"name": format!("job-{}", i % 3), "gpus": 1 + i % 4, "labels": {"i": i.to_string()}});
        server.submit(if i % 2 == 0 { &ann } else { &server.admin }, job);
    }
    let ids = |path: &str| {
        let mut all = Vec::new();
        let (mut next, mut pages) = (String::new(), 0);
        loop {
            let page = server.get(&server.admin, &format!("{path}{next}")).json();
            all.extend(
                page["jobs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|j| j["id"].as_u64().unwrap()),
            );
            pages += 1;
            match page["next"].as_str() {
                Some(cursor) => next = format!("&cursor={cursor}"),
                None => return (all, pages, page["total"].as_u64().unwrap()),
            }
        }
    };
    assert_eq!(ids("/jobs?limit=3"), (vec![7, 6, 5, 4, 3, 2, 1], 3, 7));
    assert_eq!(
        ids("/jobs?limit=2&sort=submitted"),
        (vec![1, 2, 3, 4, 5, 6, 7], 4, 7)
    );
    assert_eq!(ids("/jobs?limit=2&sort=-gpus"), (vec![4, 7, 3, 6, 2, 5, 1], 4, 7));
    assert_eq!(ids("/jobs?limit=2&sort=name"), (vec![1, 4, 7, 2, 5, 3, 6], 4, 7));
    assert_eq!(ids("/jobs?user=ann&sort=submitted").0, [1, 3, 5, 7]);
    assert_eq!(ids("/jobs?user=@me&sort=submitted").0, [2, 4, 6]);
    assert_eq!(ids("/jobs?gpus_min=3&sort=submitted").0, [3, 4, 7]);
    assert_eq!(ids("/jobs?label=i=2").0, [3]);
    assert_eq!(ids("/jobs?q=job-1&sort=submitted").0, [2, 5]);
    assert_eq!(ids("/jobs?q=6").0, [6]);
    assert_eq!(ids("/jobs?state=finished").0, [0u64; 0]);
    assert_eq!(ids("/jobs?to=0").2, 0);
    for wrong in [
        "/jobs?sort=colour",
        "/jobs?cursor=x",
        "/jobs?colour=red",
        "/jobs?gpus_min=many",
    ] {
        assert_eq!(server.get(&server.admin, wrong).status, 422, "{wrong}");
    }
}

#[test]
fn a_repeated_request_with_the_same_key_creates_one_job() {
    let server = Server::start(1);
    let send = |key: &str, gpus: u32, array: Value| {
        let head = [
            format!("Authorization: Bearer {}", server.admin),
            "Content-Type: application/json".to_owned(),
            format!("Idempotency-Key: {key}"),
        ];
        let body = json!({"job": {"command": ["true"], "gpus": gpus}, "array": array}).to_string();
        server.raw("POST", "/api/v1/jobs", &head, body.as_bytes())
    };
    assert_eq!(send("k1", 1, Value::Null).json()["id"], 1);
    assert_eq!(send("k1", 1, Value::Null).json()["id"], 1);
    assert_eq!(send("k1", 2, Value::Null).status, 409);
    assert_eq!(send("k2", 1, Value::Null).json()["id"], 2);
    let array = json!({"indices": [5, 6, 7]});
    let twice = [send("k3", 1, array.clone()).json(), send("k3", 1, array).json()];
    assert_eq!(twice[0], twice[1]);
    assert_eq!((&twice[0]["id"], &twice[0]["last"]), (&json!(3), &json!(5)));
    assert_eq!(send("", 1, Value::Null).status, 422);
}

#[test]
fn job_files_are_accepted() {
    let server = Server::start(1);
    let send = |path: &str, kind: &str, text: &str| {
        let head = [
            format!("Authorization: Bearer {}", server.admin),
            format!("Content-Type: {kind}"),
        ];
        server.raw("POST", &format!("/api/v1{path}"), &head, text.as_bytes())
    };
    let file = "name: x\ncommand: python3 train.py\ngpus: 2\ntime_limit: 2h\n";
    let dry = send("/jobs?dry_run=true", "application/yaml", file);
    assert_eq!(
        (dry.status, &dry.json()["preview"]["starts_now"]),
        (200, &json!(true)),
        "{dry:?}"
    );
    let sent = send("/jobs", "text/yaml; charset=utf-8", file);
    assert_eq!(sent.status, 201, "{sent:?}");
    assert_eq!(
        server.get(&server.admin, "/jobs/1").json()["request"]["time_limit_s"],
        7200.0
    );
    let wrong = send("/jobs", "application/yaml", "command: x\ngpuz: 2\n");
    assert_eq!(wrong.status, 422, "{wrong:?}");
    let detail = wrong.json()["detail"].to_string();
    assert!(
        detail.contains("unknown key \\\"gpuz\\\" (did you mean \\\"gpus\\\"?)"),
        "{detail}"
    );
    assert_eq!(send("/jobs", "image/png", file).status, 415);
    let checked = send("/jobs/check", "text/yaml", file).json();
    assert_eq!(
        (&checked["job"]["gpus"], &checked["errors"]),
        (&json!(2), &json!([]))
    );
    let checked = send("/jobs/check", "text/yaml", "gpus: 2").json();
    assert!(
        checked["errors"][0]
            .as_str()
            .unwrap()
            .contains("command: missing"),
        "{checked}"
    );
}

#[test]
fn jobs_are_reprioritized_and_stopped_in_bulk() {
    let server = Server::start(1);
    let jobs: Vec<u64> = (0..4)
        .map(|_| server.submit(&server.admin, json!({"gpus": 4})))
        .collect();
    let queue = || {
        let queue = server.get(&server.admin, "/queue").json();
        queue
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["id"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(queue(), jobs[1..]);
    let raised = server.call(
        &server.admin,
        "POST",
        &format!("/jobs/{}/priority", jobs[3]),
        &json!({"priority": 5}),
    );
    assert_eq!(raised.status, 200, "{raised:?}");
    assert_eq!(queue(), [jobs[3], jobs[1], jobs[2]]);
    let running = server.call(
        &server.admin,
        "POST",
        &format!("/jobs/{}/priority", jobs[0]),
        &json!({"priority": 5}),
    );
    assert_eq!(running.status, 409);
    let stop = json!({"action": "stop", "ids": [jobs[1], jobs[2], 99]});
    let done = server.call(&server.admin, "POST", "/jobs/actions", &stop).json();
    let oks: Vec<bool> = done
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["ok"].as_bool().unwrap())
        .collect();
    assert_eq!(oks, [true, true, false]);
    assert_eq!(queue(), [jobs[3]]);
    assert_eq!(
        server
            .call(
                &server.admin,
                "POST",
                "/jobs/actions",
                &json!({"action": "fly", "ids": []})
            )
            .status,
        422
    );
}

#[test]
fn invalid_requests_are_refused() {
    let server = Server::start(1);
    let head = [
        format!("Authorization: Bearer {}", server.admin),
        "Content-Type: application/json".to_owned(),
    ];
    let large = vec![b' '; 3 << 20];
    assert_eq!(server.raw("POST", "/api/v1/jobs", &head, &large).status, 413);
    for body in [
        &b"{"[..],
        b"[]",
        b"\xff\xfe",
        b"{\"job\": {\"command\": [\"a\\u0000b\"]}}",
        b"{\"job\": {}, \"x\": 1}",
    ] {
        let answer = server.raw("POST", "/api/v1/jobs", &head, body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (422, "invalid"),
            "{answer:?}"
        );
    }
    for path in [
        "/jobs/x",
        "/jobs/99999999999999999999",
        "/jobs/-1",
        "/nowhere",
        "/jobs/1/../../x",
    ] {
        let answer = server.get(&server.admin, path);
        assert!([400, 404].contains(&answer.status), "{path}: {answer:?}");
        assert!(
            answer.head.contains("application/problem+json"),
            "{path}: {answer:?}"
        );
    }
    // A slow client does not block other clients.
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.write_all(b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Le")
        .unwrap();
    assert_eq!(server.get(&server.admin, "/jobs").status, 200);
    slow.set_read_timeout(Some(std::time::Duration::from_secs(30)))
        .unwrap();
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"), "{rest:?}");
}

#[test]
fn metrics_are_exported() {
    let server = Server::start(2);
    server.submit(&server.admin, json!({"gpus": 3}));
    server.submit(&server.admin, json!({"gpus": 8}));
    let text = server.raw("GET", "/metrics", &[], b"").text;
    for line in [
        "dovetail_gpus 8",
        "dovetail_jobs{state=\"queued\"} 1",
        "dovetail_vc_gpus{vc=\"default\"} 3",
        "dovetail_jobs_total 2",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}:\n{text}");
    }
    assert_eq!(server.raw("GET", "/readyz", &[], b"").text, "ok\n");
}
