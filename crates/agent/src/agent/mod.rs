//! The agent: one async task owns all state and handles one event at a time.

mod commands;
mod gates;
mod launch;
mod logs;
mod mps;
mod node;
pub(crate) mod progress;
mod server;
mod stop;
mod task;
mod tasks;

use std::fs::File;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use dovetail_proto::v1::Hello;
use dovetail_proto::v1::server_message::Body;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::agent::gates::NodeGates;
use crate::agent::logs::LogReaders;
use crate::agent::mps::MpsResult;
use crate::agent::node::NodeResources;
use crate::agent::server::ServerLink;
use crate::agent::task::TaskEvent;
use crate::agent::tasks::TaskTable;
use crate::config::AgentConfig;
use crate::error::{AgentError, IoResultExt};
use crate::gates::{GateCommand, GateTask};
use crate::link::{self, LinkEvent, MessageSender};
use crate::sdk;
use crate::store::{identity, lease};
use crate::task::record::TaskId;
use crate::trainer_socket::{self, TrainerCommand, TrainerEvent};

/// Runs an agent until `shutdown` completes. Its tasks keep running, and the next agent in the same folder adopts them.
///
/// # Errors
/// When a setting is invalid, the folder cannot be used, or the server rejects this node permanently. A server that cannot
/// be reached is not an error: the agent keeps trying.
pub async fn run(config: AgentConfig, shutdown: impl Future<Output = ()>) -> Result<(), AgentError> {
    config.check()?;
    let (task_sender, mut task_events) = unbounded_channel::<(TaskId, TaskEvent)>();
    let (trainer_sender, mut trainer_events) = unbounded_channel();
    let (link_sender, mut link_events) = unbounded_channel();
    let (mps_sender, mut mps_results) = unbounded_channel();
    let mut agent = Agent::new(config.clone(), task_sender)?;
    agent.mps = Some(mps_sender);
    trainer_socket::listen(&agent.socket, trainer_sender)?;
    agent.tasks.recover(&mut agent.node.cpus, &mut agent.server)?;
    let link = tokio::spawn(link::keep_connected(config, link_sender));
    let mut housekeeping = tokio::time::interval(Duration::from_secs(60));
    let mut shutdown = std::pin::pin!(shutdown);
    let result = loop {
        tokio::select! {
            () = &mut shutdown => break Ok(()),
            Some(event) = link_events.recv() => match event {
                LinkEvent::Connecting(sender) => agent.connecting(sender),
                LinkEvent::Received(message) => {
                    agent.received(message.body);
                    agent.update_gates();
                }
                LinkEvent::Disconnected(reason) => agent.disconnected(&reason),
                LinkEvent::Failed(error) => break Err(error),
            },
            Some((id, event)) = task_events.recv() => {
                agent.task_event(id, event);
                agent.update_gates();
            }
            Some(event) = trainer_events.recv() => agent.trainer_event(event),
            Some(result) = mps_results.recv() => mps::finish(&mut agent, result),
            () = tokio::time::sleep_until(agent.next_gate_deadline()) => agent.tick_gates(),
            () = tokio::time::sleep_until(agent.server.next_heartbeat()) => agent.heartbeat(),
            _ = housekeeping.tick() => agent.tasks.delete_old(&agent.config),
        }
    };
    link.abort();
    agent.log_readers.stop_all();
    result
}

/// State of the agent.
struct Agent {
    config: AgentConfig,
    identity: u64,
    /// Address at which other nodes reach this one.
    address: String,
    /// Socket that trainers connect to.
    socket: PathBuf,
    /// Folder of the Python package.
    sdk: PathBuf,
    lease_file: PathBuf,
    lease_until_ms: u64,
    node: NodeResources,
    tasks: TaskTable,
    server: ServerLink,
    log_readers: LogReaders,
    gates: NodeGates,
    /// Where the results of starting and stopping MPS go.
    mps: Option<UnboundedSender<MpsResult>>,
    /// Locks the folder while it is open.
    _lock: File,
}

impl Agent {
    fn new(config: AgentConfig, events: UnboundedSender<(TaskId, TaskEvent)>) -> Result<Self, AgentError> {
        let lock = identity::lock(&config.folder)?;
        let identity = identity::identity(&config.folder)?;
        let node = NodeResources::detect(&config, identity);
        tracing::info!(
            node = config.node,
            gpus = node.gpus.len(),
            cpus = node.all_cpus().len(),
            limits = node.limits(),
            "agent started"
        );
        let address = config.address.clone();
        Ok(Self {
            socket: trainer_socket::path(config.socket.as_deref(), &config.folder, identity),
            address: address.unwrap_or_else(|| address_towards(&config.server)),
            sdk: sdk::unpack(&config.folder).at(&config.folder.join("python"))?,
            lease_file: config.folder.join("lease"),
            // The stored lease may be from before a restart of the machine. The server grants a new one before it sends
            // the first command.
            lease_until_ms: 0,
            tasks: TaskTable::open(config.folder.clone(), events)?,
            server: ServerLink::default(),
            log_readers: LogReaders::default(),
            gates: NodeGates::default(),
            mps: None,
            identity,
            node,
            config,
            _lock: lock,
        })
    }

    /// Introduces this agent on a new connection.
    fn connecting(&mut self, sender: MessageSender) {
        let hello = Hello {
            node: self.config.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            address: self.address.clone(),
            hardware: Some(self.node.describe(&self.config)),
            running: self.tasks.active().map(|task| task.id.into()).collect(),
            identity: self.identity,
        };
        self.server.connecting(sender, hello);
    }

    fn disconnected(&mut self, reason: &str) {
        self.server.disconnected(reason);
        self.log_readers.stop_all();
    }

    /// Handles a message from the server.
    fn received(&mut self, body: Option<Body>) {
        match body {
            Some(Body::Welcome(welcome)) => self.welcome(&welcome),
            Some(Body::Ack(ack)) => self.acknowledged(ack.sequence),
            Some(Body::StartTask(command)) => self.start(&command),
            Some(Body::StopTask(command)) => self.stop(&command),
            Some(Body::StopAfterStep(command)) => {
                let id = command.task.unwrap_or_default().into();
                if let Some(task) = self.tasks.get_mut(id) {
                    task.stop_after_step(command.step);
                }
            }
            Some(Body::ResizeTask(command)) => self.resize(&command),
            Some(Body::ReadLog(command)) => {
                let folder = self.tasks.folder_of(command.task.unwrap_or_default().into());
                self.log_readers.read(command, folder, self.server.log_queue());
            }
            Some(Body::SetMps(command)) => mps::switch(self, &command),
            // The link handles rejections. An empty body is a message that only newer versions know.
            Some(Body::Rejection(_)) | None => {}
        }
    }

    fn heartbeat(&mut self) {
        if self.server.is_welcome() {
            let heartbeat = self.node.measure();
            if self.server.send_heartbeat(heartbeat) {
                self.resend_facts();
            }
        }
    }

    fn resend_facts(&mut self) {
        self.tasks.resend_facts(&self.server);
        self.server.resend_answers();
    }

    /// Handles the acknowledgement of a heartbeat or a fact.
    fn acknowledged(&mut self, sequence: u64) {
        if let Some(until_ms) = self.server.acknowledge_heartbeat(sequence) {
            self.extend_lease(until_ms);
        } else if !self.server.acknowledge_answer(sequence) {
            self.tasks.acknowledge(sequence);
        }
    }

    fn extend_lease(&mut self, until_ms: u64) {
        self.lease_until_ms = until_ms;
        if let Err(e) = lease::write(&self.lease_file, until_ms) {
            tracing::error!("{e}; tasks will be killed when their lease expires");
        }
    }

    /// Handles an event of the trainers' socket.
    fn trainer_event(&mut self, event: TrainerEvent) {
        if let TrainerEvent::Received { connection, message } = &event
            && let Some((step, gate_event)) = gates::gate_event(message)
        {
            if let Some((task, rank)) = self.tasks.trainer(*connection) {
                let now = self.gates.now();
                let commands = self.gates.gates.handle(now, task, rank, step, gate_event);
                self.send_gate_commands(commands);
            }
            return;
        }
        let is_message = matches!(event, TrainerEvent::Received { .. });
        self.tasks.trainer_event(event, &self.gates.gates, &self.server);
        if !is_message {
            self.update_gates();
        }
    }

    /// Adapts the gates to the tasks and trainers that there are now.
    fn update_gates(&mut self) {
        let tasks: Vec<GateTask> = self
            .tasks
            .active()
            .filter_map(|task| gates::gate_task(task))
            .collect();
        if tasks != self.gates.tasks {
            self.gates.tasks = tasks;
            self.replan_gates();
        }
    }

    fn replan_gates(&mut self) {
        let now = self.gates.now();
        let commands = self.gates.gates.update(now, &self.gates.tasks);
        self.send_gate_commands(commands);
    }

    /// Returns when `tick_gates` is due.
    fn next_gate_deadline(&self) -> tokio::time::Instant {
        let wait = self.gates.gates.next_deadline().map(Duration::from_micros);
        wait.map_or_else(
            || tokio::time::Instant::now() + Duration::from_secs(3600),
            |wait| self.gates.begin + wait,
        )
    }

    /// Lets trainers proceed that have waited for too long.
    fn tick_gates(&mut self) {
        let now = self.gates.now();
        let (commands, is_update_due) = self.gates.gates.tick(now);
        self.send_gate_commands(commands);
        if is_update_due {
            self.replan_gates();
        }
    }

    fn send_gate_commands(&mut self, commands: Vec<GateCommand>) {
        for command in commands {
            let (task, rank, command) = match command {
                GateCommand::On {
                    task,
                    rank,
                    patience_ms,
                } => {
                    let patience_ms = Some(patience_ms);
                    (
                        task,
                        rank,
                        TrainerCommand::Gates {
                            on: true,
                            patience_ms,
                        },
                    )
                }
                GateCommand::Off { task, rank } => {
                    let patience_ms = None;
                    (
                        task,
                        rank,
                        TrainerCommand::Gates {
                            on: false,
                            patience_ms,
                        },
                    )
                }
                GateCommand::Go(go) => {
                    let (stage, step) = (go.stage.into(), go.step);
                    (go.task, go.rank, TrainerCommand::Go { stage, step })
                }
            };
            let trainer = self.tasks.get_mut(task).and_then(|task| task.ranks.get(&rank));
            if let Some(commands) = trainer.and_then(|trainer| trainer.commands.as_ref()) {
                // The end of a connection is reported by the socket.
                let _ = commands.send(command);
            }
        }
    }

    /// Handles a change in the life of a task.
    fn task_event(&mut self, id: TaskId, event: TaskEvent) {
        let Some(task) = self.tasks.get_mut(id) else {
            return;
        };
        match event {
            TaskEvent::Started if !task.has_ended() => {
                task.started(&mut self.server);
                if let Some(command) = task.resize.take() {
                    self.resize(&command);
                }
                if let Some(task) = self.tasks.get_mut(id) {
                    task.forward_stop();
                }
            }
            TaskEvent::Started => {}
            TaskEvent::InstanceEnded(exit) => task.instance_ended(exit, &mut self.server),
            TaskEvent::Ended(outcome) => {
                task.ended(*outcome, &mut self.server);
                if let Some(spec) = &task.spec {
                    self.node.cpus.release(&spec.cpus);
                }
                self.tasks.disconnect_trainers(id);
            }
        }
    }
}

/// Returns the address from which this machine sends to the server. Nothing is sent.
fn address_towards(server: &str) -> String {
    let probe = || -> std::io::Result<String> {
        let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
        socket.connect(server)?;
        Ok(socket.local_addr()?.ip().to_string())
    };
    probe().unwrap_or_else(|_| "127.0.0.1".to_owned())
}
