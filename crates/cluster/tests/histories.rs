//! Random histories of users, agents and failures: no job is lost or runs twice, no GPU is allocated twice, and the same
//! facts give the same state.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dovetail_cluster::state::{Hold, JobState, NodeState};
use dovetail_cluster::{
    Actor, After, AfterWhen, AttemptId, ClusterState, Entry, Fact, GuaranteeMode, JobId, JobRequest,
    OperatorAction, PolicyText, Record, Retries, RuntimeCommand, TaskEnd, VirtualCluster, VirtualClusters,
};
use dovetail_engine::Clock;
use dovetail_model::{NodeId, NodeSpec, Time};
use proptest::prelude::*;

const NODES: u32 = 3;
const GPUS: u32 = 4;

#[derive(Debug, Clone)]
struct Task {
    attempt: AttemptId,
    gpus: Vec<u32>,
    is_stopping: bool,
}

/// An agent that follows the protocol.
#[derive(Debug, Default)]
struct Agent {
    connected: bool,
    tasks: BTreeMap<JobId, Task>,
    newest: BTreeMap<JobId, AttemptId>,
    /// Facts that are not acknowledged.
    outbox: VecDeque<Fact>,
    /// Commands that were sent and not received yet.
    inbox: VecDeque<RuntimeCommand>,
}

impl Agent {
    /// Closes the connection; commands that were not received are lost.
    fn disconnect(&mut self) {
        self.connected = false;
        self.inbox.clear();
    }
}

#[derive(Debug)]
struct World {
    state: ClusterState,
    records: Vec<Record>,
    agents: Vec<Agent>,
    now: Time,
}

#[derive(Debug, Clone)]
enum Step {
    Submit {
        gpus: u32,
        user: u32,
        platform: u32,
        limit: bool,
        after: Option<(u8, u8)>,
        hold: bool,
    },
    Cancel(u8),
    Hold(u8),
    Release(u8),
    Deliver(u8),
    Start(u8),
    Finish(u8, u8, bool),
    Report(u8, bool),
    Disconnect(u8),
    Connect(u8),
    Lose(u8),
    Forget(u8),
    Drain(u8),
    Resume(u8),
    OperatorAction(u8),
    Clusters(u8),
    Prioritize(u8, i8),
    Crash(bool),
    Pass(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..=10u32, 0..3u32, 0..3u32, any::<bool>(), prop::option::of((any::<u8>(), 0..3u8)), prop::bool::weighted(0.1))
            .prop_map(|(gpus, user, platform, limit, after, hold)| Step::Submit { gpus, user, platform, limit, after, hold }),
        1 => any::<u8>().prop_map(Step::Cancel),
        1 => any::<u8>().prop_map(Step::Hold),
        2 => any::<u8>().prop_map(Step::Release),
        12 => any::<u8>().prop_map(Step::Deliver),
        8 => any::<u8>().prop_map(Step::Start),
        8 => (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(a, b, c)| Step::Finish(a, b, c)),
        12 => (any::<u8>(), prop::bool::weighted(0.2)).prop_map(|(a, b)| Step::Report(a, b)),
        1 => any::<u8>().prop_map(Step::Disconnect),
        2 => any::<u8>().prop_map(Step::Connect),
        1 => any::<u8>().prop_map(Step::Lose),
        1 => any::<u8>().prop_map(Step::Forget),
        1 => any::<u8>().prop_map(Step::Drain),
        1 => any::<u8>().prop_map(Step::Resume),
        1 => any::<u8>().prop_map(Step::OperatorAction),
        1 => any::<u8>().prop_map(Step::Clusters),
        1 => (any::<u8>(), -2..3i8).prop_map(|(a, b)| Step::Prioritize(a, b)),
        1 => any::<bool>().prop_map(Step::Crash),
        4 => any::<u16>().prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..200)
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            state: ClusterState::new(PolicyText::default(), Clock::Events).unwrap(),
            records: Vec::new(),
            agents: (0..NODES).map(|_| Agent::default()).collect(),
            now: Time::from_secs(1_000_000),
        };
        (0..NODES as usize).for_each(|i| world.connect(i));
        world
    }

    fn record(&mut self, fact: Fact) {
        self.keep_decisions();
        let record = self.keep(Entry::Fact(fact));
        let Entry::Fact(fact) = &record.entry else {
            panic!("{record:?}")
        };
        self.state.apply(record.at, fact);
        self.keep_decisions();
        self.state.check().unwrap();
        self.send_commands();
    }

    /// Keeps an entry as it would be read from the journal.
    fn keep(&mut self, entry: Entry) -> Record {
        let record = Record { at: self.now, entry };
        let record: Record = serde_json::from_slice(&serde_json::to_vec(&record).unwrap()).unwrap();
        self.records.push(record.clone());
        record
    }

    fn keep_decisions(&mut self) {
        for decision in self.state.take_decisions() {
            self.keep(Entry::Decision(decision));
        }
    }

    /// Sends commands; those to disconnected agents are lost.
    fn send_commands(&mut self) {
        for (node, command) in self.state.take_commands() {
            let agent = &mut self.agents[node.0 as usize];
            if agent.connected {
                agent.inbox.push_back(command);
            }
        }
    }

    fn connect(&mut self, i: usize) {
        if self.agents[i].connected {
            return;
        }
        let node = NodeId(i as u32);
        let lost = self.state.node(node).is_none_or(|n| n.state == NodeState::Lost);
        if lost {
            self.record(Fact::NodeJoined {
                node,
                spec: Box::new(NodeSpec::plain(format!("node-{i}"), GPUS)),
                gpu_type: "virtual".to_owned(),
                rack: "rack".to_owned(),
                address: format!("10.0.0.{i}"),
                identity: i as u64,
            });
        }
        self.agents[i].connected = true;
        let keep: Vec<(JobId, AttemptId)> = self
            .state
            .tasks_on(node)
            .iter()
            .map(|(job, a, _)| (job.id, a.id))
            .collect();
        let agent = &mut self.agents[i];
        agent.inbox.clear();
        agent
            .tasks
            .retain(|job, task| keep.contains(&(*job, task.attempt)));
        // The agent first sends the facts it kept, then the tasks it runs.
        while let Some(fact) = self.agents[i].outbox.pop_front() {
            self.record(fact);
        }
        let running: Vec<(JobId, AttemptId)> = self.agents[i]
            .tasks
            .iter()
            .map(|(j, t)| (*j, t.attempt))
            .collect();
        for fact in self.state.reconcile(node, &running) {
            self.record(fact);
        }
        let commands = self.state.commands_for(node);
        self.agents[i].inbox.extend(commands);
    }

    fn deliver(&mut self, i: usize) {
        let agent = &mut self.agents[i];
        let Some(command) = agent.inbox.pop_front() else {
            return;
        };
        match command {
            RuntimeCommand::Start(start) => {
                let newest = agent.newest.entry(start.job).or_default();
                if start.attempt > *newest {
                    *newest = start.attempt;
                    let gpus: Vec<u32> = start.share.gpus.iter().collect();
                    for (other, task) in &agent.tasks {
                        assert!(
                            task.gpus.iter().all(|slot| !gpus.contains(slot)),
                            "jobs {other} and {} on one GPU",
                            start.job
                        );
                    }
                    let task = Task {
                        attempt: start.attempt,
                        gpus,
                        is_stopping: false,
                    };
                    assert!(
                        agent.tasks.insert(start.job, task).is_none(),
                        "job {} twice",
                        start.job
                    );
                    agent.outbox.push_back(Fact::TaskStarted {
                        job: start.job,
                        attempt: start.attempt,
                        node: NodeId(i as u32),
                        sharing: String::new(),
                        remarks: Vec::new(),
                    });
                }
            }
            RuntimeCommand::Stop {
                job,
                attempt: attempt_id,
                ..
            } => {
                let known = agent.newest.get(&job).copied().unwrap_or(0);
                match agent.tasks.get_mut(&job).filter(|t| t.attempt == attempt_id) {
                    Some(task) => task.is_stopping = true,
                    // The command to stop arrived before the one to start: the task is never started.
                    None if known < attempt_id => {
                        agent.newest.insert(job, attempt_id);
                        agent.outbox.push_back(ended(job, attempt_id, i, 0, true));
                    }
                    None => {}
                }
            }
            // Limits do not affect which tasks exist.
            RuntimeCommand::Resize { .. } => {}
        }
        let mut seen: BTreeMap<JobId, AttemptId> = BTreeMap::new();
        for (job, task) in self.agents.iter().flat_map(|a| &a.tasks) {
            let first = *seen.entry(*job).or_insert(task.attempt);
            assert_eq!(first, task.attempt, "two attempts of job {job} at once");
        }
    }

    fn finish(&mut self, i: usize, pick: u8, code: i32) {
        let agent = &mut self.agents[i];
        let Some((job, task)) = nth(&agent.tasks, pick) else {
            return;
        };
        agent.tasks.remove(&job);
        let code = if task.is_stopping { 0 } else { code };
        agent
            .outbox
            .push_back(ended(job, task.attempt, i, code, task.is_stopping));
    }

    fn report(&mut self, i: usize, twice: bool) {
        if !self.agents[i].connected {
            return;
        }
        let Some(fact) = self.agents[i].outbox.pop_front() else {
            return;
        };
        if twice {
            self.record(fact.clone());
        }
        self.record(fact);
    }

    fn pass(&mut self, seconds: u16) {
        self.now += Time::from_secs(i64::from(seconds));
        while let Some(fact) = self.state.due(self.now).into_iter().next() {
            self.record(fact);
        }
    }

    fn crash(&mut self, from_snapshot: bool) {
        let saved = self.state.save().unwrap();
        self.state = if from_snapshot {
            ClusterState::load(&saved).unwrap()
        } else {
            replay(&self.records)
        };
        self.state.take_commands();
        assert_eq!(
            text(&self.state.save().unwrap()),
            text(&saved),
            "a restart gives the same state"
        );
        self.state.check().unwrap();
        self.record(Fact::Woke);
        for i in 0..self.agents.len() {
            let was = std::mem::take(&mut self.agents[i].connected);
            if was {
                self.connect(i);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let agent = |i: &u8| usize::from(*i) % NODES as usize;
        let node = |i: &u8| NodeId(u32::from(*i) % NODES);
        let by = || Actor::user("ann");
        let last = self.state.next_job() - 1;
        let job = |i: &u8| u64::from(*i) % last.max(1) + 1;
        match step {
            Step::Submit {
                gpus,
                user,
                platform,
                limit,
                after,
                hold,
            } => {
                let request = JobRequest {
                    command: vec!["true".to_owned()],
                    gpus: *gpus,
                    tenant: ["default", "a", "b"][(last % 3) as usize].to_owned(),
                    priority: [0, 0, -1][(last / 3 % 3) as usize],
                    time_limit: limit.then_some(Time::from_secs(500)),
                    retries: Retries {
                        user: *user,
                        platform: *platform,
                        node: 1,
                    },
                    after: after
                        .iter()
                        .filter(|_| last > 0)
                        .map(|(i, when)| After {
                            job: job(i),
                            when: [AfterWhen::Ok, AfterWhen::Any, AfterWhen::NotOk][usize::from(*when)],
                        })
                        .collect(),
                    hold: *hold,
                    ..JobRequest::default()
                };
                self.record(Fact::Submitted {
                    job: last + 1,
                    user: "ann".to_owned(),
                    request: Arc::new(request),
                    key: None,
                });
            }
            Step::Cancel(i) => self.record(Fact::Cancelled {
                job: job(i),
                by: by(),
            }),
            Step::Hold(i) => self.record(Fact::Held {
                job: job(i),
                by: by(),
            }),
            Step::Release(i) => self.record(Fact::Released {
                job: job(i),
                by: by(),
            }),
            Step::Deliver(i) => self.deliver(agent(i)),
            Step::Start(i) => self.deliver(agent(i)),
            Step::Finish(i, pick, well) => self.finish(agent(i), *pick, i32::from(!well)),
            Step::Report(i, twice) => self.report(agent(i), *twice),
            Step::Disconnect(i) => self.agents[agent(i)].disconnect(),
            Step::Connect(i) => self.connect(agent(i)),
            Step::Lose(i) => {
                // The agent has ended its tasks by now.
                let lost = &mut self.agents[agent(i)];
                lost.disconnect();
                lost.tasks.clear();
                self.record(Fact::NodeLost { node: node(i) });
            }
            Step::Forget(i) => {
                // The machine was rebooted: nothing runs, and the agent does not know what did.
                let rebooted = &mut self.agents[agent(i)];
                rebooted.tasks.clear();
                rebooted.disconnect();
            }
            Step::Drain(i) => self.record(Fact::NodeDrained {
                node: node(i),
                by: by(),
                reason: "test".to_owned(),
            }),
            Step::Resume(i) => self.record(Fact::NodeResumed {
                node: node(i),
                by: by(),
            }),
            Step::OperatorAction(i) => {
                let policies = ["fifo", "srtf", "las:quantum=30s", "tiresias", "fifo-easy"];
                let action = match i % 8 {
                    n @ 0..5 => OperatorAction::Policy(PolicyText {
                        policy: policies[usize::from(n)].to_owned(),
                        parts: BTreeMap::new(),
                    }),
                    5 => OperatorAction::Pause,
                    6 => OperatorAction::Resume,
                    _ => OperatorAction::Round((i % 16 == 7).then_some(Time::from_secs(60))),
                };
                self.record(Fact::Operated { action, by: by() });
            }
            Step::Clusters(i) => self.record(Fact::Operated {
                action: OperatorAction::VirtualClusters(Box::new(clusters(*i))),
                by: by(),
            }),
            Step::Prioritize(i, priority) => self.record(Fact::Prioritized {
                job: job(i),
                priority: i32::from(*priority),
                by: by(),
            }),
            Step::Crash(from_snapshot) => self.crash(*from_snapshot),
            Step::Pass(seconds) => self.pass(*seconds),
        }
    }

    /// Continues without failures until all jobs that can end have ended.
    fn finish_all(&mut self) {
        for action in [
            OperatorAction::Resume,
            OperatorAction::VirtualClusters(Box::default()),
        ] {
            let by = Actor::user("ann");
            self.record(Fact::Operated { action, by });
        }
        for i in 0..NODES {
            self.connect(i as usize);
            self.record(Fact::NodeResumed {
                node: NodeId(i),
                by: Actor::user("ann"),
            });
        }
        for _ in 0..10_000 {
            for i in 0..NODES as usize {
                while !self.agents[i].inbox.is_empty() {
                    self.deliver(i);
                }
                while !self.agents[i].tasks.is_empty() {
                    self.finish(i, 0, 0);
                }
                while !self.agents[i].outbox.is_empty() {
                    self.report(i, false);
                }
            }
            if self.state.jobs().all(|job| is_settled(&self.state, job.id)) {
                return;
            }
            self.pass(61);
        }
        let open: Vec<_> = self.state.jobs().filter(|j| !j.state.has_ended()).collect();
        panic!("jobs that never end: {open:#?}");
    }
}

/// Returns open virtual clusters, quotas with a user limit, or cells that one machine is not part of.
fn clusters(i: u8) -> VirtualClusters {
    let cluster = |guaranteed_gpus: u32, user_cap_gpus: Option<u32>| VirtualCluster {
        guaranteed_gpus,
        user_cap_gpus,
        most_borrowed: i.is_multiple_of(2).then_some(3),
        ..VirtualCluster::default()
    };
    let mut named = [
        ("default", cluster(4, None)),
        ("a", cluster(4, Some(6))),
        ("b", cluster(2, None)),
    ];
    // A virtual cluster may have an order of its own.
    named[1].1.order = ["las", "srtf", "tiresias"]
        .get(usize::from(i / 4 % 4))
        .map(|o| (*o).to_owned());
    let named = named.map(|(name, c)| (name.to_owned(), c)).into_iter().collect();
    match i % 4 {
        0 => VirtualClusters::default(),
        1 | 2 => VirtualClusters {
            mode: GuaranteeMode::Quota,
            named,
            cells: None,
        },
        _ => VirtualClusters {
            mode: GuaranteeMode::Cells,
            named: BTreeMap::new(),
            cells: Some(serde_json::from_value(cells()).unwrap()),
        },
    }
}

fn cells() -> serde_json::Value {
    let machine =
        |name: &str| serde_json::json!({"cell_type": null, "address": name, "pinned": null, "children": []});
    let cluster = |number: u32| {
        serde_json::json!({
            "cells": [{"path": "POOL.NODE", "number": number}], "pinned": [], "leaves_per_user": null, "user_limits": {}
        })
    };
    serde_json::json!({
        "cell_types": {
            "NODE": {"child": "virtual", "children": GPUS, "is_node": true},
            "POOL": {"child": "NODE", "children": 2, "is_node": false},
        },
        "sku_types": {},
        "physical_cells": [{
            "cell_type": "POOL", "address": null, "pinned": null, "children": [machine("node-0"), machine("node-1")]
        }],
        "virtual_clusters": {"a": cluster(1), "default": cluster(1)},
    })
}

fn ended(job: JobId, attempt_id: AttemptId, i: usize, exit_code: i32, was_stopped: bool) -> Fact {
    Fact::TaskEnded {
        job,
        attempt: attempt_id,
        node: NodeId(i as u32),
        end: Box::new(TaskEnd {
            exit_code,
            was_stopped,
            ..TaskEnd::default()
        }),
    }
}

fn nth(tasks: &BTreeMap<JobId, Task>, pick: u8) -> Option<(JobId, Task)> {
    let at = usize::from(pick).checked_rem(tasks.len())?;
    tasks.iter().nth(at).map(|(job, task)| (*job, task.clone()))
}

/// Returns whether a job has ended or waits for a user.
fn is_settled(state: &ClusterState, id: JobId) -> bool {
    match &state.job(id).unwrap().state {
        JobState::Ended(_) | JobState::Held(Hold::User(_)) => true,
        JobState::Held(Hold::After(others)) => others.iter().any(|o| is_settled(state, *o)),
        _ => false,
    }
}

/// Checks that every alternative starts at once if it is submitted instead of the queued job.
fn check_alternatives(state: &ClusterState) {
    let clusters: Vec<String> = ["default", "a", "b"].map(str::to_owned).to_vec();
    let waiting = state
        .jobs()
        .filter(|job| job.state == JobState::Queued)
        .map(|job| job.id);
    for id in waiting.take(5) {
        for alternative in state.alternatives(id, &clusters) {
            let mut changed = state.clone();
            let mut request = (*state.job(id).unwrap().request).clone();
            match alternative.change.as_str() {
                "gpus" => request.gpus = alternative.to.parse().unwrap(),
                "tenant" => request.tenant = alternative.to.clone(),
                "priority" => request.priority = alternative.to.parse().unwrap(),
                other => panic!("{other}"),
            }
            request.after.clear();
            request.hold = false;
            let by = Actor::user("ann");
            changed.apply(
                state.now(),
                &Fact::Cancelled {
                    job: id,
                    by: by.clone(),
                },
            );
            let job = changed.next_job();
            let fact = Fact::Submitted {
                job,
                user: "ann".to_owned(),
                request: Arc::new(request),
                key: None,
            };
            changed.apply(state.now(), &fact);
            let state = &changed.job(job).unwrap().state;
            assert_eq!(*state, JobState::Starting, "{alternative:?}");
        }
    }
}

fn replay(records: &[Record]) -> ClusterState {
    let mut state = ClusterState::replaying(PolicyText::default(), Clock::Events).unwrap();
    for record in records {
        match &record.entry {
            Entry::Fact(fact) => state.apply(record.at, fact),
            Entry::Decision(decision) => state.apply_recorded(record.at, decision),
        }
    }
    state.attach_engine().unwrap();
    state
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_job_is_lost_and_none_runs_twice(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        check_alternatives(&world.state);
        let saved = world.state.save().unwrap();
        prop_assert_eq!(text(&replay(&world.records).save().unwrap()), text(&saved));
        world.finish_all();
    }
}
