//! Access to the driver for users and agents. Every request is checked against the state before it becomes a fact.

mod admission;
mod jobs;
mod refusal;

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, RwLock};

use dovetail_history::Readers;
use dovetail_model::ids::Id;
use dovetail_model::{NodeId, NodeSpec};
use tokio::sync::watch;

use crate::actor::Actor;
use crate::driver::{Outcome, Request, Transaction};
use crate::fact::{Fact, OperatorAction, TaskEnd};
use crate::state::{ClusterState, NodeRecord, NodeState, RuntimeCommand};
use crate::{AttemptId, JobId};

pub use refusal::{Conflict, InvalidRequest, NotFound, Refusal};

/// What an agent reports about its node when it connects.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRegistration {
    /// Resources of the node.
    pub spec: NodeSpec,
    /// Type of its GPUs.
    pub gpu_type: String,
    /// Rack it is in.
    pub rack: String,
    /// Address at which other nodes reach it.
    pub address: String,
    /// Random number the agent drew at the first start.
    pub identity: u64,
}

impl NodeRegistration {
    /// Returns whether the scheduler has the node with the same properties.
    fn is_recorded_as(&self, record: &NodeRecord) -> bool {
        let spec = NodeSpec {
            gpu_type: record.spec.gpu_type,
            zone: record.spec.zone,
            ..self.spec.clone()
        };
        record.state != NodeState::Lost
            && spec == record.spec
            && record.gpu_type == self.gpu_type
            && record.rack == self.rack
            && record.address == self.address
            && record.identity == self.identity
    }
}

/// Answer to the registration of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisteredNode {
    /// Id of the node.
    pub node: NodeId,
    /// Tasks the agent keeps; it ends all others.
    pub keep: Vec<(JobId, AttemptId)>,
    /// Commands for the agent.
    pub commands: Vec<RuntimeCommand>,
}

/// Access to the driver; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    inbox: SyncSender<Box<dyn Request>>,
    state: Arc<RwLock<ClusterState>>,
    history: Option<Readers>,
    watches: Watches,
}

/// What the driver makes known beside the state.
#[derive(Debug, Clone)]
pub(crate) struct Watches {
    pub(crate) last_event: watch::Receiver<u64>,
    pub(crate) journal_error: watch::Receiver<Option<String>>,
}

type Work<T> = Box<dyn FnOnce(&mut Transaction<'_>) -> Result<T, Refusal> + Send>;
type Callback<T> = Box<dyn FnOnce(Result<T, Refusal>) + Send>;

struct PendingCall<T> {
    work: Work<T>,
    callback: Callback<T>,
    is_shutdown: bool,
}

impl<T: Send + 'static> Request for PendingCall<T> {
    fn run(self: Box<Self>, transaction: &mut Transaction<'_>) -> Box<dyn FnOnce(Outcome) + Send> {
        let result = (self.work)(transaction);
        let callback = self.callback;
        Box::new(move |outcome| match outcome {
            Outcome::Durable => callback(result),
            Outcome::NotRecorded(reason) => callback(Err(Refusal::JournalUnavailable(reason))),
        })
    }

    fn refuse(self: Box<Self>, reason: &str) {
        (self.callback)(Err(Refusal::JournalUnavailable(reason.to_owned())));
    }

    fn is_shutdown(&self) -> bool {
        self.is_shutdown
    }
}

/// A request to the driver that is not sent yet: wait for the answer, or pass a callback.
pub struct DriverCall<'a, T> {
    handle: &'a Handle,
    work: Work<T>,
    is_shutdown: bool,
}

impl<T> std::fmt::Debug for DriverCall<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DriverCall")
    }
}

impl<T: Send + 'static> DriverCall<'_, T> {
    /// Sends the request, and calls back when its facts are durable or it is refused.
    pub fn then(self, callback: impl FnOnce(Result<T, Refusal>) + Send + 'static) {
        let call = PendingCall {
            work: self.work,
            callback: Box::new(callback),
            is_shutdown: self.is_shutdown,
        };
        // When the driver has ended, the callback is dropped with the call; `wait` relies on that.
        let _ = self.handle.inbox.send(Box::new(call));
    }

    /// Sends the request, and waits until its facts are durable or it is refused.
    ///
    /// # Errors
    /// If it is refused.
    pub fn wait(self) -> Result<T, Refusal> {
        let (sender, receiver) = sync_channel(1);
        self.then(move |result| drop(sender.send(result)));
        receiver.recv().unwrap_or(Err(Refusal::ShuttingDown))
    }
}

impl Handle {
    pub(crate) fn new(
        inbox: SyncSender<Box<dyn Request>>,
        state: Arc<RwLock<ClusterState>>,
        history: Option<Readers>,
        watches: Watches,
    ) -> Self {
        Self {
            inbox,
            state,
            history,
            watches,
        }
    }

    /// Watches the number of the last durable event. It ends with the driver.
    pub fn last_event(&self) -> watch::Receiver<u64> {
        self.watches.last_event.clone()
    }

    /// Returns why the journal cannot be written; `None` if it can.
    pub fn journal_error(&self) -> Option<String> {
        self.watches.journal_error.borrow().clone()
    }

    /// Returns the history database, which has the ended jobs that left memory; none if all jobs are in memory. A read may
    /// take a while, so it must not happen while the state is read, nor on a thread that others wait for.
    pub fn history(&self) -> Option<&Readers> {
        self.history.as_ref()
    }

    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> DriverCall<'_, T> {
        DriverCall {
            handle: self,
            work: Box::new(work),
            is_shutdown: false,
        }
    }

    /// Runs a function in one transaction, for drivers that record several facts at once.
    pub fn in_transaction<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> T + Send + 'static,
    ) -> DriverCall<'_, T> {
        self.call(move |transaction| Ok(work(transaction)))
    }

    /// Reads the state.
    pub fn read<T>(&self, read: impl FnOnce(&ClusterState) -> T) -> T {
        read(&self.state.read().unwrap_or_else(|e| e.into_inner()))
    }

    /// Takes a snapshot and ends the driver. Jobs keep running.
    pub fn shut_down(&self) -> DriverCall<'_, ()> {
        let mut call = self.call(|_| Ok(()));
        call.is_shutdown = true;
        call
    }

    /// Changes a setting of the scheduler.
    pub fn operate(&self, action: OperatorAction, by: Actor) -> DriverCall<'_, ()> {
        self.call(move |transaction| {
            let state = &transaction.state;
            match &action {
                OperatorAction::Policy(text) => state.check_policy(text).map_err(InvalidRequest::Policy)?,
                OperatorAction::Round(Some(period)) if period.0 <= 0 => {
                    return Err(InvalidRequest::Round.into());
                }
                OperatorAction::VirtualClusters(clusters) => {
                    let preview = state.preview_virtual_clusters(clusters);
                    preview.map_err(InvalidRequest::VirtualClusters)?;
                }
                OperatorAction::ForgetProfile(key) if state.profiles().get(key).is_none() => {
                    return Err(NotFound::Profile(key.clone()).into());
                }
                OperatorAction::ForgetProfile(_) => {}
                OperatorAction::Round(_) | OperatorAction::Pause | OperatorAction::Resume => {}
            }
            transaction.record(Fact::Operated { action, by });
            Ok(())
        })
    }

    /// Drains a node for this reason, or lets it take jobs again if there is none.
    pub fn set_draining(&self, name: &str, reason: Option<String>, by: Actor) -> DriverCall<'_, ()> {
        let name = name.to_owned();
        self.call(move |transaction| {
            let node = transaction.state.node_named(&name);
            let node = node.ok_or(NotFound::Node(name))?;
            transaction.record(match reason {
                Some(reason) => Fact::NodeDrained { node, by, reason },
                None => Fact::NodeResumed { node, by },
            });
            Ok(())
        })
    }

    /// Registers the node of an agent that connects, for the first time or again.
    pub fn register_node(&self, registration: NodeRegistration) -> DriverCall<'_, RegisteredNode> {
        self.call(move |transaction| {
            let state = &transaction.state;
            let known = state.node_named(&registration.spec.name);
            let node = known.unwrap_or_else(|| NodeId::from_index(state.nodes().count()));
            let record = known.and_then(|id| state.node(id));
            if !record.is_some_and(|record| registration.is_recorded_as(record)) {
                transaction.record(Fact::NodeJoined {
                    node,
                    spec: Box::new(registration.spec),
                    gpu_type: registration.gpu_type,
                    rack: registration.rack,
                    address: registration.address,
                    identity: registration.identity,
                });
            }
            let tasks = transaction.state.tasks_on(node);
            Ok(RegisteredNode {
                node,
                keep: tasks.iter().map(|(job, a, _)| (job.id, a.id)).collect(),
                commands: transaction.state.commands_for(node),
            })
        })
    }

    /// Compares the tasks on a node with the state, after its agent has sent all facts it kept. Tasks that should run and
    /// do not are lost. Returns the commands for the agent.
    pub fn reconcile_node(
        &self,
        node: NodeId,
        running: Vec<(JobId, AttemptId)>,
    ) -> DriverCall<'_, Vec<RuntimeCommand>> {
        self.call(move |transaction| {
            for fact in transaction.state.reconcile(node, &running) {
                transaction.record(fact);
            }
            Ok(transaction.state.commands_for(node))
        })
    }

    /// Records that a node was silent for so long that its tasks have ended.
    pub fn node_lost(&self, node: NodeId) -> DriverCall<'_, ()> {
        self.record(Fact::NodeLost { node })
    }

    /// Records that the processes of a task run.
    pub fn task_started(
        &self,
        job: JobId,
        attempt: AttemptId,
        node: NodeId,
        sharing: String,
        remarks: Vec<String>,
    ) -> DriverCall<'_, ()> {
        self.record(Fact::TaskStarted {
            job,
            attempt,
            node,
            sharing,
            remarks,
        })
    }

    /// Records that the processes of a task have ended.
    pub fn task_ended(
        &self,
        job: JobId,
        attempt: AttemptId,
        node: NodeId,
        end: TaskEnd,
    ) -> DriverCall<'_, ()> {
        let end = Box::new(end);
        self.record(Fact::TaskEnded {
            job,
            attempt,
            node,
            end,
        })
    }

    /// Records a fact.
    pub fn record(&self, fact: Fact) -> DriverCall<'_, ()> {
        self.call(move |transaction| {
            transaction.record(fact);
            Ok(())
        })
    }
}
