//! A thousand agents that start nothing and say they have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use dovetail_agents::Authority;
use dovetail_proto::v1::scheduler_client::SchedulerClient;
use dovetail_proto::v1::{self, from_agent, to_agent::What};
use rcgen::{CertificateParams, KeyPair};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::failure::{Blame, Failure};

/// All of them.
pub(super) struct Crowd {
    started: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Crowd {
    /// So many agents, each with a certificate and a connection of its own.
    pub(super) async fn attach(
        authority: &Authority,
        port: u16,
        agents: usize,
        gpus: u32,
    ) -> Result<Self, Failure> {
        let started = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for i in 0..agents {
            let name = format!("node-{i}");
            let key = KeyPair::generate().or_work()?;
            let asked = CertificateParams::default().serialize_request(&key).or_work()?;
            let certificate = authority.sign_node(&name, &asked.pem().or_work()?).or_work()?;
            let tls = ClientTlsConfig::new()
                .ca_certificate(Certificate::from_pem(authority.certificate()))
                .domain_name("localhost")
                .identity(Identity::from_pem(certificate, key.serialize_pem()));
            let channel = Endpoint::from_shared(format!("https://127.0.0.1:{port}"))
                .and_then(|endpoint| endpoint.tls_config(tls))
                .or_work()?
                .connect()
                .await
                .or_work()?;
            let (out, messages) = unbounded_channel();
            let agent = Agent {
                out,
                number: 0,
                started: Arc::clone(&started),
            };
            agent.hello(&name, i as u64, gpus);
            let mut client = SchedulerClient::new(channel);
            let words = client
                .attach(UnboundedReceiverStream::new(messages))
                .await
                .map_err(|e| Failure::Work(anyhow!("{name}: {e}")))?;
            tasks.spawn(agent.live(words.into_inner()));
        }
        Ok(Self {
            started,
            _tasks: tasks,
        })
    }

    /// Tasks that were started so far.
    pub(super) fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }
}

struct Agent {
    out: UnboundedSender<v1::FromAgent>,
    number: u64,
    started: Arc<AtomicU64>,
}

impl Agent {
    fn hello(&self, node: &str, identity: u64, gpus: u32) {
        let gpu = |slot: u32| v1::Gpu {
            uuid: format!("GPU-{node}-{slot}"),
            r#type: "virtual".to_owned(),
            ..Default::default()
        };
        let hello = v1::Hello {
            node: node.to_owned(),
            version: "bench".to_owned(),
            address: "127.0.0.1".to_owned(),
            hardware: Some(v1::Hardware {
                gpus: (0..gpus).map(gpu).collect(),
                cpu_milli: 64_000,
                memory_mib: 512 << 10,
                ..Default::default()
            }),
            running: Vec::new(),
            identity,
        };
        let what = Some(from_agent::What::Hello(hello));
        let _ = self.out.send(v1::FromAgent { number: 0, what });
    }

    /// Says something that is to be acknowledged.
    fn say(&mut self, what: from_agent::What) {
        self.number += 1;
        let _ = self.out.send(v1::FromAgent {
            number: self.number,
            what: Some(what),
        });
    }

    async fn live(mut self, mut words: tonic::Streaming<v1::ToAgent>) {
        let mut beats = tokio::time::interval(Duration::from_secs(2));
        loop {
            tokio::select! {
                word = words.message() => match word {
                    Ok(Some(v1::ToAgent { what: Some(What::Start(order)) })) => self.start(&order),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return,
                },
                _ = beats.tick() => self.say(from_agent::What::Heartbeat(v1::Heartbeat::default())),
            }
        }
    }

    /// The task runs, and has ended well.
    fn start(&mut self, order: &v1::StartTask) {
        self.started.fetch_add(1, Ordering::Relaxed);
        let started = v1::TaskStarted {
            task: order.task,
            ..Default::default()
        };
        self.say(from_agent::What::Started(started));
        let ended = v1::TaskEnded {
            task: order.task,
            ..Default::default()
        };
        self.say(from_agent::What::Ended(ended));
    }
}
