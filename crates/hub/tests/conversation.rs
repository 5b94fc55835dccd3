//! A server with a real socket, TLS and journal, and agents that only exchange messages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use dovetail_cluster::state::{End, JobState, NodeState};
use dovetail_cluster::{
    Actor, Driver, DriverConfig, Handle, JobRequest, LiveRuntime as _, LogPiece, LogRequest, PolicyText,
};
use dovetail_engine::Clock;
use dovetail_hub::{Authority, Hub, HubConfig, serve};
use dovetail_proto::v1::scheduler_client::SchedulerClient;
use dovetail_proto::v1::{self, agent_message, server_message::Body};
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedSender;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Streaming};

struct Server {
    dir: TempDir,
    authority: Arc<Authority>,
    hub: Hub,
    handle: Handle,
    port: u16,
}

async fn server(config: HubConfig) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let authority = Arc::new(Authority::open(&dir.path().join("pki")).unwrap());
    let (driver, handle, _) = Driver::open(&DriverConfig {
        dir: dir.path().join("journal"),
        policy: PolicyText::default(),
        clock: Clock::Events,
        snapshot_every: 1000,
        runtime: dovetail_cluster::Capabilities::ALL,
    })
    .unwrap();
    let hub = Hub::new(config);
    driver.spawn(hub.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let names = vec!["localhost".to_owned()];
    let (a, h, l) = (Arc::clone(&authority), hub.clone(), handle.clone());
    tokio::spawn(async move {
        serve(listener, &names, a, h, l, std::future::pending())
            .await
            .unwrap()
    });
    Server {
        dir,
        authority,
        hub,
        handle,
        port,
    }
}

/// The agent's end of a connection.
struct Agent {
    out: UnboundedSender<v1::AgentMessage>,
    messages: Streaming<v1::ServerMessage>,
}

impl Server {
    fn tls(&self) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(self.authority.certificate()))
            .domain_name("localhost")
    }

    async fn channel(&self, tls: ClientTlsConfig) -> Channel {
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", self.port)).unwrap();
        endpoint.tls_config(tls).unwrap().connect().await.unwrap()
    }

    async fn join(&self, node: &str, token: &str) -> Result<(String, KeyPair), tonic::Status> {
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap();
        let mut client = SchedulerClient::new(self.channel(self.tls()).await);
        let reply = client
            .join(v1::JoinRequest {
                node: node.to_owned(),
                token: token.to_owned(),
                signing_request: request.pem().unwrap(),
            })
            .await?;
        Ok((reply.into_inner().certificate, key))
    }

    /// Connects an agent that has joined as `node` and reports the name `reported`.
    async fn attach(&self, node: &str, reported: &str, identity: u64, running: &[(u64, u64)]) -> Agent {
        let (certificate, key) = self
            .join(node, &self.authority.join_token().secret)
            .await
            .unwrap();
        let tls = self
            .tls()
            .identity(Identity::from_pem(certificate, key.serialize_pem()));
        let mut client = SchedulerClient::new(self.channel(tls).await);
        let (out, messages) = tokio::sync::mpsc::unbounded_channel();
        let gpu = |slot: u32| v1::Gpu {
            uuid: format!("GPU-{slot}"),
            r#type: "virtual".to_owned(),
            ..Default::default()
        };
        let hello = v1::Hello {
            node: reported.to_owned(),
            version: "test".to_owned(),
            address: "127.0.0.1".to_owned(),
            hardware: Some(v1::Hardware {
                gpus: (0..4).map(gpu).collect(),
                cpu_milli: 8000,
                memory_mib: 16_000,
                ..Default::default()
            }),
            running: running
                .iter()
                .map(|(job, attempt_id)| key_of(*job, *attempt_id))
                .collect(),
            identity,
        };
        let agent_out = out.clone();
        send(&agent_out, 0, agent_message::Body::Hello(hello));
        let stream = client
            .attach(UnboundedReceiverStream::new(messages))
            .await
            .unwrap();
        Agent {
            out,
            messages: stream.into_inner(),
        }
    }

    async fn until(&self, what: &str, done: impl Fn(&dovetail_cluster::ClusterState) -> bool) {
        for _ in 0..3000 {
            if self.handle.read(|state| done(state)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("timed out waiting for {what}");
    }
}

fn key_of(job: u64, attempt: u64) -> v1::TaskKey {
    v1::TaskKey { job, attempt }
}

fn send(out: &UnboundedSender<v1::AgentMessage>, sequence: u64, body: agent_message::Body) {
    let body = Some(body);
    out.send(v1::AgentMessage { sequence, body }).unwrap();
}

impl Agent {
    fn send(&self, sequence: u64, body: agent_message::Body) {
        send(&self.out, sequence, body);
    }

    /// Receives the next message that is not an acknowledgement.
    async fn receive(&mut self) -> Body {
        loop {
            match self.messages.message().await.unwrap().unwrap().body.unwrap() {
                Body::Ack(_) => {}
                message => return message,
            }
        }
    }

    async fn receive_ack(&mut self) -> u64 {
        loop {
            if let Some(Body::Ack(ack)) = self.messages.message().await.unwrap().unwrap().body {
                return ack.sequence;
            }
        }
    }

    fn send_heartbeat(&self, sequence: u64) {
        self.send(sequence, agent_message::Body::Heartbeat(v1::Heartbeat::default()));
    }

    fn send_started(&self, sequence: u64, task: v1::TaskKey) {
        let started = v1::TaskStarted {
            task: Some(task),
            ..Default::default()
        };
        self.send(sequence, agent_message::Body::TaskStarted(started));
    }
}

fn job(gpus: u32) -> JobRequest {
    JobRequest {
        command: vec!["true".to_owned()],
        gpus,
        ..JobRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_on_an_agent_and_its_end_is_recorded() {
    let server = server(HubConfig::default()).await;
    let mut agent = server.attach("a", "a", 1, &[]).await;
    let Body::Welcome(welcome) = agent.receive().await else {
        panic!("expected Welcome")
    };
    assert_eq!((welcome.node, welcome.keep.len()), (0, 0));
    agent.send_heartbeat(1);
    assert_eq!(agent.receive_ack().await, 1);
    let id = server.handle.submit("ann", job(2)).wait().unwrap();
    let Body::StartTask(start) = agent.receive().await else {
        panic!("expected StartTask")
    };
    assert_eq!((start.task, start.gpus.len()), (Some(key_of(id, 1)), 2));
    agent.send_started(2, key_of(id, 1));
    assert_eq!(agent.receive_ack().await, 2);
    server
        .handle
        .read(|state| assert_eq!(state.job(id).unwrap().state, JobState::Running));
    // The job is cancelled: all ranks report their step, and get the step to stop after.
    server.handle.cancel(id, Actor::user("ann")).wait().unwrap();
    let Body::StopTask(stop) = agent.receive().await else {
        panic!("expected StopTask")
    };
    assert_eq!(
        (stop.task, stop.reason.as_str()),
        (Some(key_of(id, 1)), "cancelled")
    );
    for (rank, step) in [(0, 41), (1, 42)] {
        let report = v1::StepReached {
            task: Some(key_of(id, 1)),
            rank,
            step,
            world_size: 2,
        };
        agent.send(0, agent_message::Body::StepReached(report));
    }
    let Body::StopAfterStep(stop_at) = agent.receive().await else {
        panic!("expected StopAfterStep")
    };
    assert_eq!(stop_at.step, 42);
    // The log is read from the node.
    let request = LogRequest {
        job: id,
        attempt: 1,
        node: dovetail_model::NodeId(0),
        offset: -100,
        most_bytes: 0,
        follow: true,
        find: String::new(),
        most_found: 0,
    };
    let mut log = server.hub.read_log(&request).unwrap();
    let Body::ReadLog(read) = agent.receive().await else {
        panic!("expected ReadLog")
    };
    let chunk = |data: &[u8], end| v1::LogChunk {
        request: read.request,
        data: data.to_vec(),
        offset: 5,
        end,
        error: String::new(),
        is_match: false,
    };
    agent.send(0, agent_message::Body::LogChunk(chunk(b"hello", true)));
    let expected = LogPiece::Data {
        data: b"hello".to_vec(),
        offset: 5,
    };
    assert_eq!(
        (log.recv().await, log.recv().await),
        (Some(expected), Some(LogPiece::End))
    );
    let ended = v1::TaskEnded {
        task: Some(key_of(id, 1)),
        was_stopped: true,
        checkpoint_step: 42,
        ..Default::default()
    };
    agent.send(3, agent_message::Body::TaskEnded(ended));
    assert_eq!(agent.receive_ack().await, 3);
    server.handle.read(|state| {
        let job = state.job(id).unwrap();
        assert_eq!(job.state, JobState::Ended(End::Cancelled(Actor::user("ann"))));
        assert_eq!(job.progress.checkpoint, 42);
    });
    drop(server.dir);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_without_the_right_token_certificate_or_name_are_refused() {
    let server = server(HubConfig::default()).await;
    let wrong = server.join("a", &"0".repeat(32)).await.unwrap_err();
    assert_eq!(wrong.code(), Code::PermissionDenied);
    // A client without a certificate.
    let mut client = SchedulerClient::new(server.channel(server.tls()).await);
    let refused = client.attach(tokio_stream::empty()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    // An agent with the certificate of another node.
    let mut agent = server.attach("a", "b", 1, &[]).await;
    let Body::Rejection(refused) = agent.receive().await else {
        panic!("expected Rejection")
    };
    assert!(
        refused.permanent && refused.reason.contains("certificate is for node \"a\""),
        "{refused:?}"
    );
    // A second agent with the name of a connected one.
    let mut first = server.attach("a", "a", 1, &[]).await;
    assert!(matches!(first.receive().await, Body::Welcome(_)));
    let mut second = server.attach("a", "a", 2, &[]).await;
    let Body::Rejection(refused) = second.receive().await else {
        panic!("expected Rejection")
    };
    assert!(
        refused.permanent && refused.reason.contains("same name"),
        "{refused:?}"
    );
    first.send_heartbeat(1);
    assert_eq!(first.receive_ack().await, 1, "the first one is still connected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_reconnects_keeps_its_tasks_and_one_that_does_not_is_lost() {
    let server = server(HubConfig {
        heartbeat: Duration::from_millis(50),
        lease: Duration::from_millis(1500),
        margin: Duration::from_millis(500),
        ..HubConfig::default()
    })
    .await;
    let mut a = server.attach("a", "a", 1, &[]).await;
    a.receive().await;
    a.send_heartbeat(1);
    a.receive_ack().await;
    let id = server.handle.submit("ann", job(4)).wait().unwrap();
    a.receive().await;
    a.send_started(2, key_of(id, 1));
    a.receive_ack().await;
    drop(a);
    // It reconnects within its lease and still runs the job.
    let mut a = server.attach("a", "a", 1, &[(id, 1)]).await;
    let Body::Welcome(welcome) = a.receive().await else {
        panic!("expected Welcome")
    };
    assert_eq!(welcome.keep, [key_of(id, 1)]);
    a.send_heartbeat(3);
    a.receive_ack().await;
    server
        .handle
        .read(|state| assert_eq!(state.job(id).unwrap().state, JobState::Running));
    // It does not reconnect: the node is lost, and the job is queued again.
    drop(a);
    server
        .until("the node to be lost", |state| {
            state.node(dovetail_model::NodeId(0)).unwrap().state == NodeState::Lost
        })
        .await;
    server
        .handle
        .read(|state| assert_eq!(state.job(id).unwrap().state, JobState::Queued));
    let mut b = server.attach("b", "b", 2, &[]).await;
    b.receive().await;
    b.send_heartbeat(1);
    let Body::StartTask(start) = b.receive().await else {
        panic!("expected StartTask")
    };
    assert_eq!(start.task, Some(key_of(id, 2)), "a new attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_node_was_declared_lost_is_disconnected_and_registers_again() {
    let server = server(HubConfig {
        heartbeat: Duration::from_millis(50),
        lease: Duration::from_millis(300),
        margin: Duration::from_millis(100),
        ..HubConfig::default()
    })
    .await;
    let state_is = |expected: NodeState| {
        move |state: &dovetail_cluster::ClusterState| {
            state.node(dovetail_model::NodeId(0)).unwrap().state == expected
        }
    };
    let mut a = server.attach("a", "a", 1, &[]).await;
    a.receive().await;
    // The agent is silent for longer than its lease, but its connection stays open.
    server
        .until("the node to be lost", state_is(NodeState::Lost))
        .await;
    let end = tokio::time::timeout(Duration::from_secs(10), a.messages.message()).await;
    assert!(matches!(end, Ok(Ok(None))), "the stream must end: {end:?}");
    // It reconnects, and its node is used again.
    let mut a = server.attach("a", "a", 1, &[]).await;
    a.receive().await;
    server.until("the node to be up", state_is(NodeState::Up)).await;
}
