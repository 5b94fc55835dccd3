//! A client of OpenPAI over a real socket: it signs in, submits a job file, reads the job, and stops it.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::Cluster;

const BASE: &str = "/rest-server/api/v2";

/// An HTTP client with a token.
struct Client {
    port: u16,
    authorization: String,
}

/// Status and body of a response.
#[derive(Debug)]
struct Response {
    status: u16,
    text: String,
}

impl Response {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    fn is(&self, status: u16, code: &str) {
        assert_eq!(
            (self.status, self.json()["code"].as_str()),
            (status, Some(code)),
            "{self:?}"
        );
        assert!(!self.json()["message"].as_str().unwrap().is_empty());
    }
}

impl Client {
    fn of(cluster: &Cluster, token: &str) -> Self {
        Self {
            port: cluster.http_port(),
            authorization: format!("Bearer {token}"),
        }
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> Response {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let authorization = match self.authorization.as_str() {
            "Bearer " => String::new(),
            value => format!("Authorization: {value}\r\n"),
        };
        write!(
            socket,
            "{method} {BASE}{path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{authorization}Content-Type: {kind}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no response: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            true => unchunked(body),
            false => body.to_owned(),
        };
        Response { status, text: body }
    }

    fn get(&self, path: &str) -> Response {
        self.send("GET", path, "text/plain", "")
    }

    fn put(&self, path: &str, body: &Value) -> Response {
        self.send("PUT", path, "application/json", &body.to_string())
    }

    fn submit(&self, text: &str) -> Response {
        self.send("POST", "/jobs", "text/yaml", text)
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        whole.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    whole
}

fn file(name: &str, command: &str, extras: &str) -> String {
    format!(
        "protocolVersion: 2\nname: {name}\ntype: job\nsecrets: {{key: hunter2}}\n\
         prerequisites: [{{type: dockerimage, name: image, uri: some/image}}]\n\
         taskRoles:\n  worker:\n    instances: 2\n    dockerImage: image\n\
         \x20   resourcePerInstance: {{gpu: 1, cpu: 1, memoryMB: 64}}\n    commands: [{command:?}]\n{extras}"
    )
}

fn cluster() -> (Cluster, Client) {
    let mut cluster = Cluster::server_only(2, "tls: false\n");
    cluster.agent_args = ["--images", "ignore", "--container-runtime", "none"]
        .map(str::to_owned)
        .to_vec();
    cluster.start_agent(0);
    cluster.until("the node has joined", |c| c.nodes().len() == 1);
    let admin = Client::of(&cluster, &cluster.token());
    (cluster, admin)
}

/// Adds a user and signs in.
fn add_user(cluster: &Cluster, admin: &Client, name: &str) -> Client {
    let body = json!({"username": name, "password": "correct horse", "email": "a@b.c", "virtualCluster": ["default"]});
    let added = admin.send("POST", "/users", "application/json", &body.to_string());
    assert_eq!(added.status, 201, "{added:?}");
    let anonymous = Client::of(cluster, "");
    let form = format!("username={name}&password=correct+horse&expiration=3600");
    let signed = anonymous.send(
        "POST",
        "/authn/basic/login",
        "application/x-www-form-urlencoded",
        &form,
    );
    assert_eq!(signed.status, 200, "{signed:?}");
    assert_eq!(
        (&signed.json()["user"], &signed.json()["admin"]),
        (&json!(name), &json!(false))
    );
    Client::of(cluster, signed.json()["token"].as_str().unwrap())
}

#[test]
fn a_client_of_openpai_submits_reads_and_stops_jobs() {
    let (cluster, admin) = cluster();
    assert_eq!(
        Client::of(&cluster, "").get("/info").json()["authnMethod"],
        "basic"
    );
    Client::of(&cluster, "")
        .get("/jobs")
        .is(401, "UnauthorizedUserError");
    let ann = add_user(&cluster, &admin, "ann");
    let submitted = ann.submit(&file("first", "test -n '<% $secrets.key %>'", ""));
    assert_eq!(submitted.status, 202, "{submitted:?}");
    assert!(
        submitted.json()["ignored"]
            .to_string()
            .contains("taskRoles.worker.dockerImage"),
        "{submitted:?}"
    );
    ann.submit(&file("first", "true", "")).is(409, "ConflictJobError");
    ann.submit("protocolVersion: 2\nname: x\n")
        .is(400, "InvalidProtocolError");
    ann.submit(&file("second", "<% $parameters.x %>", ""))
        .is(400, "InvalidProtocolError");
    ann.get("/jobs/ann~nothing").is(404, "NoJobError");
    ann.get("/nothing").is(404, "NoApiError");

    let state = |c: &Client, name: &str| c.get(&format!("/jobs/{name}")).json()["jobStatus"]["state"].clone();
    cluster.until("the first job succeeds", |_| {
        state(&ann, "ann~first") == "SUCCEEDED"
    });
    let shown = ann.get("/jobs/ann~first").json();
    assert_eq!(
        (&shown["name"], &shown["jobStatus"]["appExitCode"]),
        (&json!("first"), &json!(0)),
        "{shown}"
    );
    assert_eq!(shown["jobStatus"]["appExitSpec"]["type"], "USER_SUCCESS");
    let tasks = shown["taskRoles"]["worker"]["taskStatuses"].as_array().unwrap();
    assert_eq!(
        (tasks.len(), &tasks[1]["taskState"], &tasks[1]["containerGpus"]),
        (2, &json!("SUCCEEDED"), &json!([1])),
        "{shown}"
    );
    assert_eq!(
        ann.get("/jobs/ann~first/attempts/0").json()["jobStatus"]["attemptState"],
        "SUCCEEDED"
    );
    ann.get("/jobs/ann~first/attempts/1").is(404, "NoJobError");
    let config = ann.get("/jobs/ann~first/config");
    assert!(
        config.status == 200 && config.text.contains("******") && !config.text.contains("hunter2"),
        "{config:?}"
    );
    let events = ann.get("/jobs/ann~first/events").json();
    assert!(events["totalCount"].as_u64().unwrap() >= 3, "{events}");

    let submitted = ann.submit(&file(
        "long",
        "sleep 600",
        "extras: {hivedScheduler: {jobPriorityClass: prod}}\n",
    ));
    assert_eq!(submitted.status, 202, "{submitted:?}");
    cluster.until("the second job runs", |_| state(&ann, "ann~long") == "RUNNING");
    let bob = add_user(&cluster, &admin, "bob");
    bob.put("/jobs/ann~long/executionType", &json!({"value": "STOP"}))
        .is(403, "ForbiddenUserError");
    bob.put("/jobs/ann~long/tag", &json!({"value": "mine"}))
        .is(403, "ForbiddenUserError");
    bob.get("/jobs/ann~long/config").is(403, "ForbiddenUserError");
    assert_eq!(
        ann.put("/jobs/ann~long/tag", &json!({"value": "keep"})).status,
        200
    );
    let tagged = ann.get("/jobs?tagsContain=keep&withTotalCount=true").json();
    assert_eq!(
        (&tagged["totalCount"], &tagged["data"][0]["name"]),
        (&json!(1), &json!("long")),
        "{tagged}"
    );
    let body = json!({"value": "keep"}).to_string();
    assert_eq!(
        ann.send("DELETE", "/jobs/ann~long/tag", "application/json", &body)
            .status,
        200
    );
    let stopped = ann.put("/jobs/ann~long/executionType", &json!({"value": "STOP"}));
    assert_eq!(stopped.status, 202, "{stopped:?}");
    cluster.until("the second job is stopped", |_| {
        state(&ann, "ann~long") == "STOPPED"
    });
    let listed = |query: &str| -> Vec<String> {
        let all = ann.get(&format!("/jobs?{query}")).json();
        all.as_array()
            .unwrap()
            .iter()
            .map(|j| j["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(listed("order=jobName,ASC"), ["first", "long"]);
    assert_eq!(listed("state=STOPPED"), ["long"]);
    assert_eq!(listed("jobPriority=test"), ["first"]);
    assert_eq!(listed("keyword=fir"), ["first"]);
    assert_eq!(listed("offset=1&limit=1&order=submissionTime,ASC"), ["long"]);
    assert!(listed("username=bob").is_empty() && listed("tagsContain=keep").is_empty());
    ann.get("/jobs?order=size,ASC").is(400, "InvalidParametersError");
}

#[test]
fn instances_without_a_gang_are_one_job_in_the_facade() {
    let (cluster, admin) = cluster();
    let submitted = admin.submit(&file(
        "alone",
        "exit $PAI_TASK_INDEX",
        "extras: {gangAllocation: false}\n",
    ));
    assert_eq!(submitted.status, 202, "{submitted:?}");
    let user = admin.get("/jobs").json()[0]["username"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/jobs/{user}~alone");
    cluster.until("the job fails", |_| {
        admin.get(&path).json()["jobStatus"]["state"] == "FAILED"
    });
    let shown = admin.get(&path).json();
    let tasks = shown["taskRoles"]["worker"]["taskStatuses"].as_array().unwrap();
    let states: Vec<&str> = tasks.iter().map(|t| t["taskState"].as_str().unwrap()).collect();
    // The first may have succeeded before the second fails, or is stopped by that.
    assert!(
        ["SUCCEEDED", "STOPPED"].contains(&states[0]) && states[1] == "FAILED",
        "{shown}"
    );
    assert_eq!(shown["jobStatus"]["appExitCode"], 1, "{shown}");
    assert_eq!(admin.get("/jobs").json().as_array().unwrap().len(), 1);
}

#[test]
fn users_tokens_and_virtual_clusters_are_served() {
    let (cluster, admin) = cluster();
    let ann = add_user(&cluster, &admin, "ann");
    let me = ann.get("/users/ann").json();
    assert_eq!(
        (&me["username"], &me["virtualCluster"]),
        (&json!("ann"), &json!(["default"])),
        "{me}"
    );
    let known = |c: &Client| c.get("/users").json().as_array().unwrap().len();
    assert!(
        known(&admin) == 2 && known(&ann) == 1,
        "only administrators see other users"
    );
    let body = json!({"username": "eve", "password": "correct horse"}).to_string();
    ann.send("POST", "/users", "application/json", &body)
        .is(403, "ForbiddenUserError");
    let taken = json!({"username": "ann", "password": "correct horse"}).to_string();
    admin
        .send("POST", "/users", "application/json", &taken)
        .is(409, "ConflictUserError");
    let changed = admin.put(
        "/users",
        &json!({"data": {"username": "ann", "email": "new@b.c"}, "patch": true}),
    );
    assert_eq!(changed.status, 201, "{changed:?}");
    assert_eq!(ann.get("/users/ann").json()["email"], "new@b.c");
    let wrong = json!({"data": {"oldPassword": "no", "newPassword": "another horse"}, "patch": true});
    ann.put("/users/me", &wrong).is(400, "IncorrectPasswordError");

    let made = ann
        .send("POST", "/tokens/application", "application/json", "")
        .json();
    assert_eq!(made["application"], true);
    let token = made["token"].as_str().unwrap();
    let program = Client::of(&cluster, token);
    assert_eq!(program.get("/jobs").status, 200);
    program
        .send("POST", "/tokens/application", "application/json", "")
        .is(403, "ForbiddenUserError");
    let basic = Client {
        authorization: format!("Basic {}", base64(&format!("ann:{token}"))),
        port: program.port,
    };
    assert_eq!(basic.get("/tokens/check").status, 200);
    assert!(ann.get("/tokens").json()["tokens"].as_array().unwrap().len() >= 2);
    assert_eq!(
        ann.send("DELETE", &format!("/tokens/{token}"), "text/plain", "")
            .status,
        200
    );
    program.get("/jobs").is(401, "UnauthorizedUserError");

    let clusters = ann.get("/virtual-clusters").json();
    assert_eq!(clusters["default"]["resourcesTotal"]["gpu"], 2.0, "{clusters}");
    ann.get("/virtual-clusters/nowhere")
        .is(404, "NoVirtualClusterError");
    let skus = ann.get("/cluster/sku-types?vc=default").json();
    assert_eq!(
        skus.as_object().unwrap().values().next().unwrap()["gpu"],
        1,
        "{skus}"
    );
    assert_eq!(
        ann.send("DELETE", "/authn/basic/logout", "text/plain", "").status,
        200
    );
    ann.get("/jobs").is(401, "UnauthorizedUserError");
    assert_eq!(admin.send("DELETE", "/users/ann", "text/plain", "").status, 200);
    admin.get("/users/ann").is(404, "NoUserError");
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = three.iter().fold(0_u32, |b, x| (b << 8) | u32::from(*x)) << (8 * (3 - three.len()));
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i)) as usize & 63] as char;
            out.push(if i <= three.len() { letter } else { '=' });
        }
    }
    out
}
