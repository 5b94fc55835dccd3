//! Names, missing data, and experiments on small inputs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

use dovetail_reproduce::{EXPERIMENTS, Options, find};

fn options(data: &Path) -> Options {
    Options {
        out: None,
        data: Some(data.to_owned()),
        seed: 1,
        full: false,
        json: false,
        quiet: true,
    }
}

#[test]
fn names_are_unique() {
    let names: BTreeSet<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
    assert_eq!(names.len(), EXPERIMENTS.len());
}

#[test]
fn an_unknown_name_is_answered_with_similar_ones() {
    let error = find("blox-fig7").err().unwrap();
    assert!(error.is_request());
    let text = error.to_string();
    assert!(
        text.starts_with("unknown experiment `blox-fig7`, did you mean blox-fig6"),
        "{text}"
    );
    assert!(text.ends_with("synergy-cpu-ratio, synergy-tune"), "{text}");
}

#[test]
fn missing_data_is_a_wrong_request() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["jct-bound", "lab6-gang", "muri-fig9", "synergy-tune"] {
        let error = find(name).unwrap().run(&options(dir.path())).unwrap_err();
        assert!(error.is_request(), "{error}");
        assert!(
            error.to_string().contains("missing folder") && error.to_string().contains("--data DIR"),
            "{error}"
        );
    }
}

#[test]
fn a_published_table_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("jct-bound");
    std::fs::create_dir(&folder).unwrap();
    let run = |table: &str| {
        std::fs::write(folder.join("expected.csv"), table).unwrap();
        let error = find("jct-bound").unwrap().run(&options(dir.path())).unwrap_err();
        error.to_string().replace(&format!("{}/", folder.display()), "")
    };
    assert_eq!(
        run("trace,gpus,bound,srsf,sjf\n"),
        "expected.csv: missing column `fifobf`; found trace, gpus, bound, srsf, sjf"
    );
    assert_eq!(
        run("trace,gpus,bound,srsf,sjf,fifobf\nt,8,100,x,1,1\n"),
        "expected.csv:2: field srsf: found `x`, expected a number"
    );
}

#[test]
fn jct_bound_compares_with_the_published_table() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("jct-bound");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(
        folder.join("one.csv"),
        "submit_s,duration_s,gpus\n0,100,4\n0,100,4\n",
    )
    .unwrap();
    let run = |bound: u32| {
        let table = format!("trace,gpus,bound,srsf,sjf,fifobf\none,8,{bound},100,100,100\n");
        std::fs::write(folder.join("expected.csv"), table).unwrap();
        find("jct-bound").unwrap().run(&options(dir.path())).unwrap()
    };
    assert!(run(100).check().is_ok());
    let error = run(120).check().unwrap_err();
    assert!(!error.is_request());
    assert!(
        error.to_string().starts_with("not reproduced: every number"),
        "{error}"
    );
}
