//! How people and agents reach the driver. Everything is checked against the book before it becomes a fact.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, RwLock};

use dovetail_model::{NodeId, NodeSpec};

use crate::AttemptId;
use crate::JobId;
use crate::actor::Actor;
use crate::driver::{Transaction, Work};
use crate::fact::{Fact, OperatorAction, TaskEnd};
use crate::request::{ArrayPart, JobRequest};
use crate::state::{ClusterState, JobState, NodeState, RuntimeCommand, SubmissionPreview};

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// It is not in a state for that.
    #[error("{0}")]
    Conflict(String),
    /// The journal cannot be written, so nothing can be promised.
    #[error("nothing can be taken now, because the journal cannot be written: {0}")]
    JournalUnavailable(String),
    /// The scheduler has ended.
    #[error("the scheduler is shutting down")]
    ShuttingDown,
}

/// What an agent says of itself when it comes.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRegistration {
    /// What it has.
    pub spec: NodeSpec,
    /// The kind of its GPUs.
    pub gpu_type: String,
    /// Its rack.
    pub rack: String,
    /// Where other nodes reach it.
    pub address: String,
    /// Drawn when it first started.
    pub identity: u64,
}

/// What an agent is told when it has come.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisteredNode {
    /// Its id.
    pub node: NodeId,
    /// Tasks it is to keep; all others are to be ended.
    pub keep: Vec<(JobId, AttemptId)>,
    /// Orders that stand.
    pub commands: Vec<RuntimeCommand>,
}

/// A way to the driver; clone it freely.
#[derive(Debug, Clone)]
pub struct Handle {
    inbox: SyncSender<Box<dyn Work>>,
    state: Arc<RwLock<ClusterState>>,
}

type Job<T> = Box<dyn FnOnce(&mut Transaction<'_>) -> Result<T, Refusal> + Send>;
type Answer<T> = Box<dyn FnOnce(Result<T, Refusal>) + Send>;

struct Call<T, F> {
    work: F,
    answer: Answer<T>,
    is_last: bool,
}

impl<T, F> Work for Call<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
{
    fn run(self: Box<Self>, desk: &mut Transaction<'_>) -> Box<dyn FnOnce() + Send> {
        let result = (self.work)(desk);
        let answer = self.answer;
        Box::new(move || answer(result))
    }

    fn refuse(self: Box<Self>, why: &str) {
        (self.answer)(Err(Refusal::JournalUnavailable(why.to_owned())));
    }

    fn is_last(&self) -> bool {
        self.is_last
    }
}

/// Something to ask of the driver: call it and wait, or hand in who is to be told.
pub struct DriverCall<'a, T> {
    handle: &'a Handle,
    work: Job<T>,
    is_last: bool,
}

impl<T> std::fmt::Debug for DriverCall<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ask")
    }
}

impl<T: Send + 'static> DriverCall<'_, T> {
    /// Asks, and calls back once the answer is durable.
    pub fn then(self, answer: impl FnOnce(Result<T, Refusal>) + Send + 'static) {
        let call = Call {
            work: self.work,
            answer: Box::new(answer),
            is_last: self.is_last,
        };
        // When the driver has ended the call is dropped, and with it the way to answer: see `wait`.
        let _ = self.handle.inbox.send(Box::new(call));
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When it was refused.
    pub fn wait(self) -> Result<T, Refusal> {
        let (sender, receiver) = sync_channel(1);
        self.then(move |result| drop(sender.send(result)));
        receiver.recv().unwrap_or(Err(Refusal::ShuttingDown))
    }
}

impl Handle {
    pub(crate) fn new(inbox: SyncSender<Box<dyn Work>>, state: Arc<RwLock<ClusterState>>) -> Self {
        Self { inbox, state }
    }

    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> DriverCall<'_, T> {
        DriverCall {
            handle: self,
            work: Box::new(work),
            is_last: false,
        }
    }

    /// Does something at the desk, where facts are written down: for drivers that know more than one fact at once.
    pub fn in_transaction<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> T + Send + 'static,
    ) -> DriverCall<'_, T> {
        self.ask(move |desk| Ok(work(desk)))
    }

    /// Looks into the book.
    pub fn read<T>(&self, look: impl FnOnce(&ClusterState) -> T) -> T {
        look(&self.state.read().unwrap_or_else(|e| e.into_inner()))
    }

    /// Takes a snapshot and ends the driver. Jobs run on.
    pub fn shut_down(&self) -> DriverCall<'_, ()> {
        let mut ask = self.ask(|_| Ok(()));
        ask.is_last = true;
        ask
    }

    /// Takes a job in; its number.
    pub fn submit(&self, user: &str, request: JobRequest) -> DriverCall<'_, JobId> {
        self.submit_once(user, request, None)
    }

    /// The same; if a job came already with this key, its number.
    pub fn submit_once(&self, user: &str, request: JobRequest, key: Option<String>) -> DriverCall<'_, JobId> {
        let user = user.to_owned();
        self.ask(move |desk| {
            if let Some(known) = known(desk.state, &user, key.as_ref(), &request)? {
                return Ok(known);
            }
            desk.submit(&user, request, key)
        })
    }

    /// What would become of a job if it were sent now.
    ///
    /// # Errors
    /// When it would be refused.
    pub fn preview_submission(&self, user: &str, request: &JobRequest) -> Result<SubmissionPreview, Refusal> {
        self.read(|state| {
            may_come(state, request)?;
            Ok(state.preview_submission(user, request))
        })
    }

    /// Takes an array of jobs in, one for each index; the numbers of the first and the last.
    pub fn submit_array(
        &self,
        user: &str,
        request: JobRequest,
        indices: Vec<u32>,
        at_most: Option<u32>,
        key: Option<String>,
    ) -> DriverCall<'_, (JobId, JobId)> {
        let user = user.to_owned();
        self.ask(move |desk| take_array(desk, &user, request, (indices, at_most), key, false))
    }

    /// Takes in a job whose parts others make, or an array of them: each has a number, and waits until its parts are there.
    /// The numbers of the first and the last, and whether they are new.
    pub fn announce(
        &self,
        user: &str,
        request: JobRequest,
        array: Option<(Vec<u32>, Option<u32>)>,
        key: Option<String>,
    ) -> DriverCall<'_, (JobId, JobId, bool)> {
        let user = user.to_owned();
        self.ask(move |desk| {
            let next = desk.state.next_job();
            let (first, last) = match array {
                Some(array) => take_array(desk, &user, request, array, key, true)?,
                None => match known(desk.state, &user, key.as_ref(), &request)? {
                    Some(job) => (job, job),
                    None => {
                        may_come(desk.state, &request)?;
                        let request = Box::new(request.with_external_workload());
                        desk.record(Fact::Announced {
                            job: next,
                            user,
                            request,
                            key,
                        });
                        (next, next)
                    }
                },
            };
            let is_new = first >= next;
            Ok((first, last, is_new))
        })
    }

    /// Ends a job, whatever it does.
    pub fn cancel(&self, job: JobId, by: Actor) -> DriverCall<'_, ()> {
        self.ask(move |desk| {
            if find(desk.state, job)?.has_ended() {
                return Err(Refusal::Conflict(format!("job {job} is over already")));
            }
            desk.record(Fact::Cancelled { job, by });
            Ok(())
        })
    }

    /// Makes a job wait; one that runs is stopped.
    pub fn hold(&self, job: JobId, by: Actor) -> DriverCall<'_, ()> {
        self.ask(move |desk| {
            if find(desk.state, job)?.has_ended() {
                return Err(Refusal::Conflict(format!("job {job} is over already")));
            }
            desk.record(Fact::Held { job, by });
            Ok(())
        })
    }

    /// Lets a job go on that was made to wait.
    pub fn release(&self, job: JobId, by: Actor) -> DriverCall<'_, ()> {
        self.ask(move |desk| {
            match find(desk.state, job)? {
                JobState::Held(_) | JobState::Stopping(_) => {}
                _ => return Err(Refusal::Conflict(format!("job {job} is not held"))),
            }
            desk.record(Fact::Released { job, by });
            Ok(())
        })
    }

    /// Gives a job that waits another priority.
    pub fn prioritize(&self, job: JobId, priority: i32, by: Actor) -> DriverCall<'_, ()> {
        self.ask(move |desk| {
            match find(desk.state, job)? {
                JobState::Held(_) | JobState::Queued => {}
                _ => {
                    return Err(Refusal::Conflict(format!(
                        "job {job} does not wait; only a job that waits can have another priority"
                    )));
                }
            }
            let request = desk.state.job(job).map(|record| JobRequest {
                priority,
                ..(*record.request).clone()
            });
            may_be_there(desk.state, &request.unwrap_or_default())?;
            desk.record(Fact::Prioritized { job, priority, by });
            Ok(())
        })
    }

    /// Gives a job a mark, or takes one away.
    pub fn label(&self, job: JobId, key: &str, value: Option<String>, by: Actor) -> DriverCall<'_, ()> {
        let key = key.to_owned();
        self.ask(move |desk| {
            find(desk.state, job)?;
            desk.record(Fact::Labelled { job, key, value, by });
            Ok(())
        })
    }

    /// Lets a node take no new jobs, or take them again.
    pub fn set_draining(&self, name: &str, reason: Option<String>, by: Actor) -> DriverCall<'_, ()> {
        let name = name.to_owned();
        self.ask(move |desk| {
            let node = desk
                .state
                .node_named(&name)
                .ok_or_else(|| Refusal::NotFound(format!("there is no node {name:?}")))?;
            let fact = match reason {
                Some(reason) => Fact::NodeDrained { node, by, reason },
                None => Fact::NodeResumed { node, by },
            };
            desk.record(fact);
            Ok(())
        })
    }

    /// Changes how the scheduler works.
    pub fn operate(&self, action: OperatorAction, by: Actor) -> DriverCall<'_, ()> {
        self.ask(move |desk| {
            match &action {
                OperatorAction::Policy(text) => desk.state.check_policy(text).map_err(Refusal::Invalid)?,
                OperatorAction::Round(Some(period)) if period.0 <= 0 => {
                    return Err(Refusal::Invalid("round: must be longer than 0".to_owned()));
                }
                OperatorAction::VirtualClusters(clusters) => {
                    desk.state
                        .preview_virtual_clusters(clusters)
                        .map_err(Refusal::Invalid)?;
                }
                OperatorAction::Round(_) | OperatorAction::Pause | OperatorAction::Resume => {}
            }
            desk.record(Fact::Operated { action, by });
            Ok(())
        })
    }

    /// An agent comes, for the first time or again.
    pub fn register_node(&self, arrival: NodeRegistration) -> DriverCall<'_, RegisteredNode> {
        self.ask(move |desk| {
            let name = &arrival.spec.name;
            let known = desk.state.node_named(name);
            let node =
                known.unwrap_or_else(|| dovetail_model::ids::Id::from_index(desk.state.nodes().count()));
            let same = known.and_then(|id| desk.state.node(id)).is_some_and(|n| {
                let spec = NodeSpec {
                    gpu_type: n.spec.gpu_type,
                    zone: n.spec.zone,
                    ..arrival.spec.clone()
                };
                n.state != NodeState::Lost
                    && spec == n.spec
                    && n.gpu_type == arrival.gpu_type
                    && n.rack == arrival.rack
                    && n.address == arrival.address
                    && n.identity == arrival.identity
            });
            if !same {
                desk.record(Fact::NodeJoined {
                    node,
                    spec: Box::new(arrival.spec),
                    gpu_type: arrival.gpu_type,
                    rack: arrival.rack,
                    address: arrival.address,
                    identity: arrival.identity,
                });
            }
            let tasks = desk.state.tasks_on(node);
            Ok(RegisteredNode {
                node,
                keep: tasks.iter().map(|(job, a, _)| (job.id, a.id)).collect(),
                commands: desk.state.commands_for(node),
            })
        })
    }

    /// An agent that came has told everything it kept. What it should run and does not is lost; the orders that stand.
    pub fn reconcile_node(
        &self,
        node: NodeId,
        running: Vec<(JobId, AttemptId)>,
    ) -> DriverCall<'_, Vec<RuntimeCommand>> {
        self.ask(move |desk| {
            for fact in desk.state.reconcile(node, &running) {
                desk.record(fact);
            }
            Ok(desk.state.commands_for(node))
        })
    }

    /// An agent has not been heard of for so long that its tasks have ended.
    pub fn node_lost(&self, node: NodeId) -> DriverCall<'_, ()> {
        self.ask(move |desk| {
            desk.record(Fact::NodeLost { node });
            Ok(())
        })
    }

    /// A task runs.
    pub fn task_started(
        &self,
        job: JobId,
        attempt_id: AttemptId,
        node: NodeId,
        sharing: String,
        remarks: Vec<String>,
    ) -> DriverCall<'_, ()> {
        self.ask(move |desk| {
            desk.record(Fact::TaskStarted {
                job,
                attempt: attempt_id,
                node,
                sharing,
                remarks,
            });
            Ok(())
        })
    }

    /// A task has ended.
    pub fn task_ended(
        &self,
        job: JobId,
        attempt_id: AttemptId,
        node: NodeId,
        end: TaskEnd,
    ) -> DriverCall<'_, ()> {
        self.ask(move |desk| {
            desk.record(Fact::TaskEnded {
                job,
                attempt: attempt_id,
                node,
                end: Box::new(end),
            });
            Ok(())
        })
    }

    /// A fact that was put together elsewhere, such as progress.
    pub fn tell(&self, fact: Fact) -> DriverCall<'_, ()> {
        self.ask(move |desk| {
            desk.record(fact);
            Ok(())
        })
    }
}

/// The job that came with this key before.
impl Transaction<'_> {
    /// Takes a job in, if it may come; its number.
    ///
    /// # Errors
    /// When it makes no sense, or could never run.
    pub fn submit(&mut self, user: &str, request: JobRequest, key: Option<String>) -> Result<JobId, Refusal> {
        may_come(self.state, &request)?;
        let job = self.state.next_job();
        self.record(Fact::Submitted {
            job,
            user: user.to_owned(),
            request: Box::new(request),
            key,
        });
        Ok(job)
    }
}

fn known(
    state: &ClusterState,
    user: &str,
    key: Option<&String>,
    request: &JobRequest,
) -> Result<Option<JobId>, Refusal> {
    let Some(job) = key.and_then(|key| state.job_of_key(user, key)) else {
        return Ok(None);
    };
    let before = JobRequest {
        array: request.array,
        priority: request.priority,
        ..(*job.request).clone()
    };
    match before == *request {
        true => Ok(Some(job.id)),
        false => Err(Refusal::Conflict(format!(
            "the key was used already, for job {}, which is another one",
            job.id
        ))),
    }
}

fn find(state: &ClusterState, job: JobId) -> Result<&JobState, Refusal> {
    match state.job(job) {
        Some(record) => Ok(&record.state),
        None => Err(Refusal::NotFound(format!("there is no job {job}"))),
    }
}

/// Whether the virtual cluster of the job is there and takes such jobs.
fn may_be_there(state: &ClusterState, request: &JobRequest) -> Result<(), Refusal> {
    let Some(cluster) = state.virtual_clusters().get(&request.tenant) else {
        return Err(Refusal::Invalid(format!(
            "tenant: there is no virtual cluster {:?}; there are {}",
            request.tenant,
            state.virtual_clusters().names().join(", ")
        )));
    };
    if let Some(most) = cluster.max_priority.filter(|most| request.priority > *most) {
        return Err(Refusal::Invalid(format!(
            "priority: {} is too high; virtual cluster {} takes at most {most}",
            request.priority, request.tenant
        )));
    }
    if let Some(cap) = cluster.user_cap_gpus.filter(|cap| request.gpus > *cap) {
        return Err(Refusal::Invalid(format!(
            "gpus: asks for {}; one user may have {cap} at once in virtual cluster {}",
            request.gpus, request.tenant
        )));
    }
    state.could_ever_run(request).map_err(Refusal::Invalid)
}

/// Takes in a job for each index; the numbers of the first and the last.
fn take_array(
    desk: &mut Transaction<'_>,
    user: &str,
    request: JobRequest,
    (indices, at_most): (Vec<u32>, Option<u32>),
    key: Option<String>,
    in_parts: bool,
) -> Result<(JobId, JobId), Refusal> {
    if let Some(first) = known(desk.state, user, key.as_ref(), &request)? {
        return Ok((first, first + indices.len() as u64 - 1));
    }
    may_come(desk.state, &request)?;
    if indices.is_empty() || at_most == Some(0) {
        return Err(Refusal::Invalid(
            "array: at least one index is needed, and room for one at a time".to_owned(),
        ));
    }
    let (array, mut key) = (desk.state.next_job(), key);
    for role in 0..request.roles.len() {
        let first = request.roles[..role].iter().map(|r| r.instances).sum();
        may_come(desk.state, &request.clone().alone(first))?;
    }
    if !request.roles.is_empty() && indices.iter().any(|i| request.instance(*i).is_none()) {
        return Err(Refusal::Invalid(
            "array: an instance is not there; roles have fewer of them".to_owned(),
        ));
    }
    for index in indices {
        let mut request = request.clone().alone(index);
        request.array = Some(ArrayPart {
            array,
            index,
            at_most,
        });
        let (job, user, key) = (desk.state.next_job(), user.to_owned(), key.take());
        desk.record(match in_parts {
            true => Fact::Announced {
                job,
                user,
                request: Box::new(request.with_external_workload()),
                key,
            },
            false => Fact::Submitted {
                job,
                user,
                request: Box::new(request),
                key,
            },
        });
    }
    Ok((array, desk.state.next_job() - 1))
}

/// Whether a job can be taken in: its request makes sense, and the cluster could run it if it were empty.
fn may_come(state: &ClusterState, request: &JobRequest) -> Result<(), Refusal> {
    request.validate().map_err(Refusal::Invalid)?;
    may_be_there(state, request)?;
    for after in &request.after {
        find(state, after.job).map_err(|e| Refusal::Invalid(format!("after: {e}")))?;
    }
    state.fits_when_empty(request).map_err(Refusal::Invalid)
}
