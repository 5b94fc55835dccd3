//! How people and agents reach the driver. Everything is checked against the book before it becomes a fact.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, RwLock};

use dovetail_model::{NodeId, NodeSpec};

use crate::JobNo;
use crate::Launch;
use crate::book::{Book, JobState, NodeState, Order, Outlook};
use crate::driver::{Desk, Work};
use crate::fact::{Fact, Operate, TaskEnd};
use crate::request::{ArrayPart, JobRequest};

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// There is no such thing.
    #[error("{0}")]
    Unknown(String),
    /// It is not in a state for that.
    #[error("{0}")]
    Conflict(String),
    /// The journal cannot be written, so nothing can be promised.
    #[error("nothing can be taken now, because the journal cannot be written: {0}")]
    Stuck(String),
    /// The scheduler has ended.
    #[error("the scheduler is shutting down")]
    ShuttingDown,
}

/// What an agent says of itself when it comes.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
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
pub struct Admittance {
    /// Its id.
    pub node: NodeId,
    /// Tasks it is to keep; all others are to be ended.
    pub keep: Vec<(JobNo, Launch)>,
    /// Orders that stand.
    pub orders: Vec<Order>,
}

/// A way to the driver; clone it freely.
#[derive(Debug, Clone)]
pub struct Handle {
    inbox: SyncSender<Box<dyn Work>>,
    book: Arc<RwLock<Book>>,
}

type Job<T> = Box<dyn FnOnce(&mut Desk<'_>) -> Result<T, Refusal> + Send>;
type Answer<T> = Box<dyn FnOnce(Result<T, Refusal>) + Send>;

struct Call<T, F> {
    work: F,
    answer: Answer<T>,
    is_last: bool,
}

impl<T, F> Work for Call<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Desk<'_>) -> Result<T, Refusal> + Send + 'static,
{
    fn run(self: Box<Self>, desk: &mut Desk<'_>) -> Box<dyn FnOnce() + Send> {
        let result = (self.work)(desk);
        let answer = self.answer;
        Box::new(move || answer(result))
    }

    fn refuse(self: Box<Self>, why: &str) {
        (self.answer)(Err(Refusal::Stuck(why.to_owned())));
    }

    fn is_last(&self) -> bool {
        self.is_last
    }
}

/// Something to ask of the driver: call it and wait, or hand in who is to be told.
pub struct Ask<'a, T> {
    handle: &'a Handle,
    work: Job<T>,
    is_last: bool,
}

impl<T> std::fmt::Debug for Ask<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ask")
    }
}

impl<T: Send + 'static> Ask<'_, T> {
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
    pub(crate) fn new(inbox: SyncSender<Box<dyn Work>>, book: Arc<RwLock<Book>>) -> Self {
        Self { inbox, book }
    }

    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Ask<'_, T> {
        Ask {
            handle: self,
            work: Box::new(work),
            is_last: false,
        }
    }

    /// Does something at the desk, where facts are written down: for drivers that know more than one fact at once.
    pub fn at_desk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk<'_>) -> T + Send + 'static,
    ) -> Ask<'_, T> {
        self.ask(move |desk| Ok(work(desk)))
    }

    /// Looks into the book.
    pub fn read<T>(&self, look: impl FnOnce(&Book) -> T) -> T {
        look(&self.book.read().unwrap_or_else(|e| e.into_inner()))
    }

    /// Takes a snapshot and ends the driver. Jobs run on.
    pub fn shut_down(&self) -> Ask<'_, ()> {
        let mut ask = self.ask(|_| Ok(()));
        ask.is_last = true;
        ask
    }

    /// Takes a job in; its number.
    pub fn submit(&self, user: &str, request: JobRequest) -> Ask<'_, JobNo> {
        self.submit_once(user, request, None)
    }

    /// The same; if a job came already with this key, its number.
    pub fn submit_once(&self, user: &str, request: JobRequest, key: Option<String>) -> Ask<'_, JobNo> {
        let user = user.to_owned();
        self.ask(move |desk| {
            if let Some(known) = known(desk.book, &user, key.as_ref(), &request)? {
                return Ok(known);
            }
            desk.submit(&user, request, key)
        })
    }

    /// What would become of a job if it were sent now.
    ///
    /// # Errors
    /// When it would be refused.
    pub fn would_come(&self, user: &str, request: &JobRequest) -> Result<Outlook, Refusal> {
        self.read(|book| {
            may_come(book, request)?;
            Ok(book.outlook(user, request))
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
    ) -> Ask<'_, (JobNo, JobNo)> {
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
    ) -> Ask<'_, (JobNo, JobNo, bool)> {
        let user = user.to_owned();
        self.ask(move |desk| {
            let next = desk.book.next_job();
            let (first, last) = match array {
                Some(array) => take_array(desk, &user, request, array, key, true)?,
                None => match known(desk.book, &user, key.as_ref(), &request)? {
                    Some(job) => (job, job),
                    None => {
                        may_come(desk.book, &request)?;
                        let request = Box::new(request.in_parts());
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
    pub fn cancel(&self, job: JobNo, by: &str) -> Ask<'_, ()> {
        let by = by.to_owned();
        self.ask(move |desk| {
            if find(desk.book, job)?.is_over() {
                return Err(Refusal::Conflict(format!("job {job} is over already")));
            }
            desk.record(Fact::Cancelled { job, by });
            Ok(())
        })
    }

    /// Makes a job wait; one that runs is stopped.
    pub fn hold(&self, job: JobNo, by: &str) -> Ask<'_, ()> {
        let by = by.to_owned();
        self.ask(move |desk| {
            if find(desk.book, job)?.is_over() {
                return Err(Refusal::Conflict(format!("job {job} is over already")));
            }
            desk.record(Fact::Held { job, by });
            Ok(())
        })
    }

    /// Lets a job go on that was made to wait.
    pub fn release(&self, job: JobNo, by: &str) -> Ask<'_, ()> {
        let by = by.to_owned();
        self.ask(move |desk| {
            match find(desk.book, job)? {
                JobState::Held(_) | JobState::Stopping(_) => {}
                _ => return Err(Refusal::Conflict(format!("job {job} is not held"))),
            }
            desk.record(Fact::Released { job, by });
            Ok(())
        })
    }

    /// Gives a job that waits another priority.
    pub fn prioritize(&self, job: JobNo, priority: i32, by: &str) -> Ask<'_, ()> {
        let by = by.to_owned();
        self.ask(move |desk| {
            match find(desk.book, job)? {
                JobState::Held(_) | JobState::Queued => {}
                _ => {
                    return Err(Refusal::Conflict(format!(
                        "job {job} does not wait; only a job that waits can have another priority"
                    )));
                }
            }
            let request = desk.book.job(job).map(|record| JobRequest {
                priority,
                ..(*record.request).clone()
            });
            may_be_there(desk.book, &request.unwrap_or_default())?;
            desk.record(Fact::Prioritized { job, priority, by });
            Ok(())
        })
    }

    /// Gives a job a mark, or takes one away.
    pub fn label(&self, job: JobNo, key: &str, value: Option<String>, by: &str) -> Ask<'_, ()> {
        let (key, by) = (key.to_owned(), by.to_owned());
        self.ask(move |desk| {
            find(desk.book, job)?;
            desk.record(Fact::Labelled { job, key, value, by });
            Ok(())
        })
    }

    /// Lets a node take no new jobs, or take them again.
    pub fn set_draining(&self, name: &str, why: Option<String>, by: &str) -> Ask<'_, ()> {
        let (name, by) = (name.to_owned(), by.to_owned());
        self.ask(move |desk| {
            let node = desk
                .book
                .node_named(&name)
                .ok_or_else(|| Refusal::Unknown(format!("there is no node {name:?}")))?;
            let fact = match why {
                Some(why) => Fact::NodeDrained { node, by, why },
                None => Fact::NodeResumed { node, by },
            };
            desk.record(fact);
            Ok(())
        })
    }

    /// Changes how the scheduler works.
    pub fn operate(&self, what: Operate, by: &str) -> Ask<'_, ()> {
        let by = by.to_owned();
        self.ask(move |desk| {
            match &what {
                Operate::Policy(text) => desk.book.would_take_policy(text).map_err(Refusal::Invalid)?,
                Operate::Round(Some(period)) if period.0 <= 0 => {
                    return Err(Refusal::Invalid("round: must be longer than 0".to_owned()));
                }
                Operate::VirtualClusters(clusters) => {
                    desk.book
                        .would_change_clusters(clusters)
                        .map_err(Refusal::Invalid)?;
                }
                Operate::Round(_) | Operate::Pause | Operate::Resume => {}
            }
            desk.record(Fact::Operated { what, by });
            Ok(())
        })
    }

    /// An agent comes, for the first time or again.
    pub fn node_arrives(&self, arrival: Arrival) -> Ask<'_, Admittance> {
        self.ask(move |desk| {
            let name = &arrival.spec.name;
            let known = desk.book.node_named(name);
            let node =
                known.unwrap_or_else(|| dovetail_model::ids::Id::from_index(desk.book.nodes().count()));
            let same = known.and_then(|id| desk.book.node(id)).is_some_and(|n| {
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
            let tasks = desk.book.tasks_on(node);
            Ok(Admittance {
                node,
                keep: tasks.iter().map(|(job, a, _)| (job.no, a.launch)).collect(),
                orders: desk.book.orders_for(node),
            })
        })
    }

    /// An agent that came has told everything it kept. What it should run and does not is lost; the orders that stand.
    pub fn node_settles(&self, node: NodeId, running: Vec<(JobNo, Launch)>) -> Ask<'_, Vec<Order>> {
        self.ask(move |desk| {
            for fact in desk.book.reconcile(node, &running) {
                desk.record(fact);
            }
            Ok(desk.book.orders_for(node))
        })
    }

    /// An agent has not been heard of for so long that its tasks have ended.
    pub fn node_lost(&self, node: NodeId) -> Ask<'_, ()> {
        self.ask(move |desk| {
            desk.record(Fact::NodeLost { node });
            Ok(())
        })
    }

    /// A task runs.
    pub fn task_started(
        &self,
        job: JobNo,
        launch: Launch,
        node: NodeId,
        sharing: String,
        remarks: Vec<String>,
    ) -> Ask<'_, ()> {
        self.ask(move |desk| {
            desk.record(Fact::TaskStarted {
                job,
                launch,
                node,
                sharing,
                remarks,
            });
            Ok(())
        })
    }

    /// A task has ended.
    pub fn task_ended(&self, job: JobNo, launch: Launch, node: NodeId, end: TaskEnd) -> Ask<'_, ()> {
        self.ask(move |desk| {
            desk.record(Fact::TaskEnded {
                job,
                launch,
                node,
                end: Box::new(end),
            });
            Ok(())
        })
    }

    /// A fact that was put together elsewhere, such as progress.
    pub fn tell(&self, fact: Fact) -> Ask<'_, ()> {
        self.ask(move |desk| {
            desk.record(fact);
            Ok(())
        })
    }
}

/// The job that came with this key before.
impl Desk<'_> {
    /// Takes a job in, if it may come; its number.
    ///
    /// # Errors
    /// When it makes no sense, or could never run.
    pub fn submit(&mut self, user: &str, request: JobRequest, key: Option<String>) -> Result<JobNo, Refusal> {
        may_come(self.book, &request)?;
        let job = self.book.next_job();
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
    book: &Book,
    user: &str,
    key: Option<&String>,
    request: &JobRequest,
) -> Result<Option<JobNo>, Refusal> {
    let Some(job) = key.and_then(|key| book.job_of_key(user, key)) else {
        return Ok(None);
    };
    let before = JobRequest {
        array: request.array,
        priority: request.priority,
        ..(*job.request).clone()
    };
    match before == *request {
        true => Ok(Some(job.no)),
        false => Err(Refusal::Conflict(format!(
            "the key was used already, for job {}, which is another one",
            job.no
        ))),
    }
}

fn find(book: &Book, job: JobNo) -> Result<&JobState, Refusal> {
    match book.job(job) {
        Some(record) => Ok(&record.state),
        None => Err(Refusal::Unknown(format!("there is no job {job}"))),
    }
}

/// Whether the virtual cluster of the job is there and takes such jobs.
fn may_be_there(book: &Book, request: &JobRequest) -> Result<(), Refusal> {
    let Some(cluster) = book.clusters().get(&request.tenant) else {
        return Err(Refusal::Invalid(format!(
            "tenant: there is no virtual cluster {:?}; there are {}",
            request.tenant,
            book.clusters().names().join(", ")
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
    book.could_ever_run(request).map_err(Refusal::Invalid)
}

/// Takes in a job for each index; the numbers of the first and the last.
fn take_array(
    desk: &mut Desk<'_>,
    user: &str,
    request: JobRequest,
    (indices, at_most): (Vec<u32>, Option<u32>),
    key: Option<String>,
    in_parts: bool,
) -> Result<(JobNo, JobNo), Refusal> {
    if let Some(first) = known(desk.book, user, key.as_ref(), &request)? {
        return Ok((first, first + indices.len() as u64 - 1));
    }
    may_come(desk.book, &request)?;
    if indices.is_empty() || at_most == Some(0) {
        return Err(Refusal::Invalid(
            "array: at least one index is needed, and room for one at a time".to_owned(),
        ));
    }
    let (array, mut key) = (desk.book.next_job(), key);
    for role in 0..request.roles.len() {
        let first = request.roles[..role].iter().map(|r| r.instances).sum();
        may_come(desk.book, &request.clone().alone(first))?;
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
        let (job, user, key) = (desk.book.next_job(), user.to_owned(), key.take());
        desk.record(match in_parts {
            true => Fact::Announced {
                job,
                user,
                request: Box::new(request.in_parts()),
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
    Ok((array, desk.book.next_job() - 1))
}

/// Whether a job can be taken in: its request makes sense, and the cluster could run it if it were empty.
fn may_come(book: &Book, request: &JobRequest) -> Result<(), Refusal> {
    request.validate().map_err(Refusal::Invalid)?;
    may_be_there(book, request)?;
    for after in &request.after {
        find(book, after.job).map_err(|e| Refusal::Invalid(format!("after: {e}")))?;
    }
    let least = request.min_gpus.unwrap_or(request.gpus);
    let bundle = request.gpus_per_task.max(1);
    let admits = |id| {
        let node = book.engine.cluster().node(id);
        request.fence.is_none() || node.is_some_and(|n| n.admits(request.fence))
    };
    let fits = |n: &crate::book::NodeRecord| {
        request.gpu_type.as_ref().is_none_or(|kind| *kind == n.gpu_type)
            && n.spec.has_gpu_memory(request.gpu_memory_mib)
            && n.spec.cpu_milli >= (request.cpus_per_gpu * 1000.0) as u32
            && n.spec.memory_mib >= request.memory_mib_per_gpu
    };
    let up = || {
        let nodes = book.nodes().filter(|(id, _)| admits(*id));
        nodes.map(|(_, n)| n).filter(|n| n.state != NodeState::Lost)
    };
    let (mut any, mut there, mut bundles) = (false, 0, 0);
    for node in up() {
        any = true;
        if fits(node) {
            there += node.spec.gpus;
            bundles += node.spec.gpus / bundle;
        }
        // Most jobs are small beside the cluster.
        if there >= least && bundles >= least / bundle {
            return Ok(());
        }
    }
    if !any {
        return Ok(());
    }
    if there >= least && bundles < least / bundle {
        let widest = up().map(|n| n.spec.gpus).max().unwrap_or(0);
        return Err(Refusal::Invalid(format!(
            "gpus: asks for {} times {bundle} GPUs of one node each, but this cluster has room for {bundles}; its largest \
             node has {widest} GPUs",
            least / bundle
        )));
    }
    if there < least {
        let all: u32 = up().map(|n| n.spec.gpus).sum();
        return Err(Refusal::Invalid(format!(
            "gpus: asks for {least}, but of the {all} GPUs of this cluster {there} would do; ask for fewer, for \
             another gpu_type, or for less CPU and memory"
        )));
    }
    Ok(())
}
