//! Checks that docs/policies/README.md states where policies run. `UPDATE_DOCS=1` writes the table.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;

use dovetail::commands::policies::{conditional_need, runtimes, runtimes_of};
use dovetail_engine::{Capabilities, Need, Support};
use dovetail_policies::{Overrides, build, presets};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies/README.md");
const MARKER: &str = "<!-- runtimes: written by crates/cli/tests/policy_docs.rs -->\n\n";

fn support(support: Support) -> String {
    match support {
        Support::Yes(how) => how.to_owned(),
        Support::No(reason) => format!("**refused**: {reason}"),
    }
}

/// Returns the presets that need a mechanism.
fn presets_with(need: Need) -> Vec<String> {
    let needs = |name: &str| build(name, &Overrides::default()).unwrap().0.needs().union();
    let with = presets()
        .iter()
        .filter(|preset| needs(preset.name).contains(need));
    with.map(|preset| format!("`{}`", preset.name)).collect()
}

/// The table of mechanisms: the presets that need each, and whether each runtime has it.
fn table() -> String {
    let mut table = "| mechanism | presets that need it | simulator | agents | Kubernetes |\n\
                     |---|---|---|---|---|\n"
        .to_owned();
    for need in Need::ALL.into_iter().filter(|need| need.is_mechanism()) {
        let cells = runtimes().map(|runtime: Capabilities| support(runtime.support(need).unwrap()));
        writeln!(
            table,
            "| {need} | {} | {} |",
            presets_with(need).join(" "),
            cells.join(" | ")
        )
        .unwrap();
    }
    table
}

#[test]
fn the_docs_state_where_policies_run() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(MARKER).unwrap();
    let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
    let expected = format!("{before}{MARKER}{}{}", table(), &rest[end..]);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(PAGE, &expected).unwrap();
    }
    assert!(
        page == expected,
        "{PAGE} is out of date: run `UPDATE_DOCS=1 cargo test -p dovetail --test policy_docs`"
    );
}

#[test]
fn kubernetes_refuses_what_it_cannot_carry_out() {
    let refused: Vec<&str> = presets()
        .iter()
        .map(|preset| preset.name)
        .filter(|name| {
            let (policy, _) = build(name, &Overrides::default()).unwrap();
            !runtimes_of(&policy).contains(&"Kubernetes")
        })
        .collect();
    assert_eq!(
        refused,
        [
            "optimus",
            "elastic-fifo",
            "muri-s",
            "muri-l",
            "antman",
            "sjf-bsbf",
            "sjf-bsbf-no-preempt",
            "sjf-ffs",
            "sjf-ffs-no-preempt"
        ]
    );
    for preset in presets() {
        let (policy, _) = build(preset.name, &Overrides::default()).unwrap();
        let condition = (preset.name == "synergy").then_some(Need::Resize);
        assert_eq!(conditional_need(&policy), condition, "{}", preset.name);
        assert_eq!(
            &runtimes_of(&policy)[..2],
            ["simulator", "agents"],
            "{}",
            preset.name
        );
    }
}
