//! The same world under every preset, in the simulator and on Kubernetes: equal commands at equal times, or the declared
//! refusal.
//!
//! The simulator runs the world and records every event that it reports to the engine. Each event then reaches the
//! reconciler as what the API server would show: pods that are created, bound, running, deleted or done, and progress reports.
//! Requests of the reconciler are carried out at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/resized.rs"]
mod resized;
#[path = "support/transaction.rs"]
mod transaction;

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use dovetail_cluster::{Clock, ClusterState, Decision, Fact, JobId, PolicyText, RuntimeCommand};
use dovetail_engine::Knowledge;
use dovetail_kube::{
    Action, Bind, ClusterFeatures, ClusterTransaction as _, PodProgress, Reconciler, ResizePod, Settings,
};
use dovetail_kubeapi::{Node, Pod, cpu_milli, seconds_time};
use dovetail_model::{ClusterSpec, Event, JobKey, Outcome, Time, Work};
use dovetail_policies::{Overrides, build, check_runtime, presets};
use dovetail_sim::{Journal, SimConfig, simulate_with};
use dovetail_testkit::{CommandLine, assert_same_commands, command_line, draws, place_text};
use dovetail_workload::{JobLabel, TraceJob, Workload};
use resized::resized;
use serde_json::json;
use transaction::TestTransaction;

/// Start of the simulated time, in microseconds since 1970.
const START: i64 = 1_794_873_600_000_000;
/// Duration of a step, in microseconds: as short as time is exact, because leases of `themis` follow from the work that is done.
const STEP_US: u64 = 1;
const NODES: u32 = 2;
const GPUS: u32 = 4;
const MODELS: [&str; 3] = ["vgg", "bert", "dqn"];

/// Returns jobs with distinct times of submission, in whole seconds like those of pods.
fn world() -> Workload {
    let mut workload = Workload {
        source: "conformance".to_owned(),
        ..Workload::default()
    };
    let models = MODELS.map(|name| workload.names.models.push(name.to_owned()));
    let mut next = draws();
    let mut at = 0;
    for i in 0..30 {
        at += 30 + next(1_500);
        let gpus = [1, 1, 1, 2, 2, 4, 8][next(7) as usize];
        // Fractions of a second keep ends and arrivals apart.
        let work = Work((200 + next(25_000)) * 1_000_000 + (i + 1) * 10_000);
        let submit = Time::from_secs(i64::try_from(at).unwrap());
        let mut job = TraceJob::new(JobLabel::Number(i), submit, work, gpus);
        job.model = Some(models[next(3) as usize]);
        job.expected_us = NonZeroU64::new(work.0 / 1_000_000 * 1_000_000);
        (job.cpu_milli_per_gpu, job.memory_mib_per_gpu) = (1_000 + 1_000 * next(3) as u32, 1_024);
        workload.jobs.push(job);
    }
    workload
}

/// Runs the world in the simulator. Returns the events and the commands.
fn simulate(case: Case) -> (Vec<(Time, Event)>, Vec<CommandLine>) {
    let overrides = Overrides {
        admission: Some("accept-all".to_owned()),
        ..overrides(case)
    };
    let (policy, _) = build(case.0, &overrides).unwrap();
    let needs = policy.knowledge();
    let mut cluster = ClusterSpec::uniform(NODES, GPUS);
    for node in cluster.nodes.values_mut() {
        (node.cpu_milli, node.memory_mib) = (16_000, 65_536);
    }
    let config = SimConfig {
        knowledge: Some(Knowledge::Estimate),
        ..SimConfig::new(cluster)
    };
    let mut journal = Journal::default();
    simulate_with(&world(), policy, needs, &config, Some(&mut journal), &mut |_| {}).unwrap();
    let commands = journal.commands.iter().map(command_line).collect();
    (journal.events, commands)
}

fn cpu_of(pod: &Pod) -> u32 {
    cpu_milli(&pod.spec.containers[0].resources.limits["cpu"]).unwrap()
}

/// Objects of an API server, and a scheduler that sees them.
struct Kubernetes {
    state: ClusterState,
    reconciler: Reconciler,
    world: Workload,
    /// Pods by uid.
    pods: BTreeMap<String, Pod>,
    made: u32,
    now: i64,
    commands: Vec<CommandLine>,
    /// Number of requests to resize a pod.
    resized: u32,
}

fn gang_of(job: JobKey) -> String {
    format!("job-{}", job.0)
}

impl Kubernetes {
    fn new(case: Case, features: ClusterFeatures) -> Self {
        let state = ClusterState::new(policy_text(case), Clock::Events).unwrap();
        Self {
            state: state.on(features.capabilities()).unwrap(),
            reconciler: Reconciler::new(Settings::default(), features),
            world: world(),
            pods: BTreeMap::new(),
            made: 0,
            now: START,
            commands: Vec::new(),
            resized: 0,
        }
    }

    /// Lets the reconciler see something, and carries out everything that follows.
    fn show(&mut self, see: &dyn Fn(&mut Reconciler, &mut TestTransaction<'_>)) {
        let now = Time(self.now);
        let (state, reconciler) = (&mut self.state, &mut self.reconciler);
        see(reconciler, &mut TestTransaction { state, now });
        self.state.check().unwrap();
        for decision in self.state.take_decisions() {
            let text = match &decision {
                Decision::Launch { job, allocation, .. } => {
                    format!("launch {} on {}", job - 1, place_text(allocation))
                }
                Decision::Stop { job, .. } => format!("stop {}", job - 1),
                Decision::Reject { job, .. } => format!("reject {}", job - 1),
                Decision::Resize { job, allocation, .. } => {
                    format!("resize {} to {}", job - 1, place_text(allocation))
                }
                other => panic!("unexpected decision {other:?}"),
            };
            self.commands.push((Time(self.now - START), text));
        }
        let mut started: Vec<JobId> = Vec::new();
        for (_, command) in self.state.take_commands() {
            match command {
                RuntimeCommand::Start(task) if !started.contains(&task.job) => {
                    started.push(task.job);
                    self.show(&|reconciler, tx| reconciler.start(task.job, task.attempt, tx));
                }
                RuntimeCommand::Stop { job, attempt, .. } => {
                    self.show(&|reconciler, tx| reconciler.stop(job, attempt, tx));
                }
                RuntimeCommand::Start(_) => {}
                RuntimeCommand::Resize { job, .. } => {
                    self.show(&|reconciler, tx| reconciler.resize(job, tx));
                }
            }
        }
        for action in self.reconciler.take_actions() {
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Launch { plan, binds, .. } => {
                if let Some((first, plan)) = plan {
                    let mut pod = self.pods[&first.uid].clone();
                    let annotations = &mut pod.metadata.annotations;
                    annotations.insert("dovetail.io/plan".to_owned(), plan);
                    self.put(pod);
                }
                binds.into_iter().for_each(|bind| self.bind(bind));
            }
            Action::Remove { pod, .. } => {
                if let Some(mut pod) = self.pods.get(&pod.uid).cloned() {
                    pod.metadata.deletion_timestamp = Some(seconds_time(self.now));
                    self.put(pod);
                }
            }
            Action::LookUpSize { gang, .. } => {
                let number: usize = gang.name["job-".len()..].parse().unwrap();
                let size = self.world.jobs[number].gpus;
                self.show(&|reconciler, tx| reconciler.set_size(&gang, Ok(size), tx));
            }
            Action::Resize(resize) => self.resize(&resize),
            Action::SaveHistory { then, .. } => then.into_iter().for_each(|next| self.carry_out(next)),
            Action::DeleteHistory { .. }
            | Action::StopOwner { .. }
            | Action::Explain { .. }
            | Action::GroupStatus { .. } => {}
            Action::Warn { message, .. } => panic!("{message}"),
        }
    }

    /// Changes a pod, whose node does it at once.
    fn resize(&mut self, resize: &ResizePod) {
        self.resized += 1;
        self.put(resized(&self.pods[&resize.pod.uid], resize));
        let (uid, target) = (resize.pod.uid.clone(), resize.target);
        self.show(&|reconciler, tx| reconciler.resized(&uid, target, Ok(()), tx));
    }

    /// Checks that pods have what their jobs were given, and that no node has pods with more than it has.
    fn check_amounts(&self) {
        let mut on_nodes: BTreeMap<&str, u32> = BTreeMap::new();
        for job in self.state.unfinished_jobs().filter(|job| job.state.holds_gpus()) {
            let given = &job.attempt().unwrap().allocation;
            for share in &given.shares {
                let node = format!("n{}", share.node.0);
                let pods = self.bound_pods(JobKey(u32::try_from(job.id).unwrap() - 1));
                let pods: Vec<Pod> = pods.into_iter().filter(|p| p.spec.node_name == node).collect();
                let cpu: u32 = pods.iter().map(cpu_of).sum();
                if pods.len() == share.gpus.count() as usize {
                    let rounding = share.gpus.count();
                    let expected = share.cpu_milli.saturating_sub(rounding)..=share.cpu_milli;
                    assert!(expected.contains(&cpu), "job {}: {cpu}m of {expected:?}", job.id);
                }
            }
        }
        for pod in self
            .pods
            .values()
            .filter(|p| !p.spec.node_name.is_empty() && p.status.phase != "Succeeded")
        {
            *on_nodes.entry(&pod.spec.node_name).or_default() += cpu_of(pod);
        }
        for (node, cpu) in on_nodes {
            assert!(cpu <= 16_000, "pods on {node} have {cpu}m");
        }
    }

    fn bind(&mut self, bind: Bind) {
        if let Some(resize) = &bind.resize {
            self.resize(resize);
        }
        let mut pod = self.pods[&bind.pod.uid].clone();
        assert!(pod.spec.node_name.is_empty(), "{} is bound twice", bind.pod);
        pod.spec.node_name = bind.node;
        for (key, value) in bind.annotations {
            pod.metadata.annotations.insert(key.to_owned(), value);
        }
        self.put(pod);
    }

    fn put(&mut self, pod: Pod) {
        self.pods.insert(pod.metadata.uid.clone(), pod.clone());
        self.show(&|reconciler, tx| reconciler.put_pod(&pod, tx));
    }

    /// Creates the pods of a job, as its controller does: one for each GPU. They name no model, because a live cluster learns from
    /// reports how fast models are, and the simulator does not.
    fn create_pods(&mut self, job: JobKey) {
        let traced = self.world.jobs[job.0 as usize].clone();
        let expected = traced.expected().unwrap().0;
        for _ in 0..traced.gpus {
            self.made += 1;
            let (i, gang) = (self.made, gang_of(job));
            let pod = json!({
                "metadata": {
                    "name": format!("{gang}-{i}"), "namespace": "ns", "uid": format!("uid-{i:05}"),
                    "creationTimestamp": seconds_time(self.now),
                    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": gang, "uid": gang, "controller": true}],
                    "annotations": {
                        "dovetail.io/expected-seconds": (expected / 1_000_000).to_string(),
                        "dovetail.io/total-steps": (expected / STEP_US).to_string(),
                    },
                },
                "status": {"phase": "Pending"},
                "spec": {
                    "schedulerName": "dovetail", "priority": 0,
                    "containers": [{"name": "c", "resources": {"limits": {
                        "nvidia.com/gpu": "1", "cpu": format!("{}m", traced.cpu_milli_per_gpu), "memory": "1Gi",
                    }}}],
                },
            });
            self.put(serde_json::from_value(pod).unwrap());
        }
    }

    /// Returns the pods of a job that are bound and have not ended.
    fn bound_pods(&self, job: JobKey) -> Vec<Pod> {
        let gang = gang_of(job);
        let is_of = |pod: &&Pod| pod.metadata.controller().is_some_and(|owner| owner.name == gang);
        let pods = self.pods.values().filter(is_of);
        let bound = pods.filter(|pod| !pod.spec.node_name.is_empty() && pod.status.phase != "Succeeded");
        bound.cloned().collect()
    }

    /// Writes progress reports of all pods of a job.
    fn report_steps(&mut self, job: JobKey, done: Work, step_us: u64, checkpoint: bool) {
        let total = self.world.jobs[job.0 as usize].expected().unwrap().0 / STEP_US;
        let step = done.0 / STEP_US;
        for pod in self.bound_pods(job) {
            let meta = &pod.metadata;
            let report: PodProgress = serde_json::from_value(json!({
                "metadata": {"name": meta.name, "namespace": meta.namespace},
                "spec": {"podUid": meta.uid, "step": step, "totalSteps": total, "stepUs": step_us,
                    "checkpoint": if checkpoint { step } else { 0 }, "at": self.now},
            }))
            .unwrap();
            self.show(&|reconciler, tx| reconciler.put_progress(&report, tx));
        }
    }

    /// Shows an event as the API server does.
    fn report(&mut self, at: Time, event: &Event) {
        self.now = START + at.0;
        match event {
            Event::NodeUp { node, .. } => {
                let amounts =
                    json!({"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": GPUS.to_string(), "pods": "110"});
                let object = json!({"metadata": {"name": format!("n{}", node.0)}, "status": {"capacity": amounts,
                    "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}});
                let object: Node = serde_json::from_value(object).unwrap();
                self.show(&|reconciler, tx| reconciler.put_node(&object, tx));
            }
            Event::Submitted(spec) => self.create_pods(spec.id),
            Event::Started { job, .. } => {
                for mut pod in self.bound_pods(*job) {
                    pod.status.phase = "Running".to_owned();
                    pod.status.start_time = Some(seconds_time(self.now));
                    self.put(pod);
                }
            }
            Event::Progressed { job, done, rate, .. } => {
                let step_us = STEP_US * 1_000_000 / u64::from(rate.0.max(1));
                self.report_steps(*job, *done, step_us, false);
            }
            Event::Stopped { job, done, .. } => {
                self.report_steps(*job, *done, STEP_US, true);
                for pod in self.bound_pods(*job) {
                    assert!(
                        pod.metadata.deletion_timestamp.is_some(),
                        "{at:?}: job {} is not evicted; last {:?}",
                        job.0,
                        self.commands.last()
                    );
                    self.pods.remove(&pod.metadata.uid);
                    self.show(&|reconciler, tx| reconciler.delete_pod(&pod, tx));
                }
                self.create_pods(*job);
            }
            Event::Exited {
                job,
                outcome: Outcome::Completed,
                ..
            } => {
                for mut pod in self.bound_pods(*job) {
                    pod.status.phase = "Succeeded".to_owned();
                    self.put(pod);
                }
            }
            Event::Wake => self.show(&|_, tx| tx.record(Fact::Woke)),
            other => panic!("unexpected event {other:?}"),
        }
    }
}

/// Runs a policy on both, and returns the numbers of commands and of requests to resize a pod.
fn check(case: Case) -> (usize, u32) {
    let (events, simulated) = simulate(case);
    let mut kubernetes = Kubernetes::new(case, ClusterFeatures::ALL);
    kubernetes.show(&|reconciler, tx| {
        reconciler.list_nodes(&[], tx);
        reconciler.list_pods(&[], tx);
    });
    let mut next = 0;
    for (at, event) in &events {
        // What was decided in the simulator before must have been decided here.
        while let Some(missing) = simulated.get(next).filter(|(before, _)| before < at) {
            let found = kubernetes.commands.contains(missing);
            assert!(
                found,
                "missing {missing:?}; last {:?}",
                kubernetes.commands.last()
            );
            next += 1;
        }
        kubernetes.report(*at, event);
        kubernetes.check_amounts();
    }
    let resized = kubernetes.resized;
    (assert_same_commands(kubernetes.commands, simulated), resized)
}

/// A preset, and the sizing that replaces its own.
type Case = (&'static str, Option<&'static str>);

fn policy_text((preset, sizing): Case) -> PolicyText {
    let part = |sizing: &str| ("sizing".to_owned(), sizing.to_owned());
    PolicyText {
        policy: preset.to_owned(),
        parts: sizing.map(part).into_iter().collect(),
    }
}

fn overrides((_, sizing): Case) -> Overrides {
    Overrides {
        sizing: sizing.map(str::to_owned),
        ..Overrides::default()
    }
}

/// Checks that a cluster refuses a policy as declared; returns whether it does.
fn is_refused(case: Case, features: ClusterFeatures) -> bool {
    let (policy, _) = build(case.0, &overrides(case)).unwrap();
    let state = ClusterState::new(policy_text(case), Clock::Events).unwrap();
    let capabilities = features.capabilities();
    match check_runtime(&policy, &capabilities) {
        Ok(()) => {
            state.on(capabilities).unwrap();
            false
        }
        Err(unsupported) => {
            let refusal = state.on(capabilities).unwrap_err().to_string();
            assert_eq!(refusal, unsupported.to_string());
            true
        }
    }
}

/// Sizings that give jobs other CPU and memory than they request. Without CPU curves, `greedy`, `tune` and `opt` give them what
/// they request.
const RESIZING: [Case; 6] = [
    ("synergy", None),
    ("fifo", Some("proportional")),
    ("las", Some("proportional")),
    ("fifo", Some("greedy")),
    ("srsf", Some("tune")),
    ("fifo", Some("opt")),
];

#[test]
fn every_preset_decides_on_kubernetes_as_in_the_simulator_or_is_refused() {
    let (mut failures, mut refused) = (Vec::new(), Vec::new());
    let all = presets().iter().map(|preset| (preset.name, None));
    for case in all.chain(RESIZING.into_iter().skip(1)) {
        if is_refused(case, ClusterFeatures::ALL) {
            refused.push(case.0);
            continue;
        }
        let needs_resize = RESIZING.contains(&case);
        assert_eq!(is_refused(case, ClusterFeatures::NONE), needs_resize, "{case:?}");
        match std::panic::catch_unwind(|| check(case)) {
            Ok((commands, resized)) => {
                assert!(commands >= 30, "{case:?}: {commands} commands");
                let gives_others = case.1 == Some("proportional");
                assert_eq!(
                    resized > 30,
                    gives_others,
                    "{case:?}: {resized} pods were resized"
                );
            }
            Err(error) => {
                let text = error.downcast_ref::<String>().cloned();
                let text = text.or_else(|| error.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                failures.push(format!("{case:?}: {}", text.unwrap_or_default()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for name in ["sjf-ffs", "antman", "muri-s", "muri-l", "optimus", "elastic-fifo"] {
        assert!(refused.contains(&name), "{name} is not refused: {refused:?}");
    }
    assert!(refused.len() < presets().len() / 2, "{refused:?}");
}
