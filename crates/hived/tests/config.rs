//! HiveD's configuration: defaults, errors, and that no text makes the parser panic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_hived::parse_config;
use proptest::prelude::*;

const TYPES: &str = "
physicalCluster:
  cellTypes:
    SOCKET: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: SOCKET, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
";

/// Returns all errors of a configuration, one per line, or `valid`.
fn faults(cells: &str, vcs: &str) -> String {
    let text = format!("{TYPES}  physicalCells:\n{cells}virtualClusters:\n{vcs}");
    match parse_config(&text, "c.yaml") {
        Err(error) => error.to_string(),
        Ok(config) => match config.compile() {
            Ok(_) => "valid".to_owned(),
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
fn missing_addresses_and_children_are_filled_in() {
    let text = format!(
        "{TYPES}  physicalCells:\n{RACK}  - cellType: NODE\n    cellAddress: lone\nvirtualClusters:\n{OWNER}"
    );
    let layout = parse_config(&text, "c.yaml").unwrap().compile().unwrap().layout;
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
fn errors_name_the_path_and_what_is_expected() {
    assert_eq!(faults(RACK, OWNER), "valid");
    for (cells, vcs, expected) in [
        (
            "  - {cellType: RAK}\n",
            "",
            "physicalCluster.physicalCells[0].cellType: found \"RAK\", expected one of NODE, RACK, SOCKET",
        ),
        (
            "  - {cellType: SOCKET, cellAddress: a}\n",
            "",
            "physicalCluster.physicalCells[0].cellType: SOCKET contains no machine; expected a type with isNodeLevel, or one above it",
        ),
        (
            "  - {cellType: NODE}\n",
            "",
            "physicalCluster.physicalCells[0].cellAddress: missing; expected the name of the machine, because NODE has isNodeLevel",
        ),
        (
            "  - {cellType: RACK, cellChildren: [{cellAddress: a}]}\n",
            "",
            "cellChildren: found 1 cell, expected 2, the childCellNumber of RACK",
        ),
        (
            "  - {cellType: RACK, cellChildren: [{cellAddress: a}, {cellAddress: a}]}\n",
            "",
            "duplicate machine \"a\"; expected each machine once in a chain",
        ),
        (
            "  - {cellType: RACK, cellChildren: [{cellAddress: a}, {cellAddress: b, cellType: RACK}]}\n",
            "",
            "cellChildren[1].cellType: found \"RACK\", expected NODE, the child type of its parent",
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
            "chain RACK, level 3 (NODE): virtual clusters own 3 cells (v 3), but only 2 are available beside pinned and larger cells",
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
            "\"q\" is inside the pinned cell \"p\"; pinned cells must not be nested",
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
fn pinned_cells_are_counted_at_their_position() {
    // Two pinned machines in two racks: no whole rack is left, although there are enough machines.
    let rack = |a: &str, b: &str| {
        format!(
            "  - {{cellType: RACK, cellChildren: [{{cellAddress: {a}, pinnedCellId: p{a}}}, {{cellAddress: {b}}}]}}\n"
        )
    };
    let cells = rack("a", "b") + &rack("c", "d");
    let vcs = "  v: {virtualCells: [{cellType: RACK, cellNumber: 1}], pinnedCells: [{pinnedCellId: pa}, {pinnedCellId: pc}]}\n";
    assert!(
        faults(&cells, vcs)
            .contains("level 4 (RACK): virtual clusters own 1 cells (v 1), but only 0 are available")
    );
}

#[test]
fn cycles_and_repeated_machine_levels_of_types_are_found() {
    let text = "physicalCluster:\n  cellTypes:\n    A: {childCellType: B, childCellNumber: 1, isNodeLevel: true}\n    B: {childCellType: A, childCellNumber: 1}\n  physicalCells: [{cellType: A, cellAddress: x}]\n";
    let faults = parse_config(text, "c.yaml").unwrap().compile().unwrap_err();
    assert!(faults[0].to_string().contains("A, B form a cycle"), "{faults:?}");
    let text = "physicalCluster:\n  cellTypes:\n    A: {childCellType: B, childCellNumber: 1, isNodeLevel: true}\n    B: {childCellType: C, childCellNumber: 1, isNodeLevel: true}\n  physicalCells: [{cellType: A, cellAddress: x}]\n";
    let faults = parse_config(text, "c.yaml").unwrap().compile().unwrap_err();
    assert!(
        faults[0]
            .to_string()
            .contains("expected one machine level between top and leaf"),
        "{faults:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any text gives a configuration or an error.
    #[test]
    fn no_text_makes_the_parser_panic(text in "(?s).{0,200}") {
        if let Ok(config) = parse_config(&text, "c.yaml") {
            let _ = config.compile();
        }
    }

    /// A valid file with some words replaced gets further than random text.
    #[test]
    fn no_replaced_words_make_the_parser_panic(
        changes in prop::collection::vec((0usize..60, 0usize..16), 0..6),
    ) {
        let words = ["RACK", "NODE", "SOCKET", "GPU", "a", "0", "-1", "99999999999", "null", "[]", "{}", "true", "p", "x.y", "RACK.NODE", "\"\""];
        let pinned = "  - {cellType: RACK, cellChildren: [{cellAddress: c, pinnedCellId: p}, {cellAddress: d}]}\n";
        let text = format!("{TYPES}  physicalCells:\n{RACK}{pinned}virtualClusters:\n{OWNER}  w: {{pinnedCells: [{{pinnedCellId: p}}]}}\n");
        let mut pieces: Vec<String> = Vec::new();
        for piece in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
            pieces.push(piece.to_owned());
        }
        let values: Vec<usize> = (0..pieces.len()).filter(|i| pieces[*i].chars().next().is_some_and(char::is_alphanumeric)).collect();
        for (at, word) in changes {
            let at = values[at * 7 % values.len()];
            let end: String = pieces[at].chars().filter(|c| !c.is_alphanumeric()).collect();
            pieces[at] = format!("{}{end}", words[word]);
        }
        if let Ok(config) = parse_config(&pieces.concat(), "c.yaml")
            && let Ok(compiled) = config.compile()
        {
            let cells = dovetail_cells::Cells::new(compiled.layout);
            prop_assert!(cells.check().is_ok());
        }
    }
}
