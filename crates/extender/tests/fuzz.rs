//! No input makes the extender panic or its counts inconsistent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{Kubernetes, Server, pod, request};
use dovetail_extender::{
    BindCall, CellSnapshot, Extender, FilterCall, PreemptCall, Rules, Settings, Timestamp, affinity_groups,
    overdue_commands, read_bind_info, read_spec,
};
use dovetail_hived::{BIND_INFO, BindInfo, MemberBindInfo, PodPlacement, SPEC};
use dovetail_kubeapi::Pod;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Value, json};

const FILE: &str = "
forcePodBindThreshold: 3
physicalCluster:
  cellTypes:
    SWITCH: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: SWITCH, childCellNumber: 2, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 2}
    LONE: {childCellType: GPU, childCellNumber: 2, isNodeLevel: true}
  physicalCells:
  - cellType: POOL
    cellChildren: [{cellAddress: n1}, {cellAddress: n2, pinnedCellId: pin}]
  - {cellType: LONE, cellAddress: n3}
virtualClusters:
  a: {virtualCells: [{cellType: POOL.NODE.SWITCH, cellNumber: 2}, {cellType: LONE, cellNumber: 1}]}
  b: {pinnedCells: [{pinnedCellId: pin}]}
";

const SPEC_TEXT: &str = "virtualCluster: a\npriority: 3\nleafCellType: GPU\nleafCellNumber: 2\npinnedCellId: ''\n\
    lazyPreemptionEnable: true\nignoreK8sSuggestedNodes: false\ngangReleaseEnable: false\naffinityGroup:\n  name: g\n  \
    members:\n  - podNumber: 1\n    leafCellNumber: 2\n  - {podNumber: 2, gpuNumber: 1}\n";

const INFO_TEXT: &str = "node: n1\nleafCellIsolation: [0, 1]\ncellChain: POOL\naffinityGroupBindInfo:\n- podPlacements:\n  - \
    physicalNode: n1\n    physicalLeafCellIndices: [0, 1]\n    preassignedCellTypes: [SWITCH, SWITCH]\n";

fn annotated(spec: &str, info: &str) -> Pod {
    let mut object = pod("p", "p", spec);
    object["metadata"]["annotations"][BIND_INFO] = json!(info);
    serde_json::from_value(object).unwrap()
}

/// Returns a text with some bytes replaced, removed or added.
fn mutated(text: &'static str) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("-"),
        Just(":"),
        Just("\n"),
        Just("{"),
        Just("["),
        Just("&a"),
        Just("*a"),
        Just("0"),
        Just("-1"),
        Just("99999999999999999999"),
        Just("null"),
        Just("\""),
        Just("  "),
        Just("é"),
        Just("!!binary"),
        Just("gpuNumber: 4\n"),
    ];
    prop::collection::vec((0..text.len(), 0..8usize, piece), 0..6).prop_map(move |edits| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, cut, put) in edits {
            let at = at.min(bytes.len());
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, put.bytes());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn extender() -> Extender {
    let layout = Settings::parse(FILE, "test").unwrap().layout;
    let mut extender = Extender::new(layout, Rules::default());
    let kubernetes = Kubernetes::default();
    kubernetes.with(|m| m.nodes = ["n1", "n2", "n3"].map(|n| (n.to_owned(), true)).into());
    extender.sync_nodes(&kubernetes.nodes(), Timestamp(0));
    extender
}

/// Returns any JSON, with keys that the extender reads.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop_oneof![
            Just("a".to_owned()),
            Just("n1".to_owned()),
            Just(SPEC_TEXT.to_owned()),
            ".{0,12}"
        ]
        .prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("Pod"),
        Just("pod"),
        Just("NodeNames"),
        Just("nodenames"),
        Just("NodeNameToMetaVictims"),
        Just("metadata"),
        Just("spec"),
        Just("uid"),
        Just("name"),
        Just("namespace"),
        Just("annotations"),
        Just(SPEC),
        Just("containers"),
        Just("resources"),
        Just("limits"),
        Just("PodName"),
        Just("PodUID"),
        Just("Node"),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

fn placement() -> impl Strategy<Value = PodPlacement> {
    let node = prop_oneof![Just("n1"), Just("n2"), Just("n3"), Just("n9"), Just("")];
    let kind = prop_oneof![
        Just(""),
        Just("SWITCH"),
        Just("NODE"),
        Just("LONE"),
        Just("POOL"),
        Just("?")
    ];
    (node, prop::collection::vec(-1..5i32, 0..5), kind, 0..5usize).prop_map(|(node, leaves, kind, kinds)| {
        PodPlacement {
            physical_node: node.to_owned(),
            physical_leaf_cell_indices: leaves,
            preassigned_cell_types: vec![kind.to_owned(); kinds],
        }
    })
}

fn info() -> impl Strategy<Value = BindInfo> {
    let chain = prop_oneof![Just("POOL"), Just("LONE"), Just("?")];
    let members = prop::collection::vec(prop::collection::vec(placement(), 0..3), 0..3);
    (placement(), chain, members).prop_map(|(own, chain, members)| BindInfo {
        node: own.physical_node,
        leaf_cell_isolation: own.physical_leaf_cell_indices,
        cell_chain: chain.to_owned(),
        affinity_group_bind_info: members
            .into_iter()
            .map(|pod_placements| MemberBindInfo { pod_placements })
            .collect(),
    })
}

proptest! {
    #[test]
    fn invalid_annotations_are_refused(spec in mutated(SPEC_TEXT), info in mutated(INFO_TEXT), any in ".{0,80}") {
        for (spec, info) in [(spec.as_str(), info.as_str()), (any.as_str(), any.as_str())] {
            let pod = annotated(spec, info);
            if let Err(error) = read_spec(&pod) {
                prop_assert_eq!(error.code, 400);
            }
            let _ = read_bind_info(&pod);
        }
    }

    #[test]
    fn invalid_requests_are_refused(body in prop::collection::vec(any::<u8>(), 0..200), json in value()) {
        let text = json.to_string();
        for body in [body.as_slice(), text.as_bytes()] {
            for error in [FilterCall::read(body).err(), PreemptCall::read(body).err(), BindCall::read(body).err()] {
                prop_assert!(error.is_none_or(|e| e.code == 400));
            }
        }
    }

    #[test]
    fn invalid_files_do_not_panic(text in mutated(FILE), any in ".{0,80}") {
        let _ = Settings::parse(&text, "f");
        let _ = Settings::parse(&any, "f");
    }

    #[test]
    fn annotations_written_on_a_pod_are_read_back(info in info()) {
        let written = info.annotations().unwrap();
        let pod = annotated(SPEC_TEXT, &written[BIND_INFO]);
        prop_assert_eq!(read_bind_info(&pod).unwrap(), info);
    }

    #[test]
    fn counts_are_consistent_whatever_the_annotations_of_bound_pods_are(
        pods in prop::collection::vec((info(), 0..4u8, -1..4i32, prop_oneof![Just("a"), Just("b"), Just("c")], any::<bool>()), 1..8),
    ) {
        let mut extender = extender();
        for (at, (info, group, priority, vc, lazy)) in pods.iter().enumerate() {
            let pin = if *vc == "b" { "pin" } else { "''" };
            let spec = format!("virtualCluster: {vc}\npriority: {priority}\nleafCellNumber: 1\npinnedCellId: {pin}\n\
                lazyPreemptionEnable: {lazy}\naffinityGroup: {{name: g{group}, members: [{{podNumber: 9, leafCellNumber: 1}}]}}\n");
            let mut object = pod(&format!("p{at}"), &format!("u{at}"), &spec);
            for (key, value) in info.annotations().unwrap() {
                object["metadata"]["annotations"][key] = json!(value);
            }
            object["spec"]["nodeName"] = json!(if info.node.is_empty() { "n1" } else { &info.node });
            let object: Pod = serde_json::from_value(object).unwrap();
            extender.update_pod(&object, Timestamp(1));
            prop_assert_eq!(extender.groups().cells().check(), Ok(()));
            let body = json!({"Pod": pod("x", &format!("x{at}"), &spec), "NodeNames": ["n1", "n2", "n3"]}).to_string();
            let call = FilterCall::read(body.as_bytes()).unwrap();
            let _ = extender.filter(&call, Timestamp(2));
            let preempt = PreemptCall { pod: call.pod, spec: call.spec, nodes: call.nodes };
            let _ = extender.preempt(&preempt, Timestamp(3));
            prop_assert_eq!(extender.groups().cells().check(), Ok(()));
            CellSnapshot::new(&extender).status();
            affinity_groups(&extender);
        }
        overdue_commands(&mut extender, Timestamp(10_000_000));
        let other = FILE.replace("  b: {pinnedCells: [{pinnedCellId: pin}]}\n", "").replace("cellNumber: 2", "cellNumber: 1");
        for text in [other.as_str(), FILE] {
            extender.reconfigure(Settings::parse(text, "test").unwrap().layout, Timestamp(4));
            prop_assert_eq!(extender.groups().cells().check(), Ok(()));
        }
        extender.sync_pods(&[], Timestamp(200_000_000));
        overdue_commands(&mut extender, Timestamp(300_000_000));
        prop_assert_eq!(affinity_groups(&extender), vec![]);
        prop_assert_eq!(extender.groups().cells().check(), Ok(()));
    }
}

#[test]
fn random_bodies_over_http_never_cause_a_server_error() {
    let kubernetes = Kubernetes::default();
    kubernetes.with(|m| m.nodes = ["n1", "n2", "n3"].map(|n| (n.to_owned(), true)).into());
    let layout = Settings::parse(FILE, "test").unwrap().layout;
    let server = Server::start(layout, Rules::default(), &kubernetes, Duration::ZERO);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..150 {
        let body = value().new_tree(&mut runner).unwrap().current().to_string();
        for verb in ["filter", "preempt", "bind"] {
            let (code, _) = request(
                server.address,
                "POST",
                &format!("/v1/extender/{verb}"),
                body.as_bytes(),
            );
            assert!(code < 500, "{code} for {body}");
        }
    }
    for path in [
        "/v1/inspect/affinitygroups/%00",
        "/v1/inspect/affinitygroups/%ff",
        "//",
        "/v1/extender/%2e%2e",
    ] {
        assert!(server.get(path).0 < 500, "{path}");
    }
}
