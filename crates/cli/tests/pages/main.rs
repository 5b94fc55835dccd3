//! Every command of the README and the tutorials runs in a fresh clone and prints what the page shows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod markdown;
mod reader;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use markdown::{Block, blocks};
use reader::Reader;

/// Commands that are not run: the page, the command, and the reason.
const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "README.md",
        "make demo",
        "builds a release; the comparison it runs is checked by `the_table_of_the_readme_is_that_of_the_demo`",
    ),
    ("README.md", "make test", "runs this test"),
    (
        "docs/tutorials/administrator.md",
        "kubectl apply -f deploy/kubernetes/dovetail.yaml",
        "needs Kubernetes; `crates/kube/tests/install.rs` applies this file",
    ),
    (
        "docs/tutorials/researcher.md",
        "dovetail simulate --compat blox --trace workload.csv --cluster 32x4 --policy las --track 0..199 --out out/las",
        "needs a workload of Blox, which is not part of the repository; `crates/sim/tests` compares all of them",
    ),
];

/// Commands that need something that the page describes in prose: the page, the command, and what to run before it.
const PREPARE: &[(&str, &str, &str)] = &[
    // A job that is still running, so that it can be followed and stopped.
    (
        "docs/tutorials/trainer.md",
        "dovetail job logs -f last",
        "dovetail run --detach -- sleep 2",
    ),
    (
        "docs/tutorials/trainer.md",
        "dovetail job stop last",
        "dovetail run --detach -- sleep 600",
    ),
];

fn project() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    folder.canonicalize().unwrap()
}

fn read(page: &str) -> String {
    std::fs::read_to_string(project().join(page)).unwrap()
}

fn is_not_run(page: &str, command: &str) -> bool {
    NOT_RUN.iter().any(|(p, c, _)| *p == page && *c == command)
}

/// Runs the commands of a block and returns what they print.
fn run_block(reader: &mut Reader, page: &str, block: &Block) -> String {
    let mut printed = String::new();
    for command in block.commands.iter().filter(|c| !is_not_run(page, c)) {
        for (_, _, before) in PREPARE.iter().filter(|(p, c, _)| *p == page && c == command) {
            reader.run(before);
        }
        let (text, code) = reader.run(command);
        let is_last = Some(command) == block.commands.last();
        let expected = (code != 0) == (block.fails && is_last);
        assert!(
            expected,
            "{page}:{}: `{command}` exits with {code}:\n{text}",
            block.line
        );
        printed.push_str(&text);
    }
    printed
}

/// Compares output with what a page shows. A line `...` of the page stands for any lines, and lines of a kind in
/// [`reader::VARYING`] differ from run to run.
fn matches(shown: &str, printed: &str) -> Result<(), String> {
    let lines = |text: &str| -> Vec<String> {
        let lines = text
            .trim_end()
            .lines()
            .map(|line| reader::normalize(line.trim_end()));
        lines.collect()
    };
    let (shown, printed) = (lines(shown), lines(printed));
    let mut at = 0;
    let mut skips = false;
    for line in &shown {
        if matches!(line.trim(), "..." | "…") {
            skips = true;
            continue;
        }
        let found = match skips {
            true => printed[at..].iter().position(|l| l == line).map(|i| at + i),
            false => (printed.get(at) == Some(line)).then_some(at),
        };
        let Some(found) = found else {
            let next = printed.get(at).map_or("(end of output)", String::as_str);
            return Err(format!(
                "the page shows:\n  {line}\nthe command prints:\n  {next}"
            ));
        };
        (at, skips) = (found + 1, false);
    }
    match printed.get(at) {
        Some(line) if !skips => Err(format!("the page does not show:\n  {line}")),
        _ => Ok(()),
    }
}

/// Runs all commands of a page in order, in one clone.
fn check(page: &str) {
    let mut reader = Reader::new(&project());
    for block in blocks(&read(page)) {
        let printed = run_block(&mut reader, page, &block);
        let Some(shown) = &block.output else { continue };
        if let Err(difference) = matches(shown, &printed) {
            panic!("{page}:{}: {difference}\nfull output:\n{printed}", block.line);
        }
    }
}

#[test]
fn the_readme() {
    check("README.md");
}

#[test]
fn the_tutorial_for_administrators() {
    check("docs/tutorials/administrator.md");
}

#[test]
fn the_tutorial_for_researchers() {
    check("docs/tutorials/researcher.md");
}

#[test]
fn the_tutorial_for_people_who_train() {
    check("docs/tutorials/trainer.md");
}

#[test]
fn every_tutorial_has_a_test() {
    let folder = std::fs::read_dir(project().join("docs/tutorials")).unwrap();
    let found: BTreeSet<String> = folder
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md"))
        .collect();
    let tested = ["administrator.md", "researcher.md", "trainer.md"].map(str::to_owned);
    assert_eq!(found, BTreeSet::from(tested), "add a test for each tutorial");
}

#[test]
fn every_exception_is_a_command_of_its_page() {
    let not_run = NOT_RUN.iter().map(|(page, command, _)| (page, command));
    let prepared = PREPARE.iter().map(|(page, command, _)| (page, command));
    for (page, command) in not_run.chain(prepared) {
        let known = blocks(&read(page)).into_iter().flat_map(|block| block.commands);
        assert!(
            known.into_iter().any(|c| c == **command),
            "{page} has no command `{command}`"
        );
    }
}

/// The rows of the first table of the README: policy, average JCT, distance to the bound, median, p99, wait and stops.
fn readme_rows() -> Vec<Vec<String>> {
    let page = read("README.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        let cells = cells.map(|cell| cell.trim().trim_matches(['`', '*']).to_owned());
        cells.collect()
    };
    rows.map(cells).filter(|cells| cells.len() == 8).collect()
}

#[test]
fn the_table_of_the_readme_is_that_of_the_demo() {
    let makefile = read("Makefile");
    let command = makefile
        .lines()
        .find_map(|line| line.trim().strip_prefix("$(DOVETAIL) compare "))
        .unwrap();
    let (printed, code) = Reader::new(&project()).run(&format!("dovetail compare {command}"));
    assert_eq!(code, 0, "{printed}");
    let rows = readme_rows();
    assert_eq!(rows.len(), 9);
    for row in rows {
        let [policy, sees, jct, bound, median, p99, wait, stops] = &row[..] else {
            panic!("{row:?}");
        };
        let line = printed
            .lines()
            .find(|line| line.split_whitespace().nth(1) == Some(policy));
        let line = line.unwrap_or_else(|| panic!("no row for {policy}:\n{printed}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let knows = if sees == "yes" { "oracle" } else { "none" };
        // The columns of the page in their order; the command prints more between them.
        let mut rest = words.join(" ");
        for cell in [policy, knows, jct, bound, median, p99, wait, stops] {
            let cell = format!(" {cell} ");
            let at = rest
                .find(&cell)
                .unwrap_or_else(|| panic!("{policy}: the demo does not print{cell}in:\n{line}"));
            rest = rest.split_off(at + cell.len() - 1);
        }
    }
}
