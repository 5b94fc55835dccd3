//! HiveD's YAML: what is filled in, what is found to be wrong, and that nothing makes the reader fall over.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_workload::{parse_cluster, parse_hived};
use proptest::prelude::*;

const TYPES: &str = "
physicalCluster:
  cellTypes:
    SOCKET: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: SOCKET, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
";

/// Everything that is wrong with a configuration, one line each.
fn faults(cells: &str, vcs: &str) -> String {
    let text = format!("{TYPES}  physicalCells:\n{cells}virtualClusters:\n{vcs}");
    match parse_hived(&text, "c.yaml") {
        Err(error) => error.to_string(),
        Ok(config) => match config.compile() {
            Ok(_) => "sound".to_owned(),
            Err(faults) => faults
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n"),
        },
    }
}

const RACK: &str = "  - {cellType: RACK, cellChildren: [{cellAddress: a}, {cellAddress: b}]}\n";
const OWNER: &str = "  v: {virtualCells: [{cellType: RACK.NODE, cellNumber: 2}]}\n";

#[test]
fn what_is_left_out_is_filled_in() {
    let text = format!(
        "{TYPES}  physicalCells:\n{RACK}  - cellType: NODE\n    cellAddress: lone\nvirtualClusters:\n{OWNER}"
    );
    let layout = parse_hived(&text, "c.yaml").unwrap().compile().unwrap().layout;
    let rack = layout.chain(layout.chain_named("RACK").unwrap());
    assert_eq!(rack.address(2, 1), "0/b");
    assert_eq!(rack.address(0, 7), "0/b/1/3");
    assert_eq!(rack.leaf_indices, [0, 1, 2, 3, 0, 1, 2, 3]);
    let lone = layout.chain(layout.chain_named("NODE").unwrap());
    assert_eq!(lone.address(0, 2), "lone/1/2");
    assert_eq!(layout.machines.len(), 3);
    assert_eq!(layout.leaves_of(layout.vc_named("v").unwrap()), 8);
}

#[test]
fn what_is_wrong_is_named() {
    assert_eq!(faults(RACK, OWNER), "sound");
    for (cells, vcs, expected) in [
        (
            "  - {cellType: RAK}\n",
            "",
            "physicalCluster.physicalCells[0].cellType: found \"RAK\", expected one of NODE, RACK, SOCKET",
        ),
        (
            "  - {cellType: SOCKET, cellAddress: a}\n",
            "",
            "physicalCluster.physicalCells[0].cellType: SOCKET is not a machine and holds none; expected a type with isNodeLevel, or one above it",
        ),
        (
            "  - {cellType: NODE}\n",
            "",
            "physicalCluster.physicalCells[0].cellAddress: it is missing; a NODE is a machine, and its cellAddress is the machine's name",
        ),
        (
            "  - {cellType: RACK, cellChildren: [{cellAddress: a}]}\n",
            "",
            "cellChildren: found 1 cells, expected 2: that is childCellNumber of RACK",
        ),
        (
            "  - {cellType: RACK, cellChildren: [{cellAddress: a}, {cellAddress: a}]}\n",
            "",
            "machine \"a\" is there twice in the chain; expected each machine once",
        ),
        (
            "  - {cellType: RACK, cellChildren: [{cellAddress: a}, {cellAddress: b, cellType: RACK}]}\n",
            "",
            "cellChildren[1].cellType: found \"RACK\", expected NODE, which is what its parent is made of",
        ),
        (
            "  - {cellType: NODE, cellAddress: a, cellChildren: [{cellChildren: [{cellAddress: x}, {}]}, {}]}\n",
            "",
            "cellAddress: found \"x\", expected the index of the GPU on its machine, a whole number from 0",
        ),
        (
            RACK,
            "  v: {virtualCells: [{cellType: POOL, cellNumber: 1}]}\n",
            "virtualClusters.v.virtualCells[0].cellType: \"POOL\" is not the type of a cell in physicalCells; expected one of RACK",
        ),
        (
            RACK,
            "  v: {virtualCells: [{cellType: RACK.POD, cellNumber: 1}]}\n",
            "virtualClusters.v.virtualCells[0].cellType: found \"POD\" below RACK, expected one of NODE, SOCKET, GPU",
        ),
        (
            RACK,
            "  v: {virtualCells: [{cellType: RACK.NODE, cellNumber: 3}]}\n",
            "chain RACK, level 3 (NODE): 3 cells are promised (v 3), but 2 can be had beside pinned and larger cells; expected at most 2",
        ),
        (
            RACK,
            "  v: {pinnedCells: [{pinnedCellId: p}]}\n",
            "virtualClusters.v.pinnedCells[0].pinnedCellId: found \"p\", but no physical cell has a pinnedCellId",
        ),
        (
            RACK,
            "  v: {virtualCells: [{cellType: RACK, cellNumber: -1}]}\n",
            "c.yaml: virtualClusters.v.virtualCells[0].cellNumber: found -1, expected a whole number from 0",
        ),
        (
            "  - {cellType: RACK, pinnedCellId: p, cellChildren: [{cellAddress: a, pinnedCellId: q}, {cellAddress: b}]}\n",
            "",
            "\"q\" is inside the pinned cell \"p\"; a pinned cell cannot hold another one",
        ),
        (
            "  - {cellType: RACK, pinnedCellId: p, cellChildren: [{cellAddress: a}, {cellAddress: b}]}\n",
            "  v: {pinnedCells: [{pinnedCellId: p}]}\n  w: {pinnedCells: [{pinnedCellId: p}]}\n",
            "virtualClusters.w.pinnedCells[0].pinnedCellId: \"p\" already belongs to virtual cluster \"v\"; expected one owner",
        ),
    ] {
        let found = faults(cells, vcs);
        assert!(
            found.contains(expected),
            "{cells}{vcs}found:    {found}\nexpected: {expected}"
        );
    }
}

#[test]
fn pinned_cells_are_counted_where_they_are() {
    // Two pinned machines in two racks: no whole rack is left, although the numbers alone would add up.
    let rack = |a: &str, b: &str| {
        format!(
            "  - {{cellType: RACK, cellChildren: [{{cellAddress: {a}, pinnedCellId: p{a}}}, {{cellAddress: {b}}}]}}\n"
        )
    };
    let cells = rack("a", "b") + &rack("c", "d");
    let vcs = "  v: {virtualCells: [{cellType: RACK, cellNumber: 1}], pinnedCells: [{pinnedCellId: pa}, {pinnedCellId: pc}]}\n";
    assert!(faults(&cells, vcs).contains("level 4 (RACK): 1 cells are promised (v 1), but 0 can be had"));
}

#[test]
fn types_that_go_round_are_found() {
    let text = "physicalCluster:\n  cellTypes:\n    A: {childCellType: B, childCellNumber: 1, isNodeLevel: true}\n    B: {childCellType: A, childCellNumber: 1}\n  physicalCells: [{cellType: A, cellAddress: x}]\n";
    let faults = parse_hived(text, "c.yaml").unwrap().compile().unwrap_err();
    assert!(
        faults[0].to_string().contains("A, B go round in a ring"),
        "{faults:?}"
    );
    let text = "physicalCluster:\n  cellTypes:\n    A: {childCellType: B, childCellNumber: 1, isNodeLevel: true}\n    B: {childCellType: C, childCellNumber: 1, isNodeLevel: true}\n  physicalCells: [{cellType: A, cellAddress: x}]\n";
    let faults = parse_hived(text, "c.yaml").unwrap().compile().unwrap_err();
    assert!(
        faults[0]
            .to_string()
            .contains("one level of machines on each way down"),
        "{faults:?}"
    );
}

#[test]
fn its_machines_are_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hived.yaml");
    let skus = "physicalCluster:\n  skuTypes:\n    GPU: {gpu: 1, cpu: 4, memory: 8192Mi}\n    SHARE: {cpu: 2, memory: 1Gi}\n";
    let types = TYPES.trim_start().strip_prefix("physicalCluster:\n").unwrap();
    let more = "    SHARES: {childCellType: SHARE, childCellNumber: 4, isNodeLevel: true}\n";
    let cells = format!(
        "{skus}{types}{more}  physicalCells:\n{RACK}  - {{cellType: SHARES, cellAddress: a}}\n  - {{cellType: SHARES, cellAddress: cpu-only}}\n"
    );
    std::fs::write(&path, cells).unwrap();
    let cluster = parse_cluster(&path.display().to_string()).unwrap();
    let nodes: Vec<_> = cluster
        .nodes
        .values()
        .map(|n| (n.name.as_str(), n.gpus, n.cpu_milli, n.memory_mib))
        .collect();
    assert_eq!(nodes, [("a", 4, 16_000, 32_768), ("b", 4, 16_000, 32_768)]);
    assert_eq!(
        cluster
            .zones
            .values()
            .map(|z| z.name.as_str())
            .collect::<Vec<_>>(),
        ["RACK 0"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any text gives a configuration or an error, never a panic.
    #[test]
    fn no_text_makes_it_fall_over(text in "(?s).{0,200}") {
        if let Ok(config) = parse_hived(&text, "c.yaml") {
            let _ = config.compile();
        }
    }

    /// A sound file with some words exchanged, which gets further than any text.
    #[test]
    fn no_exchanged_words_make_it_fall_over(
        changes in prop::collection::vec((0usize..60, 0usize..16), 0..6),
    ) {
        let words = ["RACK", "NODE", "SOCKET", "GPU", "a", "0", "-1", "99999999999", "null", "[]", "{}", "true", "p", "x.y", "RACK.NODE", "\"\""];
        let pinned = "  - {cellType: RACK, cellChildren: [{cellAddress: c, pinnedCellId: p}, {cellAddress: d}]}\n";
        let text = format!("{TYPES}  physicalCells:\n{RACK}{pinned}virtualClusters:\n{OWNER}  w: {{pinnedCells: [{{pinnedCellId: p}}]}}\n");
        let mut parts: Vec<String> = Vec::new();
        for piece in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
            parts.push(piece.to_owned());
        }
        let values: Vec<usize> = (0..parts.len()).filter(|i| parts[*i].chars().next().is_some_and(char::is_alphanumeric)).collect();
        for (at, word) in changes {
            let at = values[at * 7 % values.len()];
            let end: String = parts[at].chars().filter(|c| !c.is_alphanumeric()).collect();
            parts[at] = format!("{}{end}", words[word]);
        }
        if let Ok(config) = parse_hived(&parts.concat(), "c.yaml")
            && let Ok(compiled) = config.compile()
        {
            let cells = dovetail_cells::Cells::new(compiled.layout);
            prop_assert!(cells.check().is_ok());
        }
    }
}
