//! What an agent knows.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use dovetail_proto::v1::{Gpu, Hardware, InstanceEnded, NumaDomain, ResizeTask, TaskEnded};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::config::AgentConfig;
use crate::error::{At, NodeError};
use crate::hardware::gpus::{self, GpuDriver};
use crate::hardware::system::System;
use crate::link::Sender;
use crate::sdk;
use crate::store::generations::Generations;
use crate::store::identity;
use crate::task::cgroup::Cgroups;
use crate::task::container;
use crate::task::cpus::CpuBook;
use crate::task::folder::TaskFolder;
use crate::task::record::{Exit, InstanceExit, Key, Spec, Stop};
use crate::trainers::{self, ToTrainer};

/// What is heard of a task.
#[derive(Debug)]
pub(crate) enum TaskEvent {
    /// Its processes run.
    Started,
    /// An instance of a role has ended.
    InstanceEnded(InstanceExit),
    /// It is over.
    Ended(Box<Ending>),
}

/// How a task ended, with what its folder says.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) exit: Exit,
    pub(crate) checkpoint_step: u64,
    pub(crate) last_words: String,
}

/// The agent.
pub(crate) struct Agent {
    pub(crate) config: AgentConfig,
    pub(crate) identity: u64,
    pub(crate) address: String,
    pub(crate) socket: PathBuf,
    pub(crate) sdk: PathBuf,
    pub(crate) lease_file: PathBuf,
    pub(crate) lease_until_ms: u64,
    pub(crate) system: System,
    pub(crate) gpu_driver: Box<dyn GpuDriver>,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) domains: Vec<Vec<u32>>,
    pub(crate) cpus: CpuBook,
    pub(crate) cpu_ticks: (u64, u64),
    pub(crate) cgroups: Option<Cgroups>,
    /// Where limits come from, in words.
    pub(crate) limits: &'static str,
    pub(crate) mps: Option<String>,
    /// The program that runs containers, if there is one.
    pub(crate) runtime: Option<PathBuf>,
    pub(crate) generations: Arc<Mutex<Generations>>,
    pub(crate) tasks: BTreeMap<Key, Task>,
    pub(crate) connections: BTreeMap<u64, (Key, u32)>,
    pub(crate) link: Link,
    /// Answers to orders that nothing was done for, until they are acknowledged.
    pub(crate) answers: BTreeMap<u64, TaskEnded>,
    pub(crate) last_number: u64,
    pub(crate) readers: BTreeMap<u64, AbortHandle>,
    pub(crate) events: UnboundedSender<(Key, TaskEvent)>,
    /// The folder is ours as long as this is open.
    _lock: File,
}

/// The connection, as the agent sees it.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) sender: Option<Sender>,
    /// When `Hello` was sent.
    pub(crate) hello_ms: u64,
    pub(crate) is_welcome: bool,
    pub(crate) beat_ms: u64,
    pub(crate) lease_ms: u64,
    pub(crate) next_beat: Option<Instant>,
    pub(crate) beats_since_facts: u32,
    /// When heartbeats were sent that are not answered yet.
    pub(crate) beats: BTreeMap<u64, u64>,
}

/// A task that is known here.
pub(crate) struct Task {
    pub(crate) folder: TaskFolder,
    /// Nothing if it cannot be read.
    pub(crate) spec: Option<Spec>,
    pub(crate) phase: Phase,
    pub(crate) stop: Option<Stop>,
    /// An order that came before it ran.
    pub(crate) resize: Option<ResizeTask>,
    /// The numbers of its facts, until they are acknowledged.
    pub(crate) started_fact: Option<u64>,
    pub(crate) ended_fact: Option<u64>,
    pub(crate) instance_facts: BTreeMap<u64, InstanceEnded>,
    pub(crate) ranks: BTreeMap<u32, Rank>,
    pub(crate) world: u32,
    pub(crate) last_progress: Option<Instant>,
}

/// Where a task is in its life.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    Starting,
    Running,
    Ended(Box<TaskEnded>),
}

/// A trainer of a task.
pub(crate) struct Rank {
    pub(crate) connection: u64,
    pub(crate) replies: Option<UnboundedSender<ToTrainer>>,
    pub(crate) step: u64,
    pub(crate) at_step: Option<u64>,
    pub(crate) is_finished: bool,
}

impl Task {
    pub(crate) fn new(folder: TaskFolder, spec: Option<Spec>, phase: Phase) -> Self {
        Self {
            folder,
            spec,
            phase,
            stop: None,
            resize: None,
            started_fact: None,
            ended_fact: None,
            instance_facts: BTreeMap::new(),
            ranks: BTreeMap::new(),
            world: 0,
            last_progress: None,
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::Ended(_))
    }

    pub(crate) fn tell_trainers(&self, word: &ToTrainer) {
        for replies in self.ranks.values().filter_map(|r| r.replies.as_ref()) {
            // One that has gone is reported by its connection.
            let _ = replies.send(word.clone());
        }
    }
}

impl Agent {
    /// An agent that knows its machine and its folder, and not yet its tasks.
    pub(crate) fn new(
        config: AgentConfig,
        events: UnboundedSender<(Key, TaskEvent)>,
    ) -> Result<Self, NodeError> {
        let lock = identity::lock(&config.folder)?;
        let identity = identity::identity(&config.folder)?;
        let system = System::here();
        let domains = system.domains();
        let mut gpu_driver = gpus::driver(&config.node, config.virtual_gpus);
        let gpus = gpu_driver.gpus();
        let (cgroups, limits) = match Cgroups::open(config.cgroup.as_deref()) {
            Ok(groups) => (Some(groups), "cgroup"),
            Err(why) => {
                tracing::warn!("tasks are bound to CPUs and have no limit of memory: no cgroup v2: {why}");
                (None, "affinity")
            }
        };
        let sdk = sdk::unpack(&config.folder).at(&config.folder.join("python"))?;
        let lease_file = config.folder.join("lease");
        tracing::info!(
            node = config.node,
            gpus = gpus.len(),
            cpus = domains.iter().map(Vec::len).sum::<usize>(),
            limits,
            "the agent starts"
        );
        Ok(Self {
            socket: trainers::place(config.socket.as_deref(), &config.folder, identity),
            address: config
                .address
                .clone()
                .unwrap_or_else(|| address_towards(&config.server)),
            sdk,
            generations: Arc::new(Mutex::new(Generations::open(&config.folder)?)),
            // The one in the file may be of another life of the machine; there is a new one before the first start.
            lease_until_ms: 0,
            lease_file,
            identity,
            cpu_ticks: system.cpu_ticks(),
            system,
            gpu_driver,
            gpus,
            cpus: CpuBook::new(domains.clone()),
            domains,
            cgroups,
            limits,
            mps: gpus::mps_pipe(),
            runtime: match &config.container_runtime {
                None => container::runtime(),
                Some(program) if program.as_os_str() == "none" => None,
                Some(program) => Some(program.clone()),
            },
            tasks: BTreeMap::new(),
            connections: BTreeMap::new(),
            link: Link::default(),
            answers: BTreeMap::new(),
            last_number: 0,
            readers: BTreeMap::new(),
            events,
            config,
            _lock: lock,
        })
    }

    /// What the node has, for `Hello`.
    pub(crate) fn hardware(&self) -> Hardware {
        let cpus: usize = self.domains.iter().map(Vec::len).sum();
        let mut labels = self.config.labels.clone();
        labels.insert("dovetail.limits".to_owned(), self.limits.to_owned());
        Hardware {
            gpus: self.gpus.clone(),
            cpu_milli: u32::try_from(cpus * 1000).unwrap_or(u32::MAX),
            memory_mib: self.system.memory_mib().0,
            numa: self
                .domains
                .iter()
                .map(|cpus| NumaDomain { cpus: cpus.clone() })
                .collect(),
            mps: self.mps.is_some(),
            rack: self.config.rack.clone(),
            labels,
        }
    }
}

/// The address by which this machine would send to the scheduler. Nothing is sent.
fn address_towards(server: &str) -> String {
    let look = || -> std::io::Result<String> {
        let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
        socket.connect(server)?;
        Ok(socket.local_addr()?.ip().to_string())
    };
    look().unwrap_or_else(|_| "127.0.0.1".to_owned())
}
