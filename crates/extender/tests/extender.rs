//! The way of pods: what kube-scheduler is told, what Kubernetes is asked for, and what is left when they go.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{Kubernetes, Server, pod, request};
use dovetail_extender::{
    BIND_INFO, BindCall, BindInfo, Command, Eviction, Extender, FilterCall, Filtered, Moment, PreemptCall,
    Rules, Settings,
};
use serde_json::{Value, json};

/// Two machines of two leaves in a pool; `a` owns one and `b` the other.
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

fn at(seconds: i64) -> Moment {
    Moment(seconds * 1_000_000)
}

/// The extender without a socket, with both nodes heard of.
struct Desk {
    extender: Extender,
    kubernetes: Kubernetes,
}

impl Desk {
    fn new() -> Self {
        let kubernetes = Kubernetes::default();
        kubernetes.with(|m| m.nodes = [("n1".to_owned(), true), ("n2".to_owned(), true)].into());
        let layout = Settings::parse(FILE, "test").unwrap().layout;
        let mut extender = Extender::new(layout, Rules::default());
        extender.nodes_all(&kubernetes.nodes(), at(0));
        Self { extender, kubernetes }
    }

    fn create(&mut self, name: &str, spec: &str) -> String {
        let uid = self.kubernetes.create(name, spec);
        self.extender.pod_put(&self.kubernetes.pod(&uid).unwrap(), at(0));
        uid
    }

    fn call(&self, uid: &str, nodes: &[&str]) -> FilterCall {
        let object = self.kubernetes.with(|m| m.pods[uid].clone());
        let body = json!({"Pod": object, "NodeNames": nodes});
        FilterCall::read(body.to_string().as_bytes()).unwrap()
    }

    fn filter(&mut self, uid: &str) -> Result<Filtered, dovetail_extender::Fault> {
        let call = self.call(uid, &["n1", "n2"]);
        self.extender.filter(&call, at(1))
    }

    /// Filters and binds; the node.
    fn start(&mut self, uid: &str) -> String {
        let Ok(Filtered::Bind { node, .. }) = self.filter(uid) else {
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
        let order = self.extender.bind(&call).unwrap().unwrap();
        self.kubernetes.with(|m| {
            let pod = m.pods.get_mut(uid).unwrap();
            pod["spec"]["nodeName"] = json!(node);
            for (key, value) in &order.annotations {
                pod["metadata"]["annotations"][key] = json!(value);
            }
        });
        self.extender.pod_put(&self.kubernetes.pod(uid).unwrap(), at(1));
    }

    fn evictions(&mut self, now: Moment) -> Vec<Eviction> {
        let due = self.extender.due(now).into_iter();
        due.filter_map(|command| match command {
            Command::Evict(eviction) => Some(eviction),
            Command::Bind(_) => None,
        })
        .collect()
    }

    /// Pods that are to be bound without kube-scheduler.
    fn starts(&mut self, now: Moment) -> Vec<String> {
        let due = self.extender.due(now).into_iter();
        due.filter_map(|command| match command {
            Command::Bind(order) => Some(order.pod.uid.clone()),
            Command::Evict(_) => None,
        })
        .collect()
    }

    fn states(&self) -> Vec<(String, &'static str)> {
        let groups = self.extender.affinity_groups().into_iter();
        groups.map(|g| (g.metadata.name, g.status.state)).collect()
    }
}

#[test]
fn a_pod_that_has_its_place_keeps_it_and_is_bound_by_force_in_the_end() {
    let mut desk = Desk::new();
    let uid = desk.create("p", &spec("a", 0, 1, "g", 1));
    let forced = |answer: Result<Filtered, _>| match answer {
        Ok(Filtered::Bind { node, force }) => (node, force.is_some()),
        other => panic!("{other:?}"),
    };
    let (node, force) = forced(desk.filter(&uid));
    assert!(!force);
    for expected in [false, false, true, true] {
        assert_eq!(forced(desk.filter(&uid)), (node.clone(), expected));
    }
    let other = BindCall {
        name: "p".to_owned(),
        namespace: "test".to_owned(),
        uid: uid.clone(),
        node: "elsewhere".to_owned(),
    };
    let fault = desk.extender.bind(&other).unwrap_err();
    assert_eq!(fault.code, 400);
    assert!(
        fault.message.contains("expected n1, received elsewhere"),
        "{fault}"
    );
    desk.bound(&uid, &node);
    let fault = desk.filter(&uid).unwrap_err().to_string();
    assert_eq!(
        fault,
        format!("Code: 400, Message: Pod test/p({uid}): it has already been bound to node n1")
    );
    // Once more is no harm where it is, and wrong elsewhere.
    assert_eq!(
        desk.extender.bind(&BindCall {
            node,
            ..other.clone()
        }),
        Ok(None)
    );
    assert!(desk.extender.bind(&other).is_err());
}

#[test]
fn a_place_kubernetes_does_not_suggest_is_bound_by_force_at_once() {
    let mut desk = Desk::new();
    let uid = desk.create("p", &spec("a", 0, 1, "g", 1));
    let call = desk.call(&uid, &["n2"]);
    let Ok(Filtered::Bind { node, force }) = desk.extender.filter(&call, at(1)) else {
        panic!();
    };
    assert_eq!((node.as_str(), force.is_some()), ("n1", true));
}

#[test]
fn a_gang_is_decided_as_a_whole_and_released_with_its_last_pod() {
    let mut desk = Desk::new();
    let gang = spec("a", 5, 1, "user~job/default", 2);
    let uids = [desk.create("p0", &gang), desk.create("p1", &gang)];
    desk.start(&uids[0]);
    // Before the second pod comes its place is kept.
    let rival = desk.create("rival", &spec("a", 5, 1, "rival", 1));
    assert!(matches!(desk.filter(&rival), Ok(Filtered::Wait { .. })));
    desk.start(&uids[1]);
    let late = desk.create("p2", &gang);
    let fault = desk.filter(&late).unwrap_err();
    assert_eq!(fault.code, 400, "{fault}");
    desk.extender.pod_gone(&uids[0], at(2));
    assert!(matches!(desk.filter(&rival), Ok(Filtered::Wait { .. })));
    // A pod that is over is as good as gone, and nobody may ask for it again.
    desk.kubernetes
        .with(|m| m.pods.get_mut(&uids[1]).unwrap()["status"]["phase"] = json!("Succeeded"));
    let over = desk.kubernetes.pod(&uids[1]).unwrap();
    desk.extender.pod_put(&over, at(2));
    assert_eq!(desk.states(), []);
    assert_eq!(desk.filter(&uids[1]).unwrap_err().code, 400);
    desk.start(&rival);
    assert_eq!(desk.states(), [("rival".to_owned(), "Allocated")]);
}

#[test]
fn an_attempt_that_is_not_carried_out_leaves_no_trace_and_one_that_is_gives_way_when_its_pod_goes() {
    let mut desk = Desk::new();
    let low = desk.create("low", &spec("a", 0, 2, "low", 1));
    assert_eq!(desk.start(&low), "n1");
    let before = desk.extender.picture().status();
    let high = desk.create("high", &spec("a", 9, 2, "high", 1));
    let Ok(Filtered::Preempt { nodes }) = desk.filter(&high) else {
        panic!();
    };
    assert_eq!(
        nodes["n1"],
        format!("node(n1) has preemptible Pods: test/low({low})")
    );
    assert_eq!(desk.extender.picture().status(), before);
    let FilterCall { pod, spec, nodes } = desk.call(&high, &["n1", "n2"]);
    let sent = desk
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
    assert_eq!(desk.states(), claimed);
    desk.extender.pod_gone(&high, at(3));
    assert_eq!(desk.states(), [("low".to_owned(), "Allocated")]);
    assert_eq!(desk.extender.picture().status(), before);
}

#[test]
fn victims_nobody_deletes_are_deleted_by_us_all_at_once_and_each_once() {
    let mut desk = Desk::new();
    let lows: Vec<String> = (0..4)
        .map(|i| desk.create(&format!("low{i}"), &spec("a", -1, 1, &format!("low{i}"), 1)))
        .collect();
    for low in &lows {
        desk.start(low);
    }
    let wide = "virtualCluster: a\npriority: 1\nleafCellNumber: 2\n";
    let high = desk.create("high", wide);
    assert!(matches!(desk.filter(&high), Ok(Filtered::Preempt { .. })));
    assert_eq!(desk.evictions(at(2)), []);
    let due = desk.evictions(at(4));
    assert_eq!(due.len(), 2);
    assert!(due.iter().all(|e| e.preemptor.uid == high));
    // One of them is on its way out by then.
    let ending = &due[0].pod.uid;
    desk.kubernetes.with(|m| {
        m.pods.get_mut(ending).unwrap()["metadata"]["deletionTimestamp"] = json!("2026-11-17T00:00:05Z")
    });
    let pod = desk.kubernetes.pod(ending).unwrap();
    desk.extender.pod_put(&pod, at(5));
    assert_eq!(desk.evictions(at(5)), []);
    let again = desk.evictions(at(7));
    assert_eq!(again.iter().map(|e| &e.pod).collect::<Vec<_>>(), [&due[1].pod]);
    for eviction in &due {
        desk.extender.pod_gone(&eviction.pod.uid, at(8));
    }
    // kube-scheduler does not come back for it.
    assert_eq!(desk.starts(at(20)), std::slice::from_ref(&high));
    assert_eq!(desk.evictions(at(20)), []);
    desk.bound(&high, "n1");
    assert_eq!(desk.states().len(), 3);
}

#[test]
fn a_pod_that_could_start_and_is_not_asked_for_is_bound_by_us_in_the_order_of_priority() {
    let mut desk = Desk::new();
    let first = desk.create("first", &spec("a", 5, 2, "first", 1));
    desk.start(&first);
    let low = desk.create("low", &spec("a", 1, 2, "low", 1));
    let high = desk.create("high", &spec("a", 4, 2, "high", 1));
    for uid in [&low, &high] {
        assert!(matches!(desk.filter(uid), Ok(Filtered::Wait { .. })));
    }
    assert_eq!(desk.starts(at(9)), Vec::<String>::new(), "nothing was freed");
    desk.extender.pod_gone(&first, at(10));
    assert_eq!(
        desk.starts(at(10)),
        Vec::<String>::new(),
        "kube-scheduler may still come"
    );
    assert_eq!(desk.starts(at(11)), std::slice::from_ref(&high));
    // If Kubernetes does not bind it, it is tried again.
    assert_eq!(desk.starts(at(12)), Vec::<String>::new());
    assert_eq!(desk.starts(at(21)), std::slice::from_ref(&high));
    desk.bound(&high, "n1");
    // Whom kube-scheduler asks for itself is left to it.
    desk.extender.pod_gone(&high, at(30));
    let call = desk.call(&low, &["n1", "n2"]);
    assert!(matches!(
        desk.extender.filter(&call, at(31)),
        Ok(Filtered::Bind { .. })
    ));
    assert_eq!(desk.starts(at(32)), Vec::<String>::new());
}

#[test]
fn after_a_restart_every_machine_is_bad_until_it_is_heard_of_and_pods_are_known_again() {
    let mut desk = Desk::new();
    let gang = spec("b", 5, 1, "g", 2);
    let uids = [desk.create("p0", &gang), desk.create("p1", &gang)];
    desk.start(&uids[0]);
    let pods = desk.kubernetes.pods();
    let groups = desk.extender.affinity_groups();

    let layout = Settings::parse(FILE, "test").unwrap().layout;
    desk.extender = Extender::new(layout, Rules::default());
    let bad = |desk: &Desk| {
        let cells = serde_json::to_value(desk.extender.picture().physical()).unwrap();
        cells.to_string().matches("\"Bad\"").count()
    };
    assert!(bad(&desk) > 0);
    desk.extender.pods_all(&pods, at(10));
    desk.extender.nodes_all(&desk.kubernetes.nodes(), at(10));
    assert_eq!(bad(&desk), 0);
    assert_eq!(desk.extender.affinity_groups(), groups);
    // The second pod of the gang gets the place that was kept for it.
    let place = |info: &BindInfo| info.affinity_group_bind_info.clone();
    let first = BindInfo::read(&desk.kubernetes.pod(&uids[0]).unwrap()).unwrap();
    desk.start(&uids[1]);
    let second = BindInfo::read(&desk.kubernetes.pod(&uids[1]).unwrap()).unwrap();
    assert_eq!(place(&first), place(&second));
    assert_ne!(first.leaf_cell_isolation, second.leaf_cell_isolation);
    // Pods that are not in a list any more are gone.
    desk.extender.pods_all(&[], at(11));
    assert_eq!(desk.states(), []);
}

#[test]
fn jobs_of_a_virtual_cluster_that_is_taken_away_run_on_as_borrowers_and_are_back_with_it() {
    let mut desk = Desk::new();
    let uid = desk.create("p", &spec("b", 5, 2, "g", 1));
    let node = desk.start(&uid);
    let group = |desk: &Desk| desk.extender.affinity_group("g").unwrap().status;
    let before = group(&desk);
    let without = FILE.replace(
        "  b: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}\n",
        "",
    );
    let layout = |text: &str| Settings::parse(text, "test").unwrap().layout;
    desk.extender.reconfigure(layout(&without), at(20));
    assert_eq!(group(&desk).vc, "b");
    assert!(group(&desk).virtual_placement.is_empty());
    // Its leaves are not given to others who only borrow.
    let other = desk.create("o", &spec("a", -1, 2, "o", 1));
    assert_ne!(desk.start(&other), node);
    desk.extender.reconfigure(layout(FILE), at(21));
    assert_eq!(group(&desk), before);
}

#[test]
fn what_openpai_reads_has_hiveds_shape() {
    let mut desk = Desk::new();
    let uid = desk.create("p", &spec("a", 5, 1, "user~job/default", 1));
    let lent = desk.create("q", &spec("b", -1, 1, "lent", 1));
    desk.start(&uid);
    desk.start(&lent);
    let group = serde_json::to_value(desk.extender.affinity_group("user~job/default")).unwrap();
    let expected = json!({"metadata": {"name": "user~job/default"}, "status": {"vc": "a", "priority": 5,
        "state": "Allocated", "physicalPlacement": {"n1": [0]}, "virtualPlacement": {"a/0": ["a/0/0"]},
        "allocatedPods": [uid]}});
    assert_eq!(group, expected);
    let status = serde_json::to_value(desk.extender.picture().status()).unwrap();
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
fn annotations_of_hived_are_read_old_names_too_and_written_in_its_form() {
    let mut desk = Desk::new();
    let old = "virtualCluster: a\npriority: 3\ngpuType: GPU\ngpuNumber: 2\naffinityGroup:\n  name: g\n  members:\n  - \
               podNumber: 1\n    gpuNumber: 2\n";
    let uid = desk.create("p", old);
    desk.start(&uid);
    let pod = desk.kubernetes.pod(&uid).unwrap();
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
    desk.kubernetes
        .with(|m| m.pods.get_mut(&uid).unwrap()["metadata"]["annotations"][BIND_INFO] = json!(older));
    let read = BindInfo::read(&desk.kubernetes.pod(&uid).unwrap()).unwrap();
    assert_eq!(read, BindInfo::read(&pod).unwrap());
}

#[test]
fn settings_say_what_is_wrong_and_on_which_line() {
    let read = |text: &str| Settings::parse(text, "hived.yaml");
    let usual = read(FILE).unwrap();
    assert_eq!((usual.listen.as_str(), usual.force_bind_after), (":9096", 3));
    assert_eq!(Settings::listen_address(&usual.listen), "0.0.0.0:9096");
    let more = format!(
        "kubeApiServerAddress: http://localhost:8080\nforcePodBindThreshold: 5\nwaitingPodSchedulingBlockMilliSec: 50{FILE}"
    );
    let more = read(&more).unwrap();
    assert_eq!(
        (more.force_bind_after, more.block),
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

fn server(block: Duration) -> (Kubernetes, Server) {
    let desk = Desk::new();
    let layout = Settings::parse(FILE, "test").unwrap().layout;
    let server = Server::start(layout, Rules::default(), &desk.kubernetes, block);
    (desk.kubernetes, server)
}

#[test]
fn requests_in_any_case_are_understood_and_wrong_ones_refused_as_hived_does() {
    let (kubernetes, server) = server(Duration::ZERO);
    let uid = kubernetes.create("p", &spec("a", 0, 1, "g", 1));
    let object = kubernetes.with(|m| m.pods[&uid].clone());
    let (code, answer) = server.post("filter", &json!({"pod": object, "nodenames": ["n1", "n2"]}));
    assert_eq!((code, answer), (200, json!({"NodeNames": ["n1"]})));
    let lower = json!({"podName": "p", "podNamespace": "test", "podUID": uid, "node": "n1"});
    assert_eq!(server.post("bind", &lower), (200, json!({"Error": ""})));
    // The second time it is there.
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
    let mut stranger = pod("x", "x", &spec("a", 0, 1, "x", 1));
    stranger["spec"]["containers"] = json!([]);
    assert!(error(&json!({"Pod": stranger, "NodeNames": []})).contains("pod-scheduling-enable"));
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
fn what_is_looked_at_has_names_with_slashes_and_unknown_ones_are_400() {
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
    assert_eq!(server.get(&format!("{groups}/nobody")).0, 400);
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
    assert_eq!(server.get(&format!("{vcs}/nobody")).0, 400);
}

#[test]
fn while_one_pod_is_kept_waiting_others_are_answered() {
    let block = Duration::from_millis(1500);
    let (kubernetes, server) = server(block);
    let uid = kubernetes.create("big", &spec("a", 0, 2, "big", 4));
    let object = kubernetes.with(|m| m.pods[&uid].clone());
    let body = json!({"Pod": object, "NodeNames": ["n1", "n2"]});
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (_, answer) = server.post("filter", &body);
                let why = answer["FailedNodes"]["hivedscheduler"].as_str().unwrap();
                assert!(
                    why.contains("insufficient capacity when scheduling in VC a: 8 leaf cells"),
                    "{why}"
                );
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        let asked = Instant::now();
        assert_eq!(server.get("/v1/inspect/affinitygroups/").0, 200);
        assert!(asked.elapsed() < Duration::from_millis(1200));
    });
    assert!(began.elapsed() >= block && began.elapsed() < block * 3);
}

#[test]
fn before_everything_was_heard_of_nothing_is_answered() {
    let (kubernetes, server) = server(Duration::ZERO);
    let layout = Settings::parse(FILE, "test").unwrap().layout;
    let shell = dovetail_extender::web::Shell::new(
        Extender::new(layout, Rules::default()),
        kubernetes.clone(),
        Duration::ZERO,
    );
    assert!(!shell.is_ready());
    shell.nodes_all(&kubernetes.nodes());
    assert!(!shell.is_ready());
    let shell = std::sync::Arc::new(shell);
    let listener = server
        .runtime()
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let address = listener.local_addr().unwrap();
    let routes = dovetail_extender::web::router(std::sync::Arc::clone(&shell));
    server.runtime().spawn(dovetail_extender::web::serve(
        listener,
        routes,
        std::future::pending(),
    ));
    assert_eq!(request(address, "POST", "/v1/extender/filter", b"{}").0, 503);
    assert_eq!(request(address, "GET", "/healthz", b"").0, 503);
    shell.pods_all(&kubernetes.pods());
    assert_eq!(request(address, "POST", "/v1/extender/filter", b"{}").0, 200);
}
