//! Replays all recorded scenarios of HiveD through the HTTP API, with the requests of kube-scheduler on a real socket, and
//! compares as `dovetail vc replay` does.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints what it skips"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Kubernetes, Server};
use dovetail_extender::{Rules, Settings, read_bind_info};
use dovetail_hived::{
    Answer, BIND_INFO, EXCEPTIONS, GroupScheduler, ISOLATION, Phase, Scenario, ScenarioError, ScenarioTarget,
    Step, StepResult, UserError,
};
use serde_json::{Value, json};

/// How `restart` is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Restart {
    /// By a new process, which reads the annotations of the pods.
    Process,
    /// By a reload of the file in the same process.
    Reload,
}

/// Returns the folder with HiveD's data, if it exists.
fn folder() -> Option<PathBuf> {
    let shared = std::env::var_os("DOVETAIL_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("data/hived");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("SKIPPED: {} does not exist", folder.display());
    None
}

fn settings(folder: &Path, name: &str) -> Result<Settings, ScenarioError> {
    let settings = Settings::read(&folder.join("configs").join(name));
    settings.map_err(|e| ScenarioError::Target(e.into()))
}

struct OverHttp<'a> {
    folder: &'a Path,
    kubernetes: Kubernetes,
    server: Server,
    restart: Restart,
    /// Uid of the present pod of each name.
    uids: BTreeMap<String, String>,
}

fn rules() -> Rules {
    Rules {
        evict_after: None,
        repromote: false,
        ..Rules::default()
    }
}

impl<'a> OverHttp<'a> {
    fn new(folder: &'a Path, config: &str, restart: Restart) -> Result<Self, ScenarioError> {
        let layout = settings(folder, config)?.layout;
        let kubernetes = Kubernetes::default();
        kubernetes.with(|m| m.nodes = layout.machines.iter().map(|m| (m.name.clone(), true)).collect());
        let server = Server::start(layout, rules(), &kubernetes, Duration::ZERO);
        Ok(Self {
            folder,
            kubernetes,
            server,
            restart,
            uids: BTreeMap::new(),
        })
    }

    fn names(&self, uids: impl IntoIterator<Item = String>) -> BTreeSet<String> {
        let name = |uid: String| uid.split('#').next().unwrap_or_default().to_owned();
        uids.into_iter().map(name).collect()
    }

    fn schedule(&mut self, step: &Step) -> StepResult {
        let uid = match self.uids.get(&step.pod) {
            Some(uid) => uid.clone(),
            None => {
                let spec = serde_json::to_value(step.spec.clone().unwrap_or_default()).unwrap();
                let uid = self
                    .kubernetes
                    .create(&step.pod, &serde_saphyr::to_string(&spec).unwrap());
                self.server.report(&self.kubernetes, &uid);
                self.uids.insert(step.pod.clone(), uid.clone());
                uid
            }
        };
        let object = self.kubernetes.with(|m| m.pods[&uid].clone());
        let nodes: Vec<String> = match &step.suggested_nodes {
            Some(nodes) => nodes.clone(),
            None => self.kubernetes.with(|m| m.nodes.keys().cloned().collect()),
        };
        let filter = json!({"Pod": object, "Nodes": null, "NodeNames": nodes});
        let candidates: BTreeMap<&String, Value> = nodes
            .iter()
            .map(|n| (n, json!({"Pods": [], "NumPDBViolations": 0})))
            .collect();
        let preempt = json!({"Pod": object, "NodeNameToVictims": null, "NodeNameToMetaVictims": candidates});
        let is_ready = step.phase == Some(Phase::Preempting);

        let (code, answer) = self.server.post("filter", &filter);
        assert_eq!(code, 200, "{answer}");
        if let Some(error) = answer["Error"].as_str() {
            assert!(error.starts_with("Code: 400, Message: Pod test/"), "{error}");
            let (code, text) = self.server.post("preempt", &preempt);
            assert_eq!((code, text.as_str()), (400, Some(error)));
            // Only the kind of the error is compared.
            return Some(Err(UserError::NotAMember { size: 0 }));
        }
        if let Some(chosen) = answer["NodeNames"].as_array() {
            assert_eq!(chosen.len(), 1);
            let node = chosen[0].as_str().unwrap();
            return Some(Ok(self.bind(step, &uid, node)));
        }
        let mut victims = victims_in_messages(&answer);
        if is_ready {
            let (code, answer) = self.server.post("preempt", &preempt);
            assert_eq!(code, 200, "{answer}");
            let on_one_node: BTreeSet<String> = victims_sent(&answer);
            victims = match on_one_node.is_empty() {
                true => BTreeSet::new(),
                false => {
                    let (_, again) = self.server.post("filter", &filter);
                    let all = victims_in_messages(&again);
                    assert!(on_one_node.is_subset(&all), "{on_one_node:?} {all:?}");
                    all
                }
            };
        }
        Some(Ok(match victims.is_empty() {
            true => Answer::Wait { reason: None },
            false => Answer::Preempt {
                victims: self.names(victims),
            },
        }))
    }

    fn bind(&mut self, step: &Step, uid: &str, node: &str) -> Answer {
        let args = json!({"PodName": step.pod, "PodNamespace": "test", "PodUID": uid, "Node": node});
        let (code, answer) = self.server.post("bind", &args);
        assert_eq!((code, answer), (200, json!({"Error": ""})));
        self.server.report(&self.kubernetes, uid);
        let pod = self.kubernetes.pod(uid).unwrap();
        assert_eq!(pod.spec.node_name, node);
        assert!(pod.metadata.annotations.contains_key(BIND_INFO));
        let info = read_bind_info(&pod).unwrap();
        let isolation: Vec<String> = info.leaf_cell_isolation.iter().map(i32::to_string).collect();
        assert_eq!(pod.metadata.annotations[ISOLATION], isolation.join(","));
        assert_eq!(info.node, node);
        let placements = info
            .affinity_group_bind_info
            .iter()
            .flat_map(|m| &m.pod_placements);
        let kinds = placements.flat_map(|p| p.preassigned_cell_types.iter().cloned());
        let answer = Answer::Bind {
            node: info.node.clone(),
            leaves: info.leaf_cell_isolation.clone(),
            chain: info.cell_chain.clone(),
            preassigned: kinds.collect(),
        };
        if step.commit == Some(false) {
            self.delete(&step.pod);
        }
        answer
    }

    fn delete(&mut self, pod: &str) {
        if let Some(uid) = self.uids.remove(pod) {
            self.kubernetes.with(|m| m.pods.remove(&uid));
            self.server.report(&self.kubernetes, &uid);
        }
    }

    fn restart(&mut self, config: &str) -> Result<(), ScenarioError> {
        let layout = settings(self.folder, config)?.layout;
        self.kubernetes.with(|m| {
            let new = layout.machines.iter().map(|m| m.name.clone());
            m.nodes = m.nodes.keys().cloned().chain(new).map(|n| (n, true)).collect();
        });
        match self.restart {
            Restart::Process => {
                self.server = Server::start(layout, rules(), &self.kubernetes, Duration::ZERO);
            }
            Restart::Reload => {
                self.server.shared.sync_nodes(&self.kubernetes.nodes());
                self.server.shared.with(|e, now| e.reconfigure(layout, now));
            }
        }
        Ok(())
    }

    /// Checks that the inspect API lists the present groups.
    fn check_inspect_api(&self) {
        let (code, list) = self.server.get("/v1/inspect/affinitygroups/");
        assert_eq!(code, 200);
        let items = list["items"].as_array().unwrap();
        let names: BTreeSet<String> = self
            .server
            .shared
            .with(|e, _| e.groups().groups().map(|(n, _)| n.to_owned()).collect());
        let listed: BTreeSet<String> = items
            .iter()
            .map(|g| g["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, listed);
        for item in items {
            let name = item["metadata"]["name"].as_str().unwrap();
            let (code, one) = self.server.get(&format!("/v1/inspect/affinitygroups/{name}"));
            assert_eq!((code, &one), (200, item));
        }
    }
}

/// Returns the uids in the messages of `filter` about nodes.
fn victims_in_messages(answer: &Value) -> BTreeSet<String> {
    let mut uids = BTreeSet::new();
    for (node, text) in answer["FailedNodes"].as_object().unwrap() {
        let text = text.as_str().unwrap();
        if node == "hivedscheduler" {
            assert!(
                text.starts_with("Pod is waiting for preemptible or free resource to appear: "),
                "{text}"
            );
            continue;
        }
        let list = text
            .strip_prefix(&format!("node({node}) has preemptible Pods: "))
            .unwrap();
        for pod in list.split(", ") {
            let uid = pod
                .split_once('(')
                .and_then(|(_, rest)| rest.strip_suffix(')'))
                .unwrap();
            uids.insert(uid.to_owned());
        }
    }
    uids
}

/// Returns the uids in the answer of `preempt`: those of one node.
fn victims_sent(answer: &Value) -> BTreeSet<String> {
    let Some(nodes) = answer["NodeNameToMetaVictims"].as_object() else {
        return BTreeSet::new();
    };
    assert!(nodes.len() <= 1, "kube-scheduler accepts victims of one node");
    let pods = nodes.values().flat_map(|v| v["Pods"].as_array().unwrap());
    pods.map(|p| p["UID"].as_str().unwrap().to_owned()).collect()
}

impl ScenarioTarget for OverHttp<'_> {
    fn step(&mut self, _at: usize, step: &Step) -> Result<StepResult, ScenarioError> {
        let result = match step.op.as_str() {
            "schedule" => self.schedule(step),
            "delete" => {
                self.delete(&step.pod);
                None
            }
            "badNode" | "healthyNode" => {
                let ready = step.op == "healthyNode";
                self.kubernetes.with(|m| m.nodes.insert(step.node.clone(), ready));
                self.server.shared.sync_nodes(&self.kubernetes.nodes());
                None
            }
            "restart" => {
                self.restart(&step.config)?;
                None
            }
            other => return Err(ScenarioError::UnknownOp(other.to_owned())),
        };
        self.check_inspect_api();
        Ok(result)
    }

    fn inspect(&self, see: &mut dyn FnMut(&GroupScheduler)) {
        self.server.shared.with(|extender, _| see(extender.groups()));
    }
}

#[test]
fn every_scenario_has_the_results_of_hived_over_http() {
    let Some(folder) = folder() else { return };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("scenarios"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 32, "{} scenarios", files.len());
    let mut wrong = Vec::new();
    let mut exceptions = BTreeSet::new();
    let (mut steps, mut exact) = (0, 0);
    for file in &files {
        let scenario: Scenario = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        if scenario.is_refused_at_start() {
            let refused = settings(&folder, &scenario.config);
            assert!(refused.is_err(), "{}", scenario.name);
            (steps, exact) = (steps + 1, exact + 1);
            continue;
        }
        let restarts = scenario.steps.iter().any(|s| s.op == "restart");
        let modes: &[Restart] = match restarts {
            true => &[Restart::Process, Restart::Reload],
            false => &[Restart::Process],
        };
        for mode in modes {
            let mut target = OverHttp::new(&folder, &scenario.config, *mode).unwrap();
            let report = match scenario.replay_with(&mut target, &mut |_, _, _, _| {}) {
                Ok(report) => report,
                Err(error) => {
                    wrong.push(format!("{}: {error}", scenario.name));
                    continue;
                }
            };
            println!(
                "{:45} {:3} steps, {:3} exact, {:2} symmetric, {} exceptions{}",
                scenario.name,
                report.steps,
                report.exact,
                report.symmetric,
                report.exceptions.len(),
                if restarts {
                    format!(" ({mode:?})")
                } else {
                    String::new()
                },
            );
            (steps, exact) = (steps + report.steps, exact + report.exact);
            exceptions.extend(
                report
                    .exceptions
                    .iter()
                    .map(|(at, _)| (scenario.name.clone(), *at)),
            );
            if let Some((at, mismatch)) = report.mismatch {
                let step = &scenario.steps[at];
                let (op, pod, node) = (&step.op, &step.pod, &step.node);
                wrong.push(format!(
                    "{} step {at} ({op} {pod}{node}, {mode:?}): {mismatch}",
                    scenario.name
                ));
            }
        }
    }
    println!("{} scenarios, {steps} steps, {exact} exact", files.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let all: BTreeSet<_> = EXCEPTIONS
        .iter()
        .map(|e| (e.scenario.to_owned(), e.step))
        .collect();
    assert_eq!(exceptions, all, "every exception occurs");
}
