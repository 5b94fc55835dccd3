//! Pods from request to deletion: answers to kube-scheduler, commands for Kubernetes, and recovery after a restart.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{Kubernetes, Server, pod, request};
use dovetail_extender::{
    BindCall, CellSnapshot, Command, Eviction, Extender, ExtenderError, FilterAnswer, FilterCall,
    PreemptCall, Rules, Settings, Timestamp, affinity_group, affinity_groups, overdue_commands,
    read_bind_info,
};
use dovetail_hived::{BIND_INFO, BindInfo};
use serde_json::{Value, json};

/// Two machines of two leaf cells; `a` owns one and `b` the other.
const FILE: &str = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 2, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - cellType: POOL
    cellChildren: [{cellAddress: n1}, {cellAddress: n2}]
virtualClusters:
  a: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
  b: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
";

fn spec(vc: &str, priority: i32, leaves: u32, group: &str, pods: u32) -> String {
    format!(
        "virtualCluster: {vc}\npriority: {priority}\nleafCellNumber: {leaves}\naffinityGroup:\n  name: {group}\n  \
         members: [{{podNumber: {pods}, leafCellNumber: {leaves}}}]\n"
    )
}

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1_000_000)
}

/// An extender without a socket that knows both nodes, and the cluster it runs on.
struct Setup {
    extender: Extender,
    kubernetes: Kubernetes,
}

impl Setup {
    fn new() -> Self {
        let kubernetes = Kubernetes::default();
        kubernetes.with(|m| m.nodes = [("n1".to_owned(), true), ("n2".to_owned(), true)].into());
        let layout = Settings::parse(FILE, "test").unwrap().layout;
        let mut extender = Extender::new(layout, Rules::default());
        extender.sync_nodes(&kubernetes.nodes(), at(0));
        Self { extender, kubernetes }
    }

    fn create(&mut self, name: &str, spec: &str) -> String {
        let uid = self.kubernetes.create(name, spec);
        self.extender
            .update_pod(&self.kubernetes.pod(&uid).unwrap(), at(0));
        uid
    }

    fn call(&self, uid: &str, nodes: &[&str]) -> FilterCall {
        let object = self.kubernetes.with(|m| m.pods[uid].clone());
        let body = json!({"Pod": object, "NodeNames": nodes});
        FilterCall::read(body.to_string().as_bytes()).unwrap()
    }

    fn filter(&mut self, uid: &str) -> Result<FilterAnswer, ExtenderError> {
        let call = self.call(uid, &["n1", "n2"]);
        self.extender.filter(&call, at(1))
    }

    /// Filters and binds a pod. Returns its node.
    fn start(&mut self, uid: &str) -> String {
        let Ok(FilterAnswer::Bind { node, .. }) = self.filter(uid) else {
            panic!("{uid} does not start");
        };
        self.bound(uid, &node);
        node
    }

    fn bound(&mut self, uid: &str, node: &str) {
        let name = uid.split('#').next().unwrap().to_owned();
        let call = BindCall {
            name,
            namespace: "test".to_owned(),
            uid: uid.to_owned(),
            node: node.to_owned(),
        };
        let command = self.extender.bind(&call).unwrap().unwrap();
        self.kubernetes.with(|m| {
            let pod = m.pods.get_mut(uid).unwrap();
            pod["spec"]["nodeName"] = json!(node);
            for (key, value) in &command.annotations {
                pod["metadata"]["annotations"][key] = json!(value);
            }
        });
        self.extender
            .update_pod(&self.kubernetes.pod(uid).unwrap(), at(1));
    }

    fn evictions(&mut self, now: Timestamp) -> Vec<Eviction> {
        let commands = overdue_commands(&mut self.extender, now).into_iter();
        commands
            .filter_map(|command| match command {
                Command::Evict(eviction) => Some(eviction),
                Command::Bind(_) => None,
            })
            .collect()
    }

    /// Returns the pods that the extender binds without kube-scheduler.
    fn starts(&mut self, now: Timestamp) -> Vec<String> {
        let commands = overdue_commands(&mut self.extender, now).into_iter();
        commands
            .filter_map(|command| match command {
                Command::Bind(command) => Some(command.pod.uid.clone()),
                Command::Evict(_) => None,
            })
            .collect()
    }

    fn states(&self) -> Vec<(String, &'static str)> {
        let groups = affinity_groups(&self.extender).into_iter();
        groups.map(|g| (g.metadata.name, g.status.state)).collect()
    }

    fn snapshot(&self) -> CellSnapshot {
        CellSnapshot::new(&self.extender)
    }
}

#[test]
fn a_pod_keeps_its_place_and_is_bound_without_kube_scheduler_after_repeated_requests() {
    let mut setup = Setup::new();
    let uid = setup.create("p", &spec("a", 0, 1, "g", 1));
    let forced = |answer: Result<FilterAnswer, _>| match answer {
        Ok(FilterAnswer::Bind { node, force }) => (node, force.is_some()),
        other => panic!("{other:?}"),
    };
    let (node, force) = forced(setup.filter(&uid));
    assert!(!force);
    for expected in [false, false, true, true] {
        assert_eq!(forced(setup.filter(&uid)), (node.clone(), expected));
    }
    let other = BindCall {
        name: "p".to_owned(),
        namespace: "test".to_owned(),
        uid: uid.clone(),
        node: "elsewhere".to_owned(),
    };
    let fault = setup.extender.bind(&other).unwrap_err();
    assert_eq!(fault.code, 400);
    assert!(
        fault.message.contains("expected n1, received elsewhere"),
        "{fault}"
    );
    setup.bound(&uid, &node);
    let fault = setup.filter(&uid).unwrap_err().to_string();
    assert_eq!(
        fault,
        format!("Code: 400, Message: Pod test/p({uid}): has already been bound to node n1")
    );
    // Binding again is accepted for the same node and refused for another one.
    assert_eq!(
        setup.extender.bind(&BindCall {
            node,
            ..other.clone()
        }),
        Ok(None)
    );
    assert!(setup.extender.bind(&other).is_err());
}

#[test]
fn a_pod_on_a_node_that_is_not_suggested_is_bound_without_kube_scheduler_at_once() {
    let mut setup = Setup::new();
    let uid = setup.create("p", &spec("a", 0, 1, "g", 1));
    let call = setup.call(&uid, &["n2"]);
    let Ok(FilterAnswer::Bind { node, force }) = setup.extender.filter(&call, at(1)) else {
        panic!();
    };
    assert_eq!((node.as_str(), force.is_some()), ("n1", true));
}

#[test]
fn a_group_is_placed_as_a_whole_and_released_with_its_last_pod() {
    let mut setup = Setup::new();
    let gang = spec("a", 5, 1, "user~job/default", 2);
    let uids = [setup.create("p0", &gang), setup.create("p1", &gang)];
    setup.start(&uids[0]);
    // The place of the second pod is reserved.
    let rival = setup.create("rival", &spec("a", 5, 1, "rival", 1));
    assert!(matches!(setup.filter(&rival), Ok(FilterAnswer::Wait { .. })));
    setup.start(&uids[1]);
    let late = setup.create("p2", &gang);
    let fault = setup.filter(&late).unwrap_err();
    assert_eq!(fault.code, 400, "{fault}");
    setup.extender.remove_pod(&uids[0], at(2));
    assert!(matches!(setup.filter(&rival), Ok(FilterAnswer::Wait { .. })));
    // A pod that has ended is removed, and requests for it are refused.
    setup
        .kubernetes
        .with(|m| m.pods.get_mut(&uids[1]).unwrap()["status"]["phase"] = json!("Succeeded"));
    let ended = setup.kubernetes.pod(&uids[1]).unwrap();
    setup.extender.update_pod(&ended, at(2));
    assert_eq!(setup.states(), []);
    assert_eq!(setup.filter(&uids[1]).unwrap_err().code, 400);
    setup.start(&rival);
    assert_eq!(setup.states(), [("rival".to_owned(), "Allocated")]);
}

#[test]
fn filter_leaves_no_trace_of_a_preemption_and_deleting_the_preemptor_cancels_it() {
    let mut setup = Setup::new();
    let low = setup.create("low", &spec("a", 0, 2, "low", 1));
    assert_eq!(setup.start(&low), "n1");
    let before = setup.snapshot().status();
    let high = setup.create("high", &spec("a", 9, 2, "high", 1));
    let Ok(FilterAnswer::Preempt { nodes }) = setup.filter(&high) else {
        panic!();
    };
    assert_eq!(
        nodes["n1"],
        format!("node(n1) has preemptible Pods: test/low({low})")
    );
    assert_eq!(setup.snapshot().status(), before);
    let FilterCall { pod, spec, nodes } = setup.call(&high, &["n1", "n2"]);
    let sent = setup
        .extender
        .preempt(&PreemptCall { pod, spec, nodes }, at(2))
        .unwrap();
    let sent = serde_json::to_value(&sent).unwrap();
    let expected = json!({"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": low}], "NumPDBViolations": 0}}});
    assert_eq!(sent, expected);
    let claimed = [
        ("high".to_owned(), "Preempting"),
        ("low".to_owned(), "BeingPreempted"),
    ];
    assert_eq!(setup.states(), claimed);
    setup.extender.remove_pod(&high, at(3));
    assert_eq!(setup.states(), [("low".to_owned(), "Allocated")]);
    assert_eq!(setup.snapshot().status(), before);
}

#[test]
fn victims_that_kube_scheduler_does_not_delete_are_deleted_all_at_once_and_each_once() {
    let mut setup = Setup::new();
    let lows: Vec<String> = (0..4)
        .map(|i| setup.create(&format!("low{i}"), &spec("a", -1, 1, &format!("low{i}"), 1)))
        .collect();
    for low in &lows {
        setup.start(low);
    }
    let wide = "virtualCluster: a\npriority: 1\nleafCellNumber: 2\n";
    let high = setup.create("high", wide);
    assert!(matches!(setup.filter(&high), Ok(FilterAnswer::Preempt { .. })));
    assert_eq!(setup.evictions(at(2)), []);
    let due = setup.evictions(at(4));
    assert_eq!(due.len(), 2);
    assert!(due.iter().all(|e| e.preemptor.uid == high));
    // One of them is being deleted by then.
    let ending = &due[0].pod.uid;
    setup.kubernetes.with(|m| {
        m.pods.get_mut(ending).unwrap()["metadata"]["deletionTimestamp"] = json!("2026-11-17T00:00:05Z")
    });
    let pod = setup.kubernetes.pod(ending).unwrap();
    setup.extender.update_pod(&pod, at(5));
    assert_eq!(setup.evictions(at(5)), []);
    let again = setup.evictions(at(7));
    assert_eq!(again.iter().map(|e| &e.pod).collect::<Vec<_>>(), [&due[1].pod]);
    for eviction in &due {
        setup.extender.remove_pod(&eviction.pod.uid, at(8));
    }
    // kube-scheduler does not ask for the pod again.
    assert_eq!(setup.starts(at(20)), std::slice::from_ref(&high));
    assert_eq!(setup.evictions(at(20)), []);
    setup.bound(&high, "n1");
    assert_eq!(setup.states().len(), 3);
}

#[test]
fn pods_that_can_start_but_are_not_asked_for_are_bound_by_priority() {
    let mut setup = Setup::new();
    let first = setup.create("first", &spec("a", 5, 2, "first", 1));
    setup.start(&first);
    let low = setup.create("low", &spec("a", 1, 2, "low", 1));
    let high = setup.create("high", &spec("a", 4, 2, "high", 1));
    for uid in [&low, &high] {
        assert!(matches!(setup.filter(uid), Ok(FilterAnswer::Wait { .. })));
    }
    assert_eq!(setup.starts(at(9)), Vec::<String>::new(), "nothing was freed");
    setup.extender.remove_pod(&first, at(10));
    assert_eq!(
        setup.starts(at(10)),
        Vec::<String>::new(),
        "kube-scheduler may still ask"
    );
    assert_eq!(setup.starts(at(11)), std::slice::from_ref(&high));
    // If Kubernetes does not bind it, the extender tries again.
    assert_eq!(setup.starts(at(12)), Vec::<String>::new());
    assert_eq!(setup.starts(at(21)), std::slice::from_ref(&high));
    setup.bound(&high, "n1");
    // Pods that kube-scheduler asks for are left to it.
    setup.extender.remove_pod(&high, at(30));
    let call = setup.call(&low, &["n1", "n2"]);
    assert!(matches!(
        setup.extender.filter(&call, at(31)),
        Ok(FilterAnswer::Bind { .. })
    ));
    assert_eq!(setup.starts(at(32)), Vec::<String>::new());
}

#[test]
fn after_a_restart_machines_are_bad_until_reported_and_pods_are_recovered() {
    let mut setup = Setup::new();
    let gang = spec("b", 5, 1, "g", 2);
    let uids = [setup.create("p0", &gang), setup.create("p1", &gang)];
    setup.start(&uids[0]);
    let pods = setup.kubernetes.pods();
    let groups = affinity_groups(&setup.extender);

    let layout = Settings::parse(FILE, "test").unwrap().layout;
    setup.extender = Extender::new(layout, Rules::default());
    let bad = |setup: &Setup| {
        let cells = serde_json::to_value(setup.snapshot().physical()).unwrap();
        cells.to_string().matches("\"Bad\"").count()
    };
    assert!(bad(&setup) > 0);
    setup.extender.sync_pods(&pods, at(10));
    setup.extender.sync_nodes(&setup.kubernetes.nodes(), at(10));
    assert_eq!(bad(&setup), 0);
    assert_eq!(affinity_groups(&setup.extender), groups);
    // The second pod of the group gets its reserved place.
    let place = |info: &BindInfo| info.affinity_group_bind_info.clone();
    let first = read_bind_info(&setup.kubernetes.pod(&uids[0]).unwrap()).unwrap();
    setup.start(&uids[1]);
    let second = read_bind_info(&setup.kubernetes.pod(&uids[1]).unwrap()).unwrap();
    assert_eq!(place(&first), place(&second));
    assert_ne!(first.leaf_cell_isolation, second.leaf_cell_isolation);
    // Pods that are missing in a list are removed.
    setup.extender.sync_pods(&[], at(11));
    assert_eq!(setup.states(), []);
}

#[test]
fn a_group_whose_virtual_cluster_is_removed_is_lazily_preempted_until_it_is_added_again() {
    let mut setup = Setup::new();
    let uid = setup.create("p", &spec("b", 5, 2, "g", 1));
    let node = setup.start(&uid);
    let group = |setup: &Setup| affinity_group(&setup.extender, "g").unwrap().status;
    let before = group(&setup);
    let without = FILE.replace(
        "  b: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}\n",
        "",
    );
    let layout = |text: &str| Settings::parse(text, "test").unwrap().layout;
    setup.extender.reconfigure(layout(&without), at(20));
    let expected = json!({"vc": "b", "priority": 5, "state": "Allocated", "physicalPlacement": {(node.as_str()): [0, 1]},
        "allocatedPods": [uid],
        "lazyPreemptionStatus": {"preemptor": "g", "preemptionTime": "1970-01-01T00:00:20Z"}});
    assert_eq!(serde_json::to_value(group(&setup)).unwrap(), expected);
    // A restart with the same configuration reports the same.
    let pods = setup.kubernetes.pods();
    setup.extender = Extender::new(layout(&without), Rules::default());
    setup.extender.sync_nodes(&setup.kubernetes.nodes(), at(20));
    setup.extender.sync_pods(&pods, at(20));
    assert_eq!(serde_json::to_value(group(&setup)).unwrap(), expected);
    // Its leaf cells are not given to other borrowers.
    let other = setup.create("o", &spec("a", -1, 2, "o", 1));
    assert_ne!(setup.start(&other), node);
    setup.extender.reconfigure(layout(FILE), at(21));
    assert_eq!(group(&setup), before);
}

#[test]
fn the_inspect_api_has_the_form_that_openpai_reads() {
    let mut setup = Setup::new();
    let uid = setup.create("p", &spec("a", 5, 1, "user~job/default", 1));
    let borrower = setup.create("q", &spec("b", -1, 1, "borrower", 1));
    setup.start(&uid);
    setup.start(&borrower);
    let group = serde_json::to_value(affinity_group(&setup.extender, "user~job/default")).unwrap();
    let expected = json!({"metadata": {"name": "user~job/default"}, "status": {"vc": "a", "priority": 5,
        "state": "Allocated", "physicalPlacement": {"n1": [0]}, "virtualPlacement": {"a/0": ["a/0/0"]},
        "allocatedPods": [uid]}});
    assert_eq!(group, expected);
    let status = serde_json::to_value(setup.snapshot().status()).unwrap();
    let top = &status["physicalCluster"][0];
    assert_eq!(top["leafCellType"], "GPU");
    assert_eq!(
        (&top["cellType"], &top["cellState"]),
        (&json!("POOL"), &json!("Used"))
    );
    let node = &top["cellChildren"][0];
    let shallow = json!({"cellType": "NODE", "isNodeLevel": true, "cellAddress": "a/0", "cellState": "Used",
        "cellHealthiness": "Healthy", "cellPriority": 5});
    assert_eq!((&node["vc"], &node["virtualCell"]), (&json!("a"), &shallow));
    assert_eq!(node["cellAddress"], "0/n1");
    let free = json!({"cellType": "GPU", "cellAddress": "0/n1/1", "cellState": "Free", "cellHealthiness": "Healthy",
        "cellPriority": -2});
    assert_eq!(node["cellChildren"][1], free);
    let b = status["virtualClusters"]["b"].as_array().unwrap();
    assert_eq!(b.len(), 2);
    assert_eq!(
        (&b[0]["cellAddress"], &b[0]["cellState"]),
        (&json!("b/0"), &json!("Free"))
    );
    assert_eq!(b[1]["cellAddress"], "0/n2/0-opp");
    assert_eq!(
        (&b[1]["cellPriority"], &b[1]["cellState"]),
        (&json!(-1), &json!("Used"))
    );
    let leaf = &status["virtualClusters"]["a"][0]["cellChildren"][0];
    assert_eq!(leaf["physicalCell"]["cellAddress"], "0/n1/0");
}

#[test]
fn annotations_are_read_with_old_names_too_and_written_in_hiveds_form() {
    let mut setup = Setup::new();
    let old = "virtualCluster: a\npriority: 3\ngpuType: GPU\ngpuNumber: 2\naffinityGroup:\n  name: g\n  members:\n  - \
               podNumber: 1\n    gpuNumber: 2\n";
    let uid = setup.create("p", old);
    setup.start(&uid);
    let pod = setup.kubernetes.pod(&uid).unwrap();
    let text = &pod.metadata.annotations[BIND_INFO];
    let expected = "node: n1\nleafCellIsolation:\n- 0\n- 1\ncellChain: POOL\naffinityGroupBindInfo:\n- podPlacements:\n  - \
                    physicalNode: n1\n    physicalLeafCellIndices:\n    - 0\n    - 1\n    preassignedCellTypes:\n    - \
                    NODE\n    - NODE\n";
    let plain = |text: &str| {
        text.lines()
            .map(|l| l.trim_start().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(plain(text), plain(expected));
    let older = text
        .replace("leafCellIsolation", "gpuIsolation")
        .replace("physicalLeafCellIndices", "physicalGpuIndices");
    setup
        .kubernetes
        .with(|m| m.pods.get_mut(&uid).unwrap()["metadata"]["annotations"][BIND_INFO] = json!(older));
    let read = read_bind_info(&setup.kubernetes.pod(&uid).unwrap()).unwrap();
    assert_eq!(read, read_bind_info(&pod).unwrap());
}

#[test]
fn errors_in_settings_name_the_key_or_the_line() {
    let read = |text: &str| Settings::parse(text, "hived.yaml");
    let defaults = read(FILE).unwrap();
    assert_eq!(
        (defaults.listen.as_str(), defaults.force_bind_after),
        (":9096", 3)
    );
    assert_eq!(Settings::listen_address(&defaults.listen), "0.0.0.0:9096");
    let more = format!(
        "kubeApiServerAddress: http://localhost:8080\nforcePodBindThreshold: 5\nwaitingPodSchedulingBlockMilliSec: 50{FILE}"
    );
    let more = read(&more).unwrap();
    assert_eq!(
        (more.force_bind_after, more.wait_delay),
        (5, Duration::from_millis(50))
    );
    assert_eq!(more.api_server, "http://localhost:8080");
    let sku = FILE.replace(
        "  cellTypes:",
        "  skuTypes: {GPU: {gpu: 1, cpu: 4, memory: 8192Mi}}\n  cellTypes:",
    );
    read(&sku).unwrap();
    for (wrong, what) in [
        (format!("forcePodBindTreshold: 5{FILE}"), "line 1"),
        (FILE.replace("isNodeLevel", "isNodeLvel"), "line 4"),
        (
            FILE.replace("cellNumber: 1}]}\n  b", "number: 1}]}\n  b"),
            "line 10",
        ),
        (
            format!("forcePodBindThreshold: -1{FILE}"),
            "forcePodBindThreshold: found -1",
        ),
        (FILE.replace("cellType: POOL.NODE", "cellType: PUHL.NODE"), "PUHL"),
    ] {
        let error = read(&wrong).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
        assert!(error.starts_with("hived.yaml: "), "{error}");
    }
}

fn server(wait_delay: Duration) -> (Kubernetes, Server) {
    let setup = Setup::new();
    let layout = Settings::parse(FILE, "test").unwrap().layout;
    let server = Server::start(layout, Rules::default(), &setup.kubernetes, wait_delay);
    (setup.kubernetes, server)
}

#[test]
fn keys_are_read_in_any_case_and_wrong_requests_are_refused_as_in_hived() {
    let (kubernetes, server) = server(Duration::ZERO);
    let uid = kubernetes.create("p", &spec("a", 0, 1, "g", 1));
    let object = kubernetes.with(|m| m.pods[&uid].clone());
    let (code, answer) = server.post("filter", &json!({"pod": object, "nodenames": ["n1", "n2"]}));
    assert_eq!((code, answer), (200, json!({"NodeNames": ["n1"]})));
    let lower = json!({"podName": "p", "podNamespace": "test", "podUID": uid, "node": "n1"});
    assert_eq!(server.post("bind", &lower), (200, json!({"Error": ""})));
    // Binding again to the same node is not an error.
    assert_eq!(server.post("bind", &lower), (200, json!({"Error": ""})));

    let error = |body: &Value| {
        let (code, answer) = server.post("filter", body);
        assert_eq!(code, 200);
        answer["Error"].as_str().unwrap().to_owned()
    };
    let nodes = error(&json!({"Pod": pod("x", "x", &spec("a", 0, 1, "x", 1)), "Nodes": {"items": []}}));
    assert!(nodes.contains("nodeCacheCapable"), "{nodes}");
    assert!(error(&json!({})).starts_with("Code: 400, Message: Pod is missing"));
    assert!(error(&json!([1])).starts_with("Code: 400, Message: the request is not ExtenderArgs"));
    let mut unmanaged = pod("x", "x", &spec("a", 0, 1, "x", 1));
    unmanaged["spec"]["containers"] = json!([]);
    assert!(error(&json!({"Pod": unmanaged, "NodeNames": []})).contains("pod-scheduling-enable"));
    let (code, text) = server.post("preempt", &json!({"Pod": pod("x", "x", "priority: 5000")}));
    assert_eq!((code, text.is_string()), (400, true));
    let (_, text) = server.post("bind", &json!({"PodName": "p"}));
    assert_eq!(text["Error"], "Code: 400, Message: PodNamespace is empty");

    let huge = vec![b' '; 9 << 20];
    assert_eq!(
        request(server.address, "POST", "/v1/extender/filter", &huge).0,
        413
    );
    assert_eq!(server.get("/v1/extender/filter").0, 405);
    assert_eq!(server.get("/v1/nothing").0, 404);
    assert_eq!(server.get("/").1["paths"].as_array().unwrap().len(), 9);
    assert_eq!(server.get("/healthz").0, 200);
}

#[test]
fn names_in_the_inspect_api_may_contain_slashes_and_unknown_names_are_400() {
    let (kubernetes, server) = server(Duration::ZERO);
    let uid = kubernetes.create("p", &spec("a", 0, 1, "user~job/default", 1));
    let object = kubernetes.with(|m| m.pods[&uid].clone());
    server.post("filter", &json!({"Pod": object, "NodeNames": ["n1", "n2"]}));
    let groups = "/v1/inspect/affinitygroups";
    let (_, all) = server.get(&format!("{groups}/"));
    for name in ["user~job/default", "user~job%2Fdefault", "user%7Ejob/default"] {
        let (code, one) = server.get(&format!("{groups}/{name}"));
        assert_eq!((code, &one), (200, &all["items"][0]), "{name}");
    }
    assert_eq!(server.get(groups).1, all);
    assert_eq!(server.get(&format!("{groups}/unknown")).0, 400);
    let status = "/v1/inspect/clusterstatus";
    let (_, whole) = server.get(status);
    assert_eq!(
        server.get(&format!("{status}/physicalcluster")).1,
        whole["physicalCluster"]
    );
    let vcs = format!("{status}/virtualclusters");
    assert_eq!(server.get(&vcs).1, whole["virtualClusters"]);
    assert_eq!(server.get(&format!("{vcs}/")).1, whole["virtualClusters"]);
    assert_eq!(server.get(&format!("{vcs}/a")).1, whole["virtualClusters"]["a"]);
    assert_eq!(server.get(&format!("{vcs}/unknown")).0, 400);
}

#[test]
fn a_delayed_answer_does_not_block_other_requests() {
    let delay = Duration::from_millis(1500);
    let (kubernetes, server) = server(delay);
    let uid = kubernetes.create("big", &spec("a", 0, 2, "big", 4));
    let object = kubernetes.with(|m| m.pods[&uid].clone());
    let body = json!({"Pod": object, "NodeNames": ["n1", "n2"]});
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (_, answer) = server.post("filter", &body);
                let reason = answer["FailedNodes"]["hivedscheduler"].as_str().unwrap();
                assert!(
                    reason.contains("insufficient capacity when scheduling in VC a: 8 leaf cells"),
                    "{reason}"
                );
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        let asked = Instant::now();
        assert_eq!(server.get("/v1/inspect/affinitygroups/").0, 200);
        assert!(asked.elapsed() < Duration::from_millis(1200));
    });
    assert!(began.elapsed() >= delay && began.elapsed() < delay * 3);
}

#[test]
fn requests_are_refused_until_nodes_and_pods_were_reported() {
    let (kubernetes, server) = server(Duration::ZERO);
    let layout = Settings::parse(FILE, "test").unwrap().layout;
    let shared = dovetail_extender::server::SharedExtender::new(
        Extender::new(layout, Rules::default()),
        kubernetes.clone(),
        Duration::ZERO,
    );
    assert!(!shared.is_ready());
    shared.sync_nodes(&kubernetes.nodes());
    assert!(!shared.is_ready());
    let shared = std::sync::Arc::new(shared);
    let listener = server
        .runtime()
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let address = listener.local_addr().unwrap();
    let routes = dovetail_extender::server::router(std::sync::Arc::clone(&shared));
    server.runtime().spawn(dovetail_extender::server::serve(
        listener,
        routes,
        std::future::pending(),
    ));
    assert_eq!(request(address, "POST", "/v1/extender/filter", b"{}").0, 503);
    assert_eq!(request(address, "GET", "/healthz", b"").0, 503);
    shared.sync_pods(&kubernetes.pods());
    assert_eq!(request(address, "POST", "/v1/extender/filter", b"{}").0, 200);
}
