//! Checks that the tables of docs/policies/README.md list what is registered. `UPDATE_DOCS=1` writes them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use dovetail_policies::registry::{self, Kind};
use dovetail_policies::{Overrides, build, presets};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies/README.md");

/// The cells of the rows of a table, by the first one.
fn rows(table: &str) -> BTreeMap<String, Vec<String>> {
    let cells = |row: &str| -> Vec<String> {
        let cells = row.trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(cells).map(|cells| (cells[0].clone(), cells)).collect()
}

/// The table of presets. The page of each is written by hand.
fn preset_table(written: &BTreeMap<String, Vec<String>>) -> String {
    let mut table = "| preset | order | discipline | sizing | grouping | needs | preempts | page |\n\
                     |---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for preset in presets() {
        let (policy, _) = build(preset.name, &Overrides::default()).unwrap();
        let name = format!("`{}`", preset.name);
        let page = written.get(&name).and_then(|row| row.last());
        writeln!(
            table,
            "| {name} | {} | {} | {} | {} | {} | {} | {} |",
            preset.order,
            preset.discipline,
            preset.sizing,
            preset.grouping,
            match policy.needs().union() {
                needs if needs.is_empty() => "–".to_owned(),
                needs => needs.to_string(),
            },
            if policy.discipline.preempts() { "yes" } else { "no" },
            page.map_or("–", String::as_str),
        )
        .unwrap();
    }
    table
}

/// The table of parts. What each kind decides, and its pages, are written by hand.
fn part_table(written: &BTreeMap<String, Vec<String>>) -> String {
    let mut table = "| part | decides | choices | page |\n|---|---|---|---|\n".to_owned();
    for kind in Kind::ALL {
        let cell = |i: usize| {
            let row = written.get(kind.name());
            row.and_then(|row| row.get(i)).map_or("–", String::as_str)
        };
        let names = registry::of_kind(kind)
            .iter()
            .map(|part| format!("`{}`", part.name))
            .collect::<Vec<_>>();
        writeln!(
            table,
            "| {} | {} | {} | {} |",
            kind.name(),
            cell(1),
            names.join(" "),
            cell(3)
        )
        .unwrap();
    }
    table
}

/// The page with the table behind a marker replaced by what `make` writes from the rows that are there.
fn replaced(page: &str, marker: &str, make: impl Fn(&BTreeMap<String, Vec<String>>) -> String) -> String {
    let marker = format!("<!-- {marker}: written by crates/policies/tests/docs.rs -->\n\n");
    let (before, rest) = page
        .split_once(&marker)
        .unwrap_or_else(|| panic!("{PAGE} has {marker}"));
    let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
    let (table, after) = rest.split_at(end);
    format!("{before}{marker}{}{after}", make(&rows(table)))
}

#[test]
fn the_tables_of_the_docs_list_every_preset_and_part() {
    let page = std::fs::read_to_string(Path::new(PAGE)).unwrap();
    let expected = replaced(&replaced(&page, "presets", preset_table), "parts", part_table);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(PAGE, &expected).unwrap();
    }
    assert!(
        page == expected,
        "{PAGE} is out of date: run `UPDATE_DOCS=1 cargo test -p dovetail-policies --test docs`"
    );
}

#[test]
fn property_tests_draw_every_registered_order() {
    let drawn = dovetail_testkit::any::order_texts();
    for order in registry::ORDERS {
        assert!(drawn.contains(&order.name), "{} is not drawn", order.name);
    }
    for text in drawn {
        registry::build(Kind::Order, registry::ORDERS, text).unwrap();
    }
}
